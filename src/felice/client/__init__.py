"""The Python client: producing, consuming and administering, with confluent_kafka's face.

    from felice.client import Consumer, Producer        # instead of: from confluent_kafka import ...

`felice.client.aio` has the same as coroutines, `felice.client.blocking` a small client of raw batches for
processes such as Spark's executors. Clients of other languages and libraries work with the brokers as well.
"""

from __future__ import annotations

from felice.client.admin import NewPartitions, NewTopic
from felice.client.admin.client import AdminClient
from felice.client.confluent.consumer import Consumer
from felice.client.confluent.producer import Producer
from felice.client.error import ConsumeError, KafkaError, KafkaException, ProduceError
from felice.client.model import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    ConsumerGroupMetadata,
    Message,
    TopicPartition,
)

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AdminClient",
    "ConsumeError",
    "Consumer",
    "ConsumerGroupMetadata",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewPartitions",
    "NewTopic",
    "ProduceError",
    "Producer",
    "TopicPartition",
]
