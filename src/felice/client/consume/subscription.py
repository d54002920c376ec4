"""What a consumer wants and what it has: subscription, assigned partitions, positions. Pure.

Keeps true:  data fetched under an older `lease` of a partition is not delivered: seeking, pausing and losing a
             partition end the lease; giving it up does so from the moment that begins. The position is the offset
             after the last record delivered, and what may be committed never lies beyond it.
Positions are written by the thread that polls, fetch offsets by the loop; neither writes the other's.
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
    """Ties fetched data to the state of its partition. The loop counts what it put in, the application what it took."""

    __slots__ = ("put_bytes", "put_records", "taken_bytes", "taken_records")

    def __init__(self) -> None:
        self.put_bytes = self.put_records = self.taken_bytes = self.taken_records = 0

    @property
    def buffered_bytes(self) -> int:
        return self.put_bytes - self.taken_bytes

    @property
    def buffered_records(self) -> int:
        return self.put_records - self.taken_records


class AssignedPartition:
    """One partition while it is assigned; a new object each time it is."""

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
        # Where to begin: an offset, or one of the logical ones still to be looked up.
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
        return self.fetch_offset is not None and not self.paused and not self.withheld

    def seek(self, offset: int) -> None:
        """Go on from an offset, or from a logical one to be looked up; what was fetched is void."""
        self.lease = Lease()
        self.start = offset
        self.consumed = False
        self.eof_reported_at = -1
        self._begin_at(offset if offset >= 0 else None)

    def begin_at(self, offset: int) -> None:
        """The place to begin was looked up."""
        self.start = offset
        self._begin_at(offset)

    def _begin_at(self, offset: int | None) -> None:
        self.fetch_offset = self.position = offset

    def pause(self) -> None:
        """Stop; what was fetched and not delivered is fetched again after `resume`."""
        if not self.paused:
            self.paused = True
            self.drop_fetched()

    def resume(self) -> None:
        self.paused = False

    def withhold(self) -> None:
        """Being given up: what was fetched and not delivered is the next owner's."""
        self.withheld = True
        self.drop_fetched()

    def drop_fetched(self) -> None:
        self.lease = Lease()
        if self.fetch_offset is not None:
            self.fetch_offset = self.position


class Subscription:
    """Lives on the consumer's loop; reading from other threads sees whole values."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: Pattern | None = None
        self.assigned: dict[Partition, AssignedPartition] = {}

    @property
    def subscribed(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def subscribe(self, names: Iterable[str]) -> None:
        """Names, or patterns beginning with ^."""
        plain = {name for name in names if not name.startswith("^")}
        patterns = [name for name in names if name.startswith("^")]
        try:
            self.pattern = own_pattern("|".join(f"(?:{text})" for text in patterns)) if patterns else None
        except PatternError as error:
            raise failure(KafkaError._INVALID_ARG, f"subscription pattern: {error}") from None
        self.topics = frozenset(plain)

    def unsubscribe(self) -> None:
        self.topics, self.pattern = frozenset(), None

    def wanted_topics(self, existing: Iterable[str]) -> set[str]:
        """Names subscribed to, and every existing topic that a pattern matches."""
        wanted = set(self.topics)
        if self.pattern is not None:
            wanted.update(name for name in existing if self.pattern.match(name))
        return wanted

    def assign(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Replace the whole assignment; returns what is new. A partition kept at its place goes on undisturbed."""
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
        added = list(partitions)
        for tp in added:
            if tp.key in self.assigned:
                raise failure(KafkaError._CONFLICT, f"{tp.topic}-{tp.partition} is assigned already")
        fresh = {tp.key: AssignedPartition(tp.topic, tp.partition, _start(tp)) for tp in added}
        self.assigned = {**self.assigned, **fresh}

    def incremental_unassign(self, partitions: Iterable[TopicPartition | Partition]) -> None:
        keys = {tp.key if isinstance(tp, TopicPartition) else tp for tp in partitions}
        for key in keys:
            if key not in self.assigned:
                raise failure(KafkaError._INVALID_ARG, f"{key[0]}-{key[1]} is not assigned")
        for key in keys:
            self.assigned[key].drop_fetched()
        self.assigned = {key: value for key, value in self.assigned.items() if key not in keys}

    def withhold(self, partitions: Iterable[Partition]) -> None:
        """Nothing of these is delivered from now on, until they are unassigned, or `keep` ends it."""
        for key in partitions:
            if key in self.assigned:
                self.assigned[key].withhold()

    def keep(self, partitions: Iterable[Partition]) -> None:
        """Those of them that are still assigned go on where they were."""
        for key in partitions:
            if key in self.assigned:
                self.assigned[key].withheld = False

    def of(self, topic: str, partition: int) -> AssignedPartition:
        """The assigned partition, or an error that says it is not."""
        found = self.assigned.get((topic, partition))
        if found is None:
            raise failure(KafkaError._STATE, f"{topic}-{partition} is not assigned to this consumer")
        return found

    def to_commit(self, *, auto_store: bool) -> dict[Partition, tuple[int, int, str]]:
        """Offset, leader epoch and metadata of what has moved since it was last committed."""
        moved: dict[Partition, tuple[int, int, str]] = {}
        for key, partition in self.assigned.items():
            offset = partition.stored
            if auto_store and partition.consumed and partition.position is not None:
                offset = partition.position
            if offset is not None and offset != partition.committed:
                moved[key] = (offset, partition.leader_epoch, partition.stored_metadata)
        return moved

    def on_committed(self, offsets: Mapping[Partition, int]) -> None:
        for key, offset in offsets.items():
            partition = self.assigned.get(key)
            if partition is not None:
                partition.committed = offset


def _start(tp: TopicPartition) -> int:
    if tp.offset < 0 and tp.offset not in _LOGICAL and tp.offset >= OFFSET_TAIL_BASE:
        raise failure(KafkaError._INVALID_ARG, f"{tp.topic}-{tp.partition}: offset {tp.offset}")
    return tp.offset
