"""A consumer's subscription, assigned partitions and positions. Pure.

Keeps true:  Data fetched under an old `lease` of a partition is not delivered. A seek, a pause, and the removal of a
             partition end its lease; a revocation ends it as soon as the revocation starts. The position is the offset
             after the last delivered record, and offsets beyond it are never committed.
While data is delivered, only the polling thread writes a position, and only the event loop writes a fetch offset. The
event loop sets both when a start offset is found, and for a seek.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from felice.client.error import KafkaError, failure
from felice.client.model import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    OFFSET_TAIL_BASE,
    Partition,
    TopicPartition,
)
from felice.protocol.patterns import Pattern, PatternError, own_pattern

_LOGICAL = (OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, OFFSET_INVALID)


class Lease:
    """Ties fetched data to one state of a partition. The loop counts bytes and records in, the application out."""

    __slots__ = ("put_bytes", "put_records", "taken_bytes", "taken_records")

    def __init__(self) -> None:
        self.put_bytes = self.put_records = self.taken_bytes = self.taken_records = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes fetched and not yet delivered."""
        return self.put_bytes - self.taken_bytes

    @property
    def buffered_records(self) -> int:
        """Records fetched and not yet delivered."""
        return self.put_records - self.taken_records


class AssignedPartition:
    """One assigned partition. Each new assignment creates a new object."""

    __slots__ = (
        "committed",
        "consumed",
        "eof_reported_at",
        "fetch_offset",
        "high_watermark",
        "key",
        "leader_epoch",
        "lease",
        "log_start_offset",
        "not_before",
        "partition",
        "paused",
        "position",
        "start",
        "stored",
        "stored_metadata",
        "topic",
        "withheld",
    )

    def __init__(self, topic: str, partition: int, start: int = OFFSET_INVALID) -> None:
        self.topic = topic
        self.partition = partition
        self.key: Partition = (topic, partition)
        # Where reading starts: an offset, or a logical offset (beginning, end, stored) still to be looked up.
        self.start = start
        self.fetch_offset: int | None = start if start >= 0 else None
        self.position: int | None = start if start >= 0 else None
        self.stored: int | None = None
        self.stored_metadata = ""
        self.committed: int | None = None
        self.consumed = False
        self.paused = False
        self.withheld = False
        self.lease = Lease()
        self.eof_reported_at = -1
        self.high_watermark = -1
        self.log_start_offset = -1
        self.leader_epoch = -1
        self.not_before = 0.0

    @property
    def fetchable(self) -> bool:
        """True if the start offset is known and the partition is neither paused nor being revoked."""
        return self.fetch_offset is not None and not self.paused and not self.withheld

    def seek(self, offset: int) -> None:
        """Continue at an offset, or at a logical offset still to be looked up; fetched data becomes stale."""
        self.lease = Lease()
        self.start = offset
        self.consumed = False
        self.eof_reported_at = -1
        self._begin_at(offset if offset >= 0 else None)

    def begin_at(self, offset: int) -> None:
        """Set the start offset that a lookup found."""
        self.start = offset
        self._begin_at(offset)

    def _begin_at(self, offset: int | None) -> None:
        self.fetch_offset = self.position = offset

    def pause(self) -> None:
        """Stop fetching. Data fetched but not delivered is fetched again after `resume`."""
        if not self.paused:
            self.paused = True
            self.drop_fetched()

    def resume(self) -> None:
        """Allow fetching again."""
        self.paused = False

    def withhold(self) -> None:
        """Stop delivery at the start of a revocation: undelivered records belong to the next owner."""
        self.withheld = True
        self.drop_fetched()

    def drop_fetched(self) -> None:
        """Make fetched data stale; fetching continues at the position."""
        self.lease = Lease()
        if self.fetch_offset is not None:
            self.fetch_offset = self.position


