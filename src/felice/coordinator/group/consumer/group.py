"""A consumer group (KIP-848): a function of its records, and the deadlines of its members.

Keeps true:  only `replay` changes the durable state. It returns a function that undoes the change. An event reads the
             group, and keeps its decisions in a `steps.Step`.
             G6: `holders` has one member for each partition that a member has or must still give up.
             Each instance id belongs to at most one member.
Deadlines are in memory only: they start again when the log is loaded. The deadline of a removed member has no effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import Enum
from typing import TypeVar
from uuid import UUID

from felice.coordinator.group.alarms import Alarms
from felice.coordinator.group.consumer.values import (
    ConsumerRecord,
    CurrentRecord,
    Epoch,
    EpochRecord,
    ExpressionRecord,
    MemberRecord,
    MetadataRecord,
    ResolvedExpression,
    Subscription,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from felice.coordinator.group.modern.reconciliation import (
    NOTHING,
    Assigned,
    Current,
    MemberState,
    Partitions,
)
from felice.coordinator.shard import NEVER_MS, Undo, undo_nothing
from felice.dataclass import dataclass

V = TypeVar("V")

FIRST_EPOCH = 1
"""The epoch of a new group, and of its empty target. The first computed target has the next epoch."""
JOIN_EPOCH = 0
"""The epoch of a heartbeat that joins."""
LEAVE_EPOCH = -1
"""The epoch of a heartbeat that leaves."""
STATIC_LEAVE_EPOCH = -2
"""The epoch of a static member that has left and will return."""


class GroupState(Enum):
    """The values are the names that ConsumerGroupDescribe and ListGroups print."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment of the group's epoch is not computed yet."""
    RECONCILING = "Reconciling"
    """The current assignment of a member differs from its target assignment."""
    STABLE = "Stable"


