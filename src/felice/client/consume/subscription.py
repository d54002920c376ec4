"""A consumer's subscription, assigned partitions and positions. Pure.

Keeps true:  Data fetched under an old `lease` of a partition is not delivered. A seek, a pause, and the removal of a
             partition end its lease; a revocation ends it as soon as the revocation starts. The position is the offset
             after the last record that the delivery took, and offsets beyond it are never committed.
             What was handed out is not forgotten: a seek keeps the offset for the next commit, and every removal
             returns the removed partitions, so that their offsets can be committed.
             Records that a call gathers count as handed out when the call returns them. If it does not, because an
             exception ends it, or their lease ends before, the position returns to the first of them.
While data is delivered, only the polling thread writes a position, and only the event loop writes a fetch offset. The
event loop sets both when a start offset is found, and for a seek.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

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


class Gathering:
    """One call that gathers records. They count as handed out when `closed` becomes True."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False


class Place(NamedTuple):
    """Where the application is in a partition. `consumed` is False until it has got a record there."""

    position: int | None
    consumed: bool
    leader_epoch: int


class Held(NamedTuple):
    """The place in a partition before a call began to gather its records."""

    gathering: Gathering
    place: Place


class AssignedPartition:
    """One assigned partition. Each new assignment creates a new object."""

    __slots__ = (
        "committed",
        "consumed",
        "eof_reported_at",
        "fetch_offset",
        "held",
        "high_watermark",
        "key",
        "leader_epoch",
        "lease",
        "left_at",
        "log_start_offset",
        "lost",
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
        # Offset and leader epoch that the application stored for the next commit.
        self.stored: tuple[int, int] | None = None
        self.stored_metadata = ""
        self.committed: int | None = None
        self.consumed = False
        # Offset and leader epoch where a seek left the partition, until the next record is handed out.
        self.left_at: tuple[int, int] | None = None
        self.held: Held | None = None
        self.paused = False
        self.withheld = False
        # Another member may own the partition already: nothing of it may be committed.
        self.lost = False
        self.lease = Lease()
        self.eof_reported_at = -1
        self.high_watermark = -1
        self.log_start_offset = -1
        self.leader_epoch = -1
        self.not_before = 0.0

    @property
    def watermarks(self) -> tuple[int, int]:
        """Log start offset and high watermark of the last fetch; -1 before the first."""
        return self.log_start_offset, self.high_watermark

    @property
    def fetchable(self) -> bool:
        """True if the start offset is known and the partition is neither paused nor being revoked."""
        return self.fetch_offset is not None and not self.paused and not self.withheld

    @property
    def place(self) -> Place:
        """Where the application is: after the last record that was handed out since the start or a seek."""
        # `held` last: the polling thread sets it before it moves the position.
        place = Place(self.position, self.consumed, self.leader_epoch)
        held = self.held
        return place if held is None or held.gathering.closed else held.place

    @property
    def read_to(self) -> tuple[int, int] | None:
        """Offset and leader epoch to commit for what was handed out, also before a seek; None if nothing was."""
        position, consumed, leader_epoch = self.place
        return (position, leader_epoch) if consumed and position is not None else self.left_at

    def hold(self, gathering: Gathering) -> None:
        """Remember the place before `gathering` takes records, unless it has taken some already."""
        if self.held is None or self.held.gathering is not gathering:
            self.held = Held(gathering, Place(self.position, self.consumed, self.leader_epoch))

    def give_back(self) -> None:
        """Return to the place before the records that are gathered and not handed out."""
        self.position, self.consumed, self.leader_epoch = self.place
        self.held = None

    def seek(self, offset: int) -> None:
        """Continue at an offset, or at a logical offset still to be looked up; fetched data becomes stale."""
        self.left_at = self.read_to
        self.held = None
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
        self.give_back()
        if self.fetch_offset is not None:
            self.fetch_offset = self.position


class Subscription:
    """Belongs to the consumer's event loop. Other threads may read: every update replaces a whole value.

    `resolves_patterns` is False if the broker resolves them: it has another syntax (RE2).
    """

    def __init__(self, *, resolves_patterns: bool = True) -> None:
        self._resolves_patterns = resolves_patterns
        self.topics: frozenset[str] = frozenset()
        self.expression: str | None = None
        self.pattern: Pattern | None = None
        self.assigned: dict[Partition, AssignedPartition] = {}

    @property
    def subscribed(self) -> bool:
        """True if there is a subscribed topic or pattern."""
        return bool(self.topics) or self.expression is not None

    def subscribe(self, names: Iterable[str]) -> None:
        """Subscribe to names and to patterns, which begin with ^."""
        plain = {name for name in names if not name.startswith("^")}
        patterns = [name for name in names if name.startswith("^")]
        joined = "|".join(f"(?:{text})" for text in patterns)
        expression = patterns[0] if len(patterns) == 1 else joined or None
        try:
            compiled = own_pattern(expression) if expression and self._resolves_patterns else None
        except PatternError as error:
            raise failure(KafkaError._INVALID_ARG, f"subscription pattern: {error}") from None
        self.topics, self.expression, self.pattern = frozenset(plain), expression, compiled

    def unsubscribe(self) -> None:
        """Drop all topics and patterns."""
        self.topics, self.expression, self.pattern = frozenset(), None, None

    def wanted_topics(self, existing: Iterable[str]) -> set[str]:
        """The subscribed names, and every existing topic that a pattern matches."""
        wanted = set(self.topics)
        if self.pattern is not None:
            wanted.update(name for name in existing if self.pattern.match(name))
        return wanted

    def assign(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Replace the assignment and return its old partitions; raises without any change if one is named twice."""
        fresh = _fresh(partitions)
        removed = list(self.assigned.values())
        for partition in removed:
            partition.drop_fetched()
        self.assigned = fresh
        return removed

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions; raises without any change if one is assigned already, or named twice."""
        fresh = _fresh(partitions)
        for topic, number in fresh.keys() & self.assigned.keys():
            raise failure(KafkaError._CONFLICT, f"{topic}-{number} is assigned already")
        self.assigned = {**self.assigned, **fresh}

    def incremental_unassign(
        self, partitions: Iterable[TopicPartition | Partition]
    ) -> list[AssignedPartition]:
        """Remove partitions and return them; raises without any change if one is not assigned."""
        keys = {tp.key if isinstance(tp, TopicPartition) else tp for tp in partitions}
        for key in keys:
            if key not in self.assigned:
                raise failure(KafkaError._INVALID_ARG, f"{key[0]}-{key[1]} is not assigned")
        removed = [self.assigned[key] for key in keys]
        for partition in removed:
            partition.drop_fetched()
        self.assigned = {key: value for key, value in self.assigned.items() if key not in keys}
        return removed

    def withhold(self, partitions: Iterable[Partition]) -> None:
        """Deliver nothing of these partitions until they are unassigned or `keep` is called."""
        for key in partitions:
            if key in self.assigned:
                self.assigned[key].withhold()

    def lose(self, partitions: Iterable[Partition]) -> None:
        """Commit nothing more of these partitions: another member may own them already."""
        for key in partitions:
            if key in self.assigned:
                self.assigned[key].lost = True

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

    def to_commit(
        self, *, auto_store: bool, partitions: Iterable[AssignedPartition] | None = None
    ) -> dict[Partition, tuple[int, int, str]]:
        """Offset, leader epoch and metadata of the partitions whose offset changed since the last commit.

        Without `partitions`, of all that are assigned.
        """
        moved: dict[Partition, tuple[int, int, str]] = {}
        for partition in self.assigned.values() if partitions is None else partitions:
            found = partition.read_to if auto_store else partition.stored
            if found is not None and found[0] != partition.committed and not partition.lost:
                moved[partition.key] = (*found, partition.stored_metadata)
        return moved

    def on_committed(self, offsets: Mapping[Partition, int]) -> None:
        """Note the committed offsets of the partitions still assigned."""
        for key, offset in offsets.items():
            partition = self.assigned.get(key)
            if partition is not None:
                partition.committed = offset


def _fresh(partitions: Iterable[TopicPartition]) -> dict[Partition, AssignedPartition]:
    fresh: dict[Partition, AssignedPartition] = {}
    for tp in partitions:
        if tp.key in fresh:
            raise failure(KafkaError._INVALID_ARG, f"{tp.topic}-{tp.partition} is named twice")
        fresh[tp.key] = AssignedPartition(tp.topic, tp.partition, _start(tp))
    return fresh


def _start(tp: TopicPartition) -> int:
    if tp.offset < 0 and tp.offset not in _LOGICAL and tp.offset >= OFFSET_TAIL_BASE:
        raise failure(KafkaError._INVALID_ARG, f"{tp.topic}-{tp.partition}: offset {tp.offset}")
    return tp.offset
