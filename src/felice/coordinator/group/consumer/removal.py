"""Removes members of a consumer group: members that leave, and members whose time limit has passed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from felice.coordinator.group.classic.rebalance import prepare_rebalance
from felice.coordinator.group.consumer.answers import error_response
from felice.coordinator.group.consumer.checks import check_instance, check_member
from felice.coordinator.group.consumer.conversion import downgraded, must_downgrade
from felice.coordinator.group.consumer.group import STATIC_LEAVE_EPOCH, ConsumerGroup
from felice.coordinator.group.consumer.tombstones import removal_of, tombstones
from felice.coordinator.group.consumer.values import CurrentRecord
from felice.coordinator.group.modern.reconciliation import NOTHING_ASSIGNED
from felice.coordinator.group.turn import Caller, Turn
from felice.coordinator.shard import NEVER_MS, ReplyAfterWrite
from felice.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

RETRY_MS = 5_000
"""The pause before the removal of a member is repeated, if its records could not be written."""
MAX_REMOVED_AT_ONCE = 200
"""Members that one event removes; the others follow in the next turn of the event loop."""


def leave(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller[ConsumerGroupHeartbeatResponse],
    turn: Turn,
) -> None:
    """A member leaves for good (epoch -1), or a static member leaves and will return (epoch -2)."""
    member_id = request.member_id
    check_instance(group, request.instance_id, member_id)
    check_member(group, member_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        # Its session continues, and its end removes the member. Partitions that it had to give up are free now.
        current = replace(group.current(member_id), epoch=STATIC_LEAVE_EPOCH, pending=NOTHING_ASSIGNED)
        turn.outcome.records.append(CurrentRecord(group.group_id, member_id, current))
        group.revocations.pop(member_id, None)
    else:
        remove(group, [member_id], turn)
    response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
    turn.outcome.after_write.append(ReplyAfterWrite(caller.waiter, response, error_response))


def remove(group: ConsumerGroup, leaving: Collection[str], turn: Turn) -> None:
    """Removes members. If only members of the classic protocol remain, the group becomes a classic group."""
    if not must_downgrade(group, leaving, turn):
        turn.outcome.records += removal_of(group, leaving)
        return
    made = turn.made[group.group_id] = downgraded(group, leaving, {}, turn)
    turn.outcome.records += [*tombstones(group), made.record()]
    prepare_rebalance(made, turn)


# Deadlines


def on_time(group: ConsumerGroup, turn: Turn) -> None:
    """Removes the members whose session, deadline for a request, or deadline for giving up partitions has passed."""
    _forget_absent(group)
    now_ms = turn.now.steady_ms
    deadlines = [
        *group.sessions.items(),
        *group.awaited.items(),
        *((member_id, revocation.deadline_ms) for member_id, revocation in group.revocations.items()),
    ]
    late = list(dict.fromkeys(member_id for member_id, deadline_ms in deadlines if deadline_ms <= now_ms))
    removed = late[:MAX_REMOVED_AT_ONCE]
    if removed:
        remove(group, removed, turn)
    for member_id in removed:
        _try_again(group, member_id, now_ms + RETRY_MS)
    group.wake_at_ms = NEVER_MS
    group.wake_at(
        min(
            *group.sessions.values(),
            *group.awaited.values(),
            *(revocation.deadline_ms for revocation in group.revocations.values()),
            NEVER_MS,
            NEVER_MS,
        )
    )


def _try_again(group: ConsumerGroup, member_id: str, deadline_ms: int) -> None:
    """Sets new deadlines, because the write may fail. If it succeeds, `_forget_absent` drops them."""
    for deadlines in (group.sessions, group.awaited):
        if deadlines.get(member_id, deadline_ms) < deadline_ms:
            deadlines[member_id] = deadline_ms
    if member_id in group.revocations:
        group.revocations[member_id].deadline_ms = deadline_ms


def _forget_absent(group: ConsumerGroup) -> None:
    """Drops the deadlines of removed members, and of revocations whose member has another epoch now."""
    for deadlines in (group.sessions, group.awaited):
        for member_id in [known for known in deadlines if known not in group.members]:
            del deadlines[member_id]
    for member_id, revocation in list(group.revocations.items()):
        if member_id not in group.members or revocation.epoch != group.current(member_id).epoch:
            del group.revocations[member_id]
