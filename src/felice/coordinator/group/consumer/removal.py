"""Members that leave a consumer group, or are fenced: by their own request, or because a time limit has passed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from felice.coordinator.group.classic.rebalance import prepare_rebalance
from felice.coordinator.group.consumer.checks import check_instance, check_member
from felice.coordinator.group.consumer.conversion import downgraded, must_downgrade
from felice.coordinator.group.consumer.group import STATIC_LEAVE_EPOCH, ConsumerGroup
from felice.coordinator.group.consumer.tombstones import removal_of, tombstones
from felice.coordinator.group.consumer.values import CurrentRecord
from felice.coordinator.group.turn import Caller, Turn
from felice.coordinator.shard import NEVER_MS, ReplyAfterWrite
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

RETRY_MS = 5_000
"""How soon a member is removed again whose removal could not be written."""


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
        # Its session goes on: the member is removed if it does not return.
        current = replace(group.current(member_id), epoch=STATIC_LEAVE_EPOCH)
        turn.outcome.records.append(CurrentRecord(group.group_id, member_id, current))
        group.revocations.pop(member_id, None)
    else:
        remove(group, [member_id], turn)
    response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
    turn.outcome.after_write.append(ReplyAfterWrite(caller.waiter, response, _failed))


def remove(group: ConsumerGroup, leaving: Collection[str], turn: Turn) -> None:
    """Removes members. If only members of the classic protocol are left, the group becomes a classic one."""
    if not must_downgrade(group, leaving, turn):
        turn.outcome.records += removal_of(group, leaving)
        return
    made = turn.made[group.group_id] = downgraded(group, leaving, {}, turn)
    turn.outcome.records += [*tombstones(group), made.record()]
    prepare_rebalance(made, turn)


# Deadlines


def on_time(group: ConsumerGroup, turn: Turn) -> None:
    """Removes the members whose session has ended, or that are late with a request or with giving up partitions."""
    _forget_absent(group)
    now_ms = turn.now.steady_ms
    late = [member_id for member_id, deadline_ms in group.sessions.items() if deadline_ms <= now_ms]
    late += [member_id for member_id, deadline_ms in group.awaited.items() if deadline_ms <= now_ms]
    late += [
        member_id for member_id, revocation in group.revocations.items() if revocation.deadline_ms <= now_ms
    ]
    if late:
        remove(group, list(dict.fromkeys(late)), turn)
    for member_id in late:
        group.sessions[member_id] = now_ms + RETRY_MS
        group.awaited.pop(member_id, None)
        group.revocations.pop(member_id, None)
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


def _forget_absent(group: ConsumerGroup) -> None:
    """Drops the deadlines of members that are gone, and of revocations that have ended with their epoch."""
    for deadlines in (group.sessions, group.awaited):
        for member_id in [known for known in deadlines if known not in group.members]:
            del deadlines[member_id]
    for member_id, revocation in list(group.revocations.items()):
        if member_id not in group.members or revocation.epoch != group.current(member_id).epoch:
            del group.revocations[member_id]


def _failed(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=error.message)