class Subscription:
    """Belongs to the consumer's event loop. Other threads may read: every update replaces a whole value."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: Pattern | None = None
        self.assigned: dict[Partition, AssignedPartition] = {}

    @property
    def subscribed(self) -> bool:
        """True if there is a subscribed topic or pattern."""
        return bool(self.topics) or self.pattern is not None

    def subscribe(self, names: Iterable[str]) -> None:
        """Subscribe to names and to patterns, which begin with ^."""
        plain = {name for name in names if not name.startswith("^")}
        patterns = [name for name in names if name.startswith("^")]
        try:
            self.pattern = own_pattern("|".join(f"(?:{text})" for text in patterns)) if patterns else None
        except PatternError as error:
            raise failure(KafkaError._INVALID_ARG, f"subscription pattern: {error}") from None
        self.topics = frozenset(plain)

    def unsubscribe(self) -> None:
        """Drop all topics and patterns."""
        self.topics, self.pattern = frozenset(), None

    def wanted_topics(self, existing: Iterable[str]) -> set[str]:
        """The subscribed names, and every existing topic that a pattern matches."""
        wanted = set(self.topics)
        if self.pattern is not None:
            wanted.update(name for name in existing if self.pattern.match(name))
        return wanted

    def assign(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Replace the assignment and return the new partitions. A partition assigned without an offset is kept."""
        before = self.assigned
        after: dict[Partition, AssignedPartition] = {}
        for tp in partitions:
            kept = before.get(tp.key)
            if kept is not None and tp.offset == OFFSET_INVALID:
                after[tp.key] = kept
            else:
                after[tp.key] = AssignedPartition(tp.topic, tp.partition, _start(tp))
        for key, partition in before.items():
            if after.get(key) is not partition:
                partition.drop_fetched()
        self.assigned = after
        return [partition for key, partition in after.items() if before.get(key) is not partition]

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions; raises without any change if one is assigned already."""
        added = list(partitions)
        for tp in added:
            if tp.key in self.assigned:
                raise failure(KafkaError._CONFLICT, f"{tp.topic}-{tp.partition} is assigned already")
        fresh = {tp.key: AssignedPartition(tp.topic, tp.partition, _start(tp)) for tp in added}
        self.assigned = {**self.assigned, **fresh}

    def incremental_unassign(self, partitions: Iterable[TopicPartition | Partition]) -> None:
        """Remove partitions; raises without any change if one is not assigned."""
        keys = {tp.key if isinstance(tp, TopicPartition) else tp for tp in partitions}
        for key in keys:
            if key not in self.assigned:
                raise failure(KafkaError._INVALID_ARG, f"{key[0]}-{key[1]} is not assigned")
        for key in keys:
            self.assigned[key].drop_fetched()
        self.assigned = {key: value for key, value in self.assigned.items() if key not in keys}

    def withhold(self, partitions: Iterable[Partition]) -> None:
        """Deliver nothing of these partitions until they are unassigned or `keep` is called."""
        for key in partitions:
            if key in self.assigned:
                self.assigned[key].withhold()

    def keep(self, partitions: Iterable[Partition]) -> None:
        """Resume delivery of those that are still assigned, at their positions."""
        for key in partitions:
            if key in self.assigned:
                self.assigned[key].withheld = False

    def of(self, topic: str, partition: int) -> AssignedPartition:
        """Return the assigned partition; raises if it is not assigned."""
        found = self.assigned.get((topic, partition))
        if found is None:
            raise failure(KafkaError._STATE, f"{topic}-{partition} is not assigned to this consumer")
        return found

    def to_commit(self, *, auto_store: bool) -> dict[Partition, tuple[int, int, str]]:
        """Offset, leader epoch and metadata of the partitions whose offset changed since the last commit."""
        moved: dict[Partition, tuple[int, int, str]] = {}
        for key, partition in self.assigned.items():
            offset = partition.stored
            if auto_store and partition.consumed and partition.position is not None:
                offset = partition.position
            if offset is not None and offset != partition.committed:
                moved[key] = (offset, partition.leader_epoch, partition.stored_metadata)
        return moved

    def on_committed(self, offsets: Mapping[Partition, int]) -> None:
        """Note the committed offsets of the partitions still assigned."""
        for key, offset in offsets.items():
            partition = self.assigned.get(key)
            if partition is not None:
                partition.committed = offset


def _start(tp: TopicPartition) -> int:
    if tp.offset < 0 and tp.offset not in _LOGICAL and tp.offset >= OFFSET_TAIL_BASE:
        raise failure(KafkaError._INVALID_ARG, f"{tp.topic}-{tp.partition}: offset {tp.offset}")
    return tp.offset
