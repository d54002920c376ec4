"""The values applications hold: partitions with offsets, messages, and what a cluster looks like.

A `Message` is a record and the batch-wide facts it shares with its neighbours (`Origin`): two references, so that
handing out a few hundred thousand a second costs little.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from felice.client.error import KafkaError

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2

OFFSET_BEGINNING = -2
OFFSET_END = -1
OFFSET_STORED = -1000
OFFSET_INVALID = -1001

PARTITION_UA = -1

Partition: TypeAlias = tuple[str, int]
HeaderList: TypeAlias = list[tuple[str, bytes | None]]
# offset, timestamp, key, value, headers: the shape of records.record.Record, which is such a tuple.
RecordTuple: TypeAlias = tuple[int, int, Any, Any, Any]


class TopicPartition:
    """A partition of a topic, with an offset, a leader epoch or an error where the call gives one."""

    __slots__ = ("error", "leader_epoch", "metadata", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = PARTITION_UA,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
        error: KafkaError | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error = error

    @property
    def key(self) -> Partition:
        return self.topic, self.partition

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, TopicPartition) else NotImplemented

    def __lt__(self, other: TopicPartition) -> bool:
        return self.key < other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        names = {
            OFFSET_BEGINNING: "BEGINNING",
            OFFSET_END: "END",
            OFFSET_STORED: "STORED",
            OFFSET_INVALID: "INVALID",
        }
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},"
            f"offset={names.get(self.offset, self.offset)},leader_epoch={self.leader_epoch},error={self.error}}}"
        )


@dataclass(slots=True)
class Origin:
    """What the records of one batch have in common."""

    topic: str
    partition: int
    timestamp_type: int = TIMESTAMP_CREATE_TIME
    leader_epoch: int | None = None
    latency_s: float | None = None


class Message:
    """One record as consumed or delivered, or an error event in its place."""

    __slots__ = ("_error", "_origin", "_record")

    def __init__(self, origin: Origin, record: RecordTuple, error: KafkaError | None = None) -> None:
        self._origin = origin
        self._record = record
        self._error = error

    def topic(self) -> str | None:
        return self._origin.topic or None

    def partition(self) -> int | None:
        return self._origin.partition if self._origin.partition >= 0 else None

    def offset(self) -> int | None:
        return self._record[0] if self._record[0] >= 0 else None

    def key(self) -> Any:
        return self._record[2]

    def value(self) -> Any:
        return self._record[3]

    def headers(self) -> HeaderList | None:
        return list(self._record[4]) if self._record[4] else None

    def timestamp(self) -> tuple[int, int]:
        timestamp = self._record[1]
        return (self._origin.timestamp_type if timestamp >= 0 else TIMESTAMP_NOT_AVAILABLE), timestamp

    def error(self) -> KafkaError | None:
        return self._error

    def leader_epoch(self) -> int | None:
        return self._origin.leader_epoch

    def latency(self) -> float | None:
        """Seconds from `produce()` to the report, for a message that was produced."""
        return self._origin.latency_s

    def set_key(self, key: Any) -> None:
        self._replace(2, key)

    def set_value(self, value: Any) -> None:
        self._replace(3, value)

    def set_headers(self, headers: HeaderList | None) -> None:
        self._replace(4, tuple(headers or ()))

    def _replace(self, index: int, value: Any) -> None:
        fields = list(self._record)
        fields[index] = value
        self._record = tuple(fields)

    def __len__(self) -> int:
        return len(self._record[3] or b"")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic()!r}, partition={self.partition()}, offset={self.offset()}, "
            f"key={self.key()!r}, error={self._error})"
        )


def error_message(
    error: KafkaError, topic: str = "", partition: int = -1, offset: int = OFFSET_INVALID
) -> Message:
    """An event of `poll()` that carries an error instead of a record."""
    return Message(Origin(topic, partition), (offset, -1, None, error.str().encode(), ()), error)


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An answer of ListOffsets; offset -1 means there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Who this consumer is in its group, for a transactional producer to commit on its behalf."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(slots=True)
class BrokerMetadata:
    id: int
    host: str
    port: int
    rack: str | None = None

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


@dataclass(slots=True)
class PartitionMetadata:
    id: int
    leader: int = -1
    replicas: list[int] = field(default_factory=list)
    isrs: list[int] = field(default_factory=list)
    error: KafkaError | None = None
    leader_epoch: int = -1

    def __str__(self) -> str:
        return str(self.id)


@dataclass(slots=True)
class TopicMetadata:
    topic: str
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None
    topic_id: uuid.UUID | None = None
    is_internal: bool = False

    def __str__(self) -> str:
        return self.topic


@dataclass(slots=True)
class ClusterMetadata:
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    orig_broker_id: int = -1
    orig_broker_name: str | None = None

    def __str__(self) -> str:
        return str(self.cluster_id)
