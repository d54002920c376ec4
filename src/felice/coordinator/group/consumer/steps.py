"""What one event of a consumer group does with one member: subscription, epoch, target, and the member's partitions.

Keeps true:  an event reads the group and computes records; the group changes when the records are replayed. `Step` has
             the decisions of one event that its later functions need: the event never reads its own records.
Order of the records: the member (5), the group's epoch (3), the target (7, 6), the member's partitions (8).
"""

from __future__ import annotations

from dataclasses import field, replace
from uuid import UUID

from felice.coordinator.group.consumer.expressions import May
from felice.coordinator.group.consumer.group import (
    JOIN_EPOCH,
    ConsumerGroup,
    Revocation,
)
from felice.coordinator.group.consumer.resolution import resolution_for
from felice.coordinator.group.consumer.target import (
    AssignGroup,
    assignment_for,
    is_due,
    target_after,
    target_records,
)
from felice.coordinator.group.consumer.tombstones import tombstones_of_member, unused_expression
from felice.coordinator.group.consumer.values import (
    ConsumerRecord,
    CurrentRecord,
    Epoch,
    EpochRecord,
    MemberRecord,
    Subscription,
    TargetRecord,
)
from felice.coordinator.group.modern.reconciliation import (
    NOTHING,
    Current,
    MemberState,
    Partitions,
    reconcile,
)
from felice.coordinator.group.turn import Turn
from felice.dataclass import dataclass


@dataclass(slots=True)
class Step:
    """What this event has decided so far about the member and the group."""

    member_id: str
    subscription: Subscription
    current: Current
    epoch: Epoch
    records: list[ConsumerRecord] = field(default_factory=list)
    is_new: bool = False
    is_subscription_changed: bool = False
    # The static member that this member replaces, and the target of the replaced member.
    replaced: str | None = None
    inherited: Partitions = field(default_factory=lambda: NOTHING)


# The member


def new_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Step:
    """A member that joins."""
    return Step(member_id, Subscription(instance_id=instance_id), Current(), group.epoch, is_new=True)


def known_member(group: ConsumerGroup, member_id: str) -> Step:
    """A member of the group."""
    return Step(member_id, group.members[member_id], group.current(member_id), group.epoch)