@dataclass(slots=True)
class Revocation:
    """The time limit (steady) of a member that must give up partitions, and its epoch when it was asked to."""

    epoch: int
    deadline_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """One consumer group. The fields below "Not in the log" are in memory only."""

    group_id: str
    epoch: Epoch = field(default_factory=lambda: Epoch(FIRST_EPOCH))
    target_epoch: TargetEpoch = field(default_factory=lambda: TargetEpoch(FIRST_EPOCH))
    members: dict[str, Subscription] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    currents: dict[str, Current] = field(default_factory=dict)
    expressions: dict[str, ResolvedExpression] = field(default_factory=dict)
    # Derived from the fields above.
    static_members: dict[str, str] = field(default_factory=dict)
    holders: dict[tuple[UUID, int], str] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)
    expression_users: Counter[str] = field(default_factory=Counter)
    classic_count: int = 0
    # Not in the log.
    alarms: Alarms = field(default_factory=Alarms, repr=False)
    sessions: dict[str, int] = field(default_factory=dict)
    revocations: dict[str, Revocation] = field(default_factory=dict)
    # Members of the classic protocol that must send a JoinGroup or a SyncGroup by a steady time.
    awaited: dict[str, int] = field(default_factory=dict)
    wake_at_ms: int = NEVER_MS
    # The version of the topics for which the metadata hash was computed last.
    seen_topics: int = -1
    is_assigning: bool = False
    is_resolving: bool = False
    # After a failed computation: the steady time before which no computation begins.
    retry_at_ms: int = 0
    # The steady time at which expressions were resolved last.
    resolved_ms: int | None = None
    # The version of the topics with which expressions were matched last.
    resolved_version: int = -1
    # Whether the shard has this group. The result of a computation may come after the group was removed.
    is_live: bool = False

    # The log

    def replay(self, record: ConsumerRecord) -> Undo:
        """Applies a record of this group, except the removal of the group; returns the function that undoes it."""
        match record:
            case EpochRecord(value=Epoch() as epoch):
                before = self.epoch
                self.epoch = epoch
                return lambda: setattr(self, "epoch", before)
            case MemberRecord():
                return self._set_member(record.member_id, record.value)
            case TargetEpochRecord():
                before_target = self.target_epoch
                self.target_epoch = record.value or TargetEpoch(FIRST_EPOCH)
                return lambda: setattr(self, "target_epoch", before_target)
            case TargetRecord():
                return _put(self.targets, record.member_id, record.value)
            case CurrentRecord():
                before_current = self.currents.get(record.member_id)
                self._set_current(record.member_id, record.value)
                return lambda: self._set_current(record.member_id, before_current)
            case ExpressionRecord():
                return _put(self.expressions, record.expression, record.value)
            case EpochRecord() | MetadataRecord():
                return undo_nothing
        raise AssertionError(f"not a record of a consumer group: {record}")

    def _set_member(self, member_id: str, value: Subscription | None) -> Undo:
        before = self.members.get(member_id)
        # A dictionary of members keeps the order in which they came; undoing need not restore it.
        before_holder = None
        if before is not None:
            self._count(before, -1)
            if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
                del self.static_members[before.instance_id]
        if value is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = value
            self._count(value, 1)
            if value.instance_id is not None:
                before_holder = self.static_members.get(value.instance_id)
                self.static_members[value.instance_id] = member_id

        def undo() -> None:
            self._set_member(member_id, before)
            if before_holder is not None and value is not None and value.instance_id is not None:
                self.static_members[value.instance_id] = before_holder

        return undo

    def _count(self, subscription: Subscription, sign: int) -> None:
        self.classic_count += sign * (subscription.classic is not None)
        _add_counts(self.names, subscription.topics, sign)
        if subscription.expression:
            _add_counts(self.expression_users, (subscription.expression,), sign)

    def _set_current(self, member_id: str, value: Current | None) -> None:
        before = self.currents.pop(member_id, None)
        if before is not None:
            for partition in _held(before):
                if self.holders.get(partition) == member_id:
                    del self.holders[partition]
        if value is not None:
            self.currents[member_id] = value
            for partition in _held(value):
                self.holders[partition] = member_id

    # Facts

    @property
    def state(self) -> GroupState:
        """The state as Kafka names it; looks at every member."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch.epoch > self.target_epoch.epoch:
            return GroupState.ASSIGNING
        for member_id in self.members:
            current = self.current(member_id)
            if current.state is not MemberState.STABLE or current.epoch != self.target_epoch.epoch:
                return GroupState.RECONCILING
        return GroupState.STABLE

    def current(self, member_id: str) -> Current:
        """The current assignment of a member; for a new member no partitions, and epoch 0."""
        return self.currents.get(member_id) or Current()

    def target(self, member_id: str) -> Partitions:
        """The target assignment of a member."""
        return self.targets.get(member_id, NOTHING)

    def topics_of(self, subscription: Subscription) -> frozenset[str]:
        """The topics to which a member subscribes: by name, and by the last result of its regular expression."""
        resolved = self.expressions.get(subscription.expression) if subscription.expression else None
        if resolved is None:
            return subscription.topics
        # Members with one expression share one set, whose hash is computed once.
        return resolved.topics if not subscription.topics else subscription.topics | resolved.topics

    def subscribed_topics(
        self, before: Subscription | None = None, after: Subscription | None = None
    ) -> set[str]:
        """The topics to which the members subscribe when the subscription `after` replaces `before`."""
        names, users = self.names, self.expression_users
        if before != after:
            names, users = names.copy(), users.copy()
            for subscription, sign in ((before, -1), (after, 1)):
                if subscription is not None:
                    _add_counts(names, subscription.topics, sign)
                    if subscription.expression:
                        _add_counts(users, (subscription.expression,), sign)
        topics = set(names)
        for expression in users:
            resolved = self.expressions.get(expression)
            if resolved is not None:
                topics |= resolved.topics
        return topics

    def changes_topics(self, before: Subscription | None, after: Subscription) -> bool:
        """Whether the topics to which the members subscribe may change when `after` replaces `before`."""
        if after.expression and after.expression not in self.expression_users:
            return True
        if not after.topics <= self.names.keys():
            return True
        if before is None:
            return False
        is_last = before.expression and self.expression_users[before.expression] == 1
        if is_last and before.expression != after.expression:
            return True
        return any(self.names[name] == 1 for name in before.topics - after.topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, by name or by a regular expression."""
        return topic in self.names or any(
            topic in self.expressions[expression].topics
            for expression in self.expression_users
            if expression in self.expressions
        )

    # Offsets, as `offsets.commits.Group`

    def may_read(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets do not expire."""
        return self.is_subscribed_to(topic)

    @property
    def empty_since_ms(self) -> int | None:
        """None: offsets of a consumer group expire by their commit time, not by the time since the group is empty."""
        return None

    # Deadlines

    def wake_at(self, deadline_ms: int) -> None:
        """Ensures that `on_time` runs for this group at `deadline_ms` or earlier."""
        if deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms
            self.alarms.set(self.group_id, deadline_ms)

    def start_session(self, member_id: str, deadline_ms: int) -> None:
        """Restarts the member's session, which ends at `deadline_ms` if no heartbeat comes."""
        self.sessions[member_id] = deadline_ms
        self.wake_at(deadline_ms)

    def start_waiting(self, member_id: str, deadline_ms: int, *, is_new: bool = True) -> None:
        """Requires a request of a classic member before `deadline_ms`. Without `is_new`, an existing deadline stays."""
        if is_new or member_id not in self.awaited:
            self.awaited[member_id] = deadline_ms
            self.wake_at(deadline_ms)

    def stop_waiting(self, member_id: str) -> None:
        """Removes the deadline of `start_waiting`, because the request has arrived."""
        self.awaited.pop(member_id, None)


def _held(current: Current) -> Iterator[tuple[UUID, int]]:
    yield from _pairs(current.assigned)
    yield from _pairs(current.pending)


def _pairs(assigned: Assigned) -> Iterator[tuple[UUID, int]]:
    for topic_id, partitions in assigned.items():
        for partition in partitions:
            yield topic_id, partition


def _add_counts(counts: Counter[str], keys: Iterable[str], sign: int) -> None:
    for key in keys:
        count = counts[key] + sign
        if count:
            counts[key] = count
        else:
            del counts[key]


def _put(values: dict[str, V], key: str, value: V | None) -> Undo:
    """Sets or removes a value; returns the function that undoes it."""
    before = values.pop(key, None)
    if value is not None:
        values[key] = value

    def undo() -> None:
        _put(values, key, before)

    return undo
