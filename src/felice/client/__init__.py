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
    from felice.client.admin.client import AdminClient as AdminClient
    from felice.client.admin.enumerations import ConsumerGroupState as ConsumerGroupState
    from felice.client.admin.enumerations import ConsumerGroupType as ConsumerGroupType
    from felice.client.admin.enumerations import ElectionType as ElectionType
    from felice.client.admin.enumerations import IsolationLevel as IsolationLevel
    from felice.client.admin.model import ConsumerGroupTopicPartitions as ConsumerGroupTopicPartitions
    from felice.client.admin.model import NewPartitions as NewPartitions
    from felice.client.admin.model import NewTopic as NewTopic
    from felice.client.admin.model import Node as Node
    from felice.client.admin.model import OffsetSpec as OffsetSpec
    from felice.client.admin.model import TopicCollection as TopicCollection
    from felice.client.admin.model import TopicPartitionInfo as TopicPartitionInfo
    from felice.client.confluent.consumer import Consumer as Consumer
    from felice.client.confluent.functions import __version__ as __version__
    from felice.client.confluent.functions import consistent as consistent
    from felice.client.confluent.functions import fnv1a as fnv1a
    from felice.client.confluent.functions import libversion as libversion
    from felice.client.confluent.functions import murmur2 as murmur2
    from felice.client.confluent.functions import version as version
    from felice.client.confluent.producer import Producer as Producer
    from felice.client.deserializing_consumer import DeserializingConsumer as DeserializingConsumer
    from felice.client.error import ConcurrentModificationException as ConcurrentModificationException
    from felice.client.error import ConsumeError as ConsumeError
    from felice.client.error import IllegalStateException as IllegalStateException
    from felice.client.error import KafkaError as KafkaError
    from felice.client.error import KafkaException as KafkaException
    from felice.client.error import ProduceError as ProduceError
    from felice.client.model import OFFSET_BEGINNING as OFFSET_BEGINNING
    from felice.client.model import OFFSET_END as OFFSET_END
    from felice.client.model import OFFSET_INVALID as OFFSET_INVALID
    from felice.client.model import OFFSET_STORED as OFFSET_STORED
    from felice.client.model import TIMESTAMP_CREATE_TIME as TIMESTAMP_CREATE_TIME
    from felice.client.model import TIMESTAMP_LOG_APPEND_TIME as TIMESTAMP_LOG_APPEND_TIME
    from felice.client.model import TIMESTAMP_NOT_AVAILABLE as TIMESTAMP_NOT_AVAILABLE
    from felice.client.model import ConsumerGroupMetadata as ConsumerGroupMetadata
    from felice.client.model import Message as Message
    from felice.client.model import ThrottleEvent as ThrottleEvent
    from felice.client.model import TopicPartition as TopicPartition
    from felice.client.model import Uuid as Uuid
    from felice.client.serializing_producer import SerializingProducer as SerializingProducer


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = late_names(
        __name__,
        {
            "felice.client.admin.client": "AdminClient",
            "felice.client.admin.enumerations": "ConsumerGroupState ConsumerGroupType ElectionType "
            "IsolationLevel",
            "felice.client.admin.model": "ConsumerGroupTopicPartitions NewPartitions NewTopic Node "
            "OffsetSpec TopicCollection TopicPartitionInfo",
            "felice.client.confluent.consumer": "Consumer",
            "felice.client.confluent.functions": "__version__ consistent fnv1a libversion murmur2 version",
            "felice.client.confluent.producer": "Producer",
            "felice.client.deserializing_consumer": "DeserializingConsumer",
            "felice.client.error": "ConcurrentModificationException ConsumeError IllegalStateException "
            "KafkaError KafkaException ProduceError",
            "felice.client.model": "OFFSET_BEGINNING OFFSET_END OFFSET_INVALID OFFSET_STORED "
            "TIMESTAMP_CREATE_TIME TIMESTAMP_LOG_APPEND_TIME TIMESTAMP_NOT_AVAILABLE ConsumerGroupMetadata "
            "Message ThrottleEvent TopicPartition Uuid",
            "felice.client.serializing_producer": "SerializingProducer",
        },
        modules=("admin", "aio", "cimpl", "error", "model", "serialization"),
    )
