"""The Python client: producing, consuming and administering, with confluent_kafka's names.

    from felice.client import Consumer, Producer        # instead of: from confluent_kafka import ...

Submodules have confluent_kafka's names, too: `admin`, `aio`, `error`, `serialization`. In addition, `felice.client.aio`
has its own coroutine API, and `felice.client.blocking` a small client for raw batches in processes such as Spark's
executors. Clients of other languages and libraries work with the brokers as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.late_names import late_names

if TYPE_CHECKING:
    from felice.client.admin.client import AdminClient
    from felice.client.admin.enumerations import (
        ConsumerGroupState,
        ConsumerGroupType,
        ElectionType,
        IsolationLevel,
    )
    from felice.client.admin.model import (
        ConsumerGroupTopicPartitions,
        NewPartitions,
        NewTopic,
        Node,
        OffsetSpec,
        TopicCollection,
        TopicPartitionInfo,
    )
    from felice.client.confluent.consumer import Consumer
    from felice.client.confluent.functions import __version__ as __version__
    from felice.client.confluent.functions import consistent, fnv1a, libversion, murmur2, version
    from felice.client.confluent.producer import Producer
    from felice.client.deserializing_consumer import DeserializingConsumer
    from felice.client.error import (
        ConcurrentModificationException,
        ConsumeError,
        IllegalStateException,
        KafkaError,
        KafkaException,
        ProduceError,
    )
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
        ThrottleEvent,
        TopicPartition,
        Uuid,
    )
    from felice.client.serializing_producer import SerializingProducer


__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AdminClient",
    "ConcurrentModificationException",
    "ConsumeError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "ElectionType",
    "IllegalStateException",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetSpec",
    "ProduceError",
    "Producer",
    "SerializingProducer",
    "ThrottleEvent",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "felice.client.admin.client": ("AdminClient",),
            "felice.client.admin.enumerations": (
                "ConsumerGroupState",
                "ConsumerGroupType",
                "ElectionType",
                "IsolationLevel",
            ),
            "felice.client.admin.model": (
                "ConsumerGroupTopicPartitions",
                "NewPartitions",
                "NewTopic",
                "Node",
                "OffsetSpec",
                "TopicCollection",
                "TopicPartitionInfo",
            ),
            "felice.client.confluent.consumer": ("Consumer",),
            "felice.client.confluent.functions": (
                "__version__",
                "consistent",
                "fnv1a",
                "libversion",
                "murmur2",
                "version",
            ),
            "felice.client.confluent.producer": ("Producer",),
            "felice.client.deserializing_consumer": ("DeserializingConsumer",),
            "felice.client.error": (
                "ConcurrentModificationException",
                "ConsumeError",
                "IllegalStateException",
                "KafkaError",
                "KafkaException",
                "ProduceError",
            ),
            "felice.client.model": (
                "OFFSET_BEGINNING",
                "OFFSET_END",
                "OFFSET_INVALID",
                "OFFSET_STORED",
                "TIMESTAMP_CREATE_TIME",
                "TIMESTAMP_LOG_APPEND_TIME",
                "TIMESTAMP_NOT_AVAILABLE",
                "ConsumerGroupMetadata",
                "Message",
                "ThrottleEvent",
                "TopicPartition",
                "Uuid",
            ),
            "felice.client.serializing_producer": ("SerializingProducer",),
        },
        modules=("admin", "aio", "cimpl", "error", "model", "serialization"),
    )