def take_over(group: ConsumerGroup, member_id: str, holder: str) -> Step:
    """A static member returns with a new member id, and takes over the subscription and partitions of its instance."""
    old, current, target = group.members[holder], group.current(holder), group.target(holder)
    inherited = replace(current, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    new = replace(old, classic=None)
    records: list[ConsumerRecord] = [
        *tombstones_of_member(group, holder),
        MemberRecord(group.group_id, member_id, new),
        TargetRecord(group.group_id, member_id, target),
        CurrentRecord(group.group_id, member_id, inherited),
    ]
    return Step(member_id, new, inherited, group.epoch, records, replaced=holder, inherited=target)


# The group


def subscribe(group: ConsumerGroup, after: Subscription, step: Step) -> None:
    """Replaces the member's subscription. If its topics change, raises the group's epoch."""
    before, step.subscription = step.subscription, after
    if step.is_new or after != before:
        step.records.append(MemberRecord(group.group_id, step.member_id, after))
    is_expression_changed = after.expression != before.expression
    step.is_subscription_changed = step.is_new or after.topics != before.topics or is_expression_changed
    if is_expression_changed and before.expression:
        step.records += unused_expression(group, before.expression)
    is_resolved = not after.expression or after.expression in group.expressions
    if step.is_new or after.topics != before.topics or (is_expression_changed and is_resolved):
        step.epoch = replace(step.epoch, epoch=step.epoch.epoch + 1)


def follow_topics(group: ConsumerGroup, step: Step, turn: Turn) -> None:
    """Raises the group's epoch if its subscribed topics changed in the cluster. Writes the epoch if it changed."""
    before = group.members.get(step.replaced or step.member_id)
    is_changed = step.is_subscription_changed and group.changes_topics(before, step.subscription)
    if is_changed or group.seen_topics != turn.topics.version:
        found = turn.topics.hash_of(group.subscribed_topics(before, step.subscription))
        if found != step.epoch.metadata_hash:
            raised = step.epoch.epoch + (step.epoch.epoch == group.epoch.epoch)
            step.epoch = Epoch(raised, found)
        elif not is_changed:
            # Only without a change: its record may be refused, and the next heartbeat must then see the change.
            group.seen_topics = turn.topics.version
    if step.epoch != group.epoch:
        step.records.append(EpochRecord(group.group_id, step.epoch))


def resolve(group: ConsumerGroup, step: Step, may_describe: May | None, turn: Turn) -> None:
    """Begins to match the group's regular expressions with the topics, if that is due."""
    expression = step.subscription.expression
    work = resolution_for(group, expression, may_describe, turn)
    if work is not None:
        group.is_resolving = True
        turn.outcome.work.append(work)


# Target assignment and reconciliation


def assign(group: ConsumerGroup, step: Step, turn: Turn) -> tuple[int, Partitions]:
    """Runs the assignor if it is due. Returns the target epoch, and the member's target assignment."""
    known = step.inherited if step.replaced is not None else group.target(step.member_id)
    if not is_due(
        group, step.epoch.epoch, turn.settings.times_of(group.group_id).assignment_interval_ms, turn.now
    ):
        return group.target_epoch.epoch, known
    members = {**group.members, step.member_id: step.subscription}
    if step.replaced is not None:
        del members[step.replaced]
    assignment = assignment_for(
        group,
        step.epoch.epoch,
        members,
        turn.topics,
        turn.settings.consumer_assignors,
        {step.member_id: step.inherited} if step.replaced is not None else {},
    )
    if assignment.is_large:
        group.is_assigning = True
        turn.outcome.work.append(AssignGroup(group, assignment))
        return group.target_epoch.epoch, known
    records = target_records(group, assignment, assignment.compute(), turn.now)
    step.records += records
    return target_after(records, group, step.member_id) or (group.target_epoch.epoch, known)


def reconcile_member(
    group: ConsumerGroup,
    owned: Partitions | None,
    step: Step,
    target_epoch: int,
    target: Partitions,
    turn: Turn,
) -> None:
    """Reconciles the member by one step. `owned` are the partitions that it reports, None if it reports nothing."""
    is_done = step.current.state is MemberState.STABLE and step.current.epoch == target_epoch
    if is_done and not (step.is_new or step.is_subscription_changed):
        return  # nearly every heartbeat
    wanted, names = group.topics_of(step.subscription), turn.topics.names
    concerned = {*step.current.assigned, *target}
    subscribed = frozenset(topic_id for topic_id in concerned if names.get(topic_id) in wanted)
    holder = step.replaced

    def is_taken(topic_id: UUID, partition: int) -> bool:
        has = group.holders.get((topic_id, partition))
        return has is not None and has not in (step.member_id, holder)

    after = reconcile(
        step.current, target_epoch, target, owned=owned, subscribed=subscribed, is_taken=is_taken
    )
    if after != step.current or step.is_new:
        step.records.append(CurrentRecord(group.group_id, step.member_id, after))
    step.current = after


def set_deadlines(
    group: ConsumerGroup, step: Step, before: Current, session_timeout_ms: int, turn: Turn
) -> None:
    """Restarts the member's session, and the time limit for revocations if the member must give up more partitions."""
    now_ms = turn.now.steady_ms
    group.start_session(step.member_id, now_ms + session_timeout_ms)
    if step.current.state is not MemberState.UNREVOKED_PARTITIONS:
        group.revocations.pop(step.member_id, None)
    elif step.current != before or step.member_id not in group.revocations:
        deadline_ms = now_ms + step.subscription.rebalance_timeout_ms
        group.revocations[step.member_id] = Revocation(step.current.epoch, deadline_ms)
        group.wake_at(deadline_ms)
