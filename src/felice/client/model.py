"""The values that applications hold: partitions with offsets, messages, and cluster metadata.

A `Message` holds only two references, to its record and to the facts that the records of a batch share (`Origin`).
Creating several hundred thousand messages per second therefore costs little.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Iterable
from dataclasses import field, replace
from functools import total_ordering
from itertools import groupby
from operator import attrgetter, index
from types import NoneType
from typing import Any, TypeAlias

from felice.client.arguments import expect
from felice.client.error import KafkaError
from felice.dataclass import dataclass
from felice.records.kernels import track

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2

OFFSET_BEGINNING = -2
OFFSET_END = -1
OFFSET_STORED = -1000
OFFSET_INVALID = -1001
# librdkafka's RD_KAFKA_OFFSET_TAIL(n) is this minus n: start n records before the end.
OFFSET_TAIL_BASE = -2000

PARTITION_UA = -1

Partition: TypeAlias = tuple[str, int]
HeaderList: TypeAlias = list[tuple[str, bytes | None]]
# offset, timestamp, key, value, headers: the fields of records.record.Record, which is such a tuple.
# Key and value are bytes until a deserializer of the application replaces them by any object.
RecordTuple: TypeAlias = tuple[int, int, Any, Any, Any]


@total_ordering
class TopicPartition:
    """A partition of a topic. Some calls add an offset, a leader epoch or an error."""

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
        expect("topic", topic, str)
        expect("metadata", metadata, str, NoneType)
        expect("leader_epoch", leader_epoch, int, NoneType)
        if not -(2**31) <= index(partition) < 2**31:
            raise OverflowError(f"partition: {partition} does not fit into 32 bits")
        self.topic = topic
        self.partition = index(partition)
        self.offset = index(offset)
        self.metadata = metadata
        # -1 is the protocol's way to say that it is unknown.
        self.leader_epoch = None if leader_epoch is None or leader_epoch < 0 else leader_epoch
        self.error = error

    @property
    def key(self) -> Partition:
        """Topic and partition, which decide equality."""
        return self.topic, self.partition

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, TopicPartition) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.key < other.key if isinstance(other, TopicPartition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},"
            f"offset={self.offset},leader_epoch={self.leader_epoch},error={self.error}}}"
        )


@dataclass(slots=True)
class Origin:
    """The facts that all records of one batch share."""

    topic: str
    partition: int
    timestamp_type: int = TIMESTAMP_CREATE_TIME
    leader_epoch: int | None = None
    latency_s: float | None = None


class Message:
    """A consumed or delivered record, or an error event.

    Clients create messages with `message_of`. The constructor is for applications' tests: every argument is optional,
    `timestamp` is a pair of type (`TIMESTAMP_CREATE_TIME`, ...) and milliseconds, `latency` is in seconds.
    """

    __slots__ = ("_error", "_origin", "_record")

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: object = None,
        value: object = None,
        headers: HeaderList | None = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        timestamp_type, time_ms = _checked_timestamp(timestamp)
        number = -1 if partition is None else partition
        self._origin = Origin(topic or "", number, timestamp_type, leader_epoch, latency)
        place = OFFSET_INVALID if offset is None else offset
        pairs = headers.items() if isinstance(headers, dict) else headers or ()
        self._record: RecordTuple = (place, time_ms, key, value, tuple(pairs))
        self._error = error

    def topic(self) -> str | None:
        """The topic's name; None for an error event without a topic."""
        return self._origin.topic or None

    def partition(self) -> int | None:
        """The partition's number; None if it is unknown."""
        return self._origin.partition if self._origin.partition >= 0 else None

    def offset(self) -> int | None:
        """The offset in the partition; None if the broker assigned none (`acks=0`, a failed delivery)."""
        return self._record[0] if self._record[0] >= 0 else None

    def key(self) -> Any:
        """The key as bytes, or None; the deserialized key from a `DeserializingConsumer`."""
        return self._record[2]

    def value(self) -> Any:
        """The value as bytes, or None; the deserialized value from a `DeserializingConsumer`. For an error event, the
        text of the error."""
        return self._record[3]

    def deserialized_key(self) -> Any:
        """Return the same object as `key()`."""
        return self._record[2]

    def deserialized_value(self) -> Any:
        """Return the same object as `value()`."""
        return self._record[3]

    def headers(self) -> HeaderList | None:
        """Pairs of a name and bytes (or None) in order; None without headers."""
        return list(self._record[4]) if self._record[4] else None

    def timestamp(self) -> tuple[int, int]:
        """Type (`TIMESTAMP_CREATE_TIME` and so on) and milliseconds since 1970 in UTC."""
        timestamp = self._record[1]
        return (self._origin.timestamp_type if timestamp >= 0 else TIMESTAMP_NOT_AVAILABLE), timestamp

    def error(self) -> KafkaError | None:
        """None for a record. Otherwise this message is an error event, or the report of a failed delivery."""
        return self._error

    def leader_epoch(self) -> int | None:
        """The epoch of the leader that wrote the record's batch; None if it is unknown."""
        return self._origin.leader_epoch

    def latency(self) -> float | None:
        """Seconds from `produce()` to the report; None for a consumed message."""
        return self._origin.latency_s

    def delivery_count(self) -> int | None:
        """Always None: share groups, which count deliveries, are not supported."""
        return None

    def set_topic(self, topic: str) -> None:
        """Replace the topic's name in this message only."""
        track(self)
        self._origin = replace(self._origin, topic=topic)

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error."""
        track(self)
        self._error = error

    def set_key(self, key: object) -> None:
        """Replace the key."""
        self._replace(2, key)

    def set_value(self, value: object) -> None:
        """Replace the value."""
        self._replace(3, value)

    def set_headers(self, headers: HeaderList | None) -> None:
        """Replace the headers."""
        self._replace(4, tuple(headers or ()))

    def _replace(self, index: int, value: object) -> None:
        fields = list(self._record)
        fields[index] = value
        track(self)
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


def _checked_timestamp(given: tuple[int, int] | None) -> tuple[int, int]:
    if given is None:
        return TIMESTAMP_NOT_AVAILABLE, 0
    if not (isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, int) for part in given)):
        raise TypeError(f"expected timestamp as a pair of type and milliseconds, got {given!r}")
    return given


def message_of(origin: Origin, record: RecordTuple, error: KafkaError | None = None) -> Message:
    """Create a message from a record without copying it, fast enough for several hundred thousand per second."""
    message = _new_message(Message)
    message._origin = origin
    message._record = record
    message._error = error
    return message


_new_message = Message.__new__


def by_partition(messages: Iterable[Message]) -> list[tuple[Partition, list[Message]]]:
    """Cuts consumed messages into runs of the same partition, in their order. None of them is an error event."""
    runs: list[tuple[Partition, list[Message]]] = []
    # Messages of one batch share their origin, so that its comparison costs next to nothing.
    for origin, run in groupby(messages, attrgetter("_origin")):
        at = (origin.topic, origin.partition)
        if runs and runs[-1][0] == at:
            runs[-1][1].extend(run)
        else:
            runs.append((at, list(run)))
    return runs


def error_message(
    error: KafkaError, topic: str = "", partition: int = -1, offset: int = OFFSET_INVALID
) -> Message:
    """Create an event of `poll()` that carries an error instead of a record."""
    return message_of(Origin(topic, partition), (offset, -1, None, error.str().encode(), ()), error)


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """A result of ListOffsets; offset -1 means that there is none. `timestamp` is in milliseconds, -1 if unknown."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A consumer's identity in its group, with which a transactional producer commits offsets for it."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Uuid:
    """A 128-bit id; its string has Kafka's form, URL-safe base64 without padding."""

    most_significant_bits: int
    least_significant_bits: int

    @classmethod
    def of(cls, value: uuid.UUID) -> Uuid:
        """Convert a `uuid.UUID`; both halves become signed 64-bit numbers, as in Java."""
        return cls(*struct.unpack(">qq", value.bytes))

    @property
    def bytes(self) -> bytes:
        """The 16 bytes of the id."""
        mask = (1 << 64) - 1
        return struct.pack(">QQ", self.most_significant_bits & mask, self.least_significant_bits & mask)

    def get_most_significant_bits(self) -> int:
        """The upper half, as a signed number."""
        return self.most_significant_bits

    def get_least_significant_bits(self) -> int:
        """The lower half, as a signed number."""
        return self.least_significant_bits

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.bytes).decode().rstrip("=")

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class ThrottleEvent:
    """The argument of `throttle_cb`: a broker delayed a request of this client because of a quota.

    `throttle_time` is in seconds, `broker_name` is `host:port`.
    """

    broker_name: str
    broker_id: int
    throttle_time: float

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.broker_id} throttled for {int(self.throttle_time * 1000)} ms"


@dataclass(slots=True)
class BrokerMetadata:
    """A broker: its id and its address for clients."""

    id: int = -1
    host: str = ""
    port: int = -1
    rack: str | None = None

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


@dataclass(slots=True)
class PartitionMetadata:
    """A partition: node ids of its leader (-1: none), its replicas and its in-sync replicas."""

    id: int = -1
    leader: int = -1
    replicas: list[int] = field(default_factory=list)
    isrs: list[int] = field(default_factory=list)
    error: KafkaError | None = None
    leader_epoch: int = -1

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"PartitionMetadata({self.id}{error})"

    def __str__(self) -> str:
        return str(self.id)


@dataclass(slots=True)
class TopicMetadata:
    """A topic with its partitions by number, or with the broker's error."""

    topic: str = ""
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None
    topic_id: uuid.UUID | None = None
    is_internal: bool = False

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{error})"

    def __str__(self) -> str:
        return self.topic


@dataclass(slots=True)
class ClusterMetadata:
    """Brokers by id and topics by name. `orig_broker_id` and `orig_broker_name` (`host:port/id`) name the broker that
    answered."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    orig_broker_id: int = -1
    orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)
