"""The target assignment of a consumer group: when the assignor runs, and with which input.

Keeps true:  the assignor runs at most once in an assignment interval (KIP-1263), and only for a group epoch without a
             target.
             A large group is assigned in a thread. Its target has the epoch that the group had when the assignor
             began, and members that have left meanwhile get none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from felice.coordinator.group.consumer.group import ConsumerGroup
from felice.coordinator.group.consumer.values import (
    ConsumerRecord,
    Subscription,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from felice.coordinator.group.modern.reconciliation import NOTHING, Partitions
from felice.coordinator.group.modern.topics import Topics
from felice.coordinator.group.records import Record
from felice.coordinator.shard import Instant, Outcome
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode

RETRY_MS = 5_000
"""The pause of a group after a computation that failed, or whose records were refused."""
MAX_INLINE_SIZE = 500
"""The maximum of members plus partitions for an assignment in the event loop. It takes some milliseconds."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member as input of the assignor: the names of its topics, and its last target assignment."""

    instance_id: str | None
    topics: frozenset[str]
    assigned: Partitions


@dataclass(frozen=True, slots=True)
class Assignment:
    """The input of the assignor; immutable, because a thread may read it."""

    epoch: int
    assignor: str
    members: Mapping[str, Member]
    topics: Topics
    is_large: bool
    """Whether it must be computed in a thread."""

    def compute(self) -> dict[str, Partitions]:
        """The partitions of each member."""
        from felice.coordinator.group.modern.assignors import ASSIGNORS, Subscriber

        distinct = {member.topics for member in self.members.values()}
        ids_of = {names: self.topics.ids(names) for names in distinct}
        counts = self.topics.counts(set[str]().union(*distinct))
        members = {
            member_id: Subscriber(ids_of[member.topics], member.assigned, member.instance_id)
            for member_id, member in self.members.items()
        }
        return ASSIGNORS[self.assignor](members, counts)


def is_due(group: ConsumerGroup, epoch: int, interval_ms: int, now: Instant) -> bool:
    """Whether the assignor may run for this epoch of the group now."""
    if epoch <= group.target_epoch.epoch or group.is_assigning or now.steady_ms < group.retry_at_ms:
        return False
    # The difference is negative if the clock of the last coordinator was ahead.
    return not 0 <= now.wall_ms - group.target_epoch.assigned_at_ms < interval_ms


def assignment_for(
    group: ConsumerGroup,
    epoch: int,
    members: Mapping[str, Subscription],
    topics: Topics,
    assignors: tuple[str, ...],
    inherited: Mapping[str, Partitions],
) -> Assignment:
    """`members` are the members after this event. `inherited` are targets that are not in the log yet."""
    seen = {
        member_id: Member(
            subscription.instance_id,
            group.topics_of(subscription),
            inherited.get(member_id) or group.target(member_id),
        )
        for member_id, subscription in members.items()
    }
    return Assignment(
        epoch, preferred_assignor(members, assignors), seen, topics, _is_large(group, seen, topics)
    )


def _is_large(group: ConsumerGroup, members: Mapping[str, Member], topics: Topics) -> bool:
    names = len(group.names) + sum(len(resolved.topics) for resolved in group.expressions.values())
    if len(members) + names > MAX_INLINE_SIZE:
        return True
    distinct = {member.topics for member in members.values()}
    partitions = sum(topics.counts(set[str]().union(*distinct)).values())
    return len(members) + partitions > MAX_INLINE_SIZE


def preferred_assignor(members: Mapping[str, Subscription], assignors: tuple[str, ...]) -> str:
    """The assignor that most members prefer; the broker's first if none prefers any."""
    votes = Counter(member.assignor for member in members.values() if member.assignor in assignors)
    if not votes:
        return assignors[0]
    most = max(votes.values())
    return next(name for name in assignors if votes[name] == most)


def target_records(
    group: ConsumerGroup, assignment: Assignment, computed: Mapping[str, Partitions], now: Instant
) -> list[ConsumerRecord]:
    """The records of a computed target: one for each member whose partitions change, and one for the epoch."""
    records: list[ConsumerRecord] = []
    for member_id, partitions in computed.items():
        if partitions != group.targets.get(member_id):
            records.append(TargetRecord(group.group_id, member_id, partitions))
    records.append(
        TargetEpochRecord(group.group_id, TargetEpoch(assignment.epoch, assigned_at_ms=now.wall_ms))
    )
    return records


@dataclass(slots=True)
class AssignGroup:
    """The assignor's run for a large group. Implements `coordinator.shard.Work`."""

    group: ConsumerGroup
    assignment: Assignment
    computed: Mapping[str, Partitions] | None = None

    @property
    def name(self) -> str:
        """For the log."""
        return f"assign {self.group.group_id}"

    def run(self) -> None:
        """Computes the target."""
        self.computed = self.assignment.compute()

    def on_done(self, now: Instant, fault: Exception | None) -> Outcome[Record]:
        """Writes the target, unless the group already has a target of this or a later epoch."""
        group = self.group
        group.is_assigning = False
        if fault is not None:
            group.retry_at_ms = now.steady_ms + RETRY_MS
        if not group.is_live or self.computed is None or self.assignment.epoch <= group.target_epoch.epoch:
            return Outcome()
        here = {
            holder: partitions
            for member_id, partitions in self.computed.items()
            if (holder := self._holder(member_id)) is not None
        }
        records = target_records(group, self.assignment, here, now)
        return Outcome(records=list(records), after_write=[TryLater(group)])

    def _holder(self, member_id: str) -> str | None:
        """The member, or the member that replaced its instance meanwhile; None if the member has left."""
        if member_id in self.group.members:
            return member_id
        instance_id = self.assignment.members[member_id].instance_id
        return None if instance_id is None else self.group.static_members.get(instance_id)


@dataclass(frozen=True, slots=True)
class TryLater:
    """Delays the group's next computation if the records of a result are refused, because they may be too large."""

    group: ConsumerGroup

    def on_committed(self, now: Instant) -> Outcome[Record]:
        """Nothing to do."""
        return Outcome()

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[Record]:
        """Sets the time of the next attempt."""
        self.group.retry_at_ms = now.steady_ms + RETRY_MS
        return Outcome()


def target_after(
    records: list[ConsumerRecord], group: ConsumerGroup, member_id: str
) -> tuple[int, Partitions] | None:
    """The target epoch in these records, and the member's target; None if the records have no target."""
    epoch, partitions = None, group.targets.get(member_id, NOTHING)
    for record in records:
        if isinstance(record, TargetEpochRecord) and record.value is not None:
            epoch = record.value.epoch
        elif isinstance(record, TargetRecord) and record.member_id == member_id and record.value is not None:
            partitions = record.value
    return None if epoch is None else (epoch, partitions)
