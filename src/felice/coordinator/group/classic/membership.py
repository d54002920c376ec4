"""Heartbeat and LeaveGroup."""

from __future__ import annotations

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.rebalance import (
    after_removal,
    drop_member,
    start_session,
)
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.turn import Turn
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, turn: Turn) -> ErrorCode:
    """Prolongs the session, also while a rebalance waits for this member: it is alive, but slow to rejoin."""
    error = group.check_generation(request.member_id, request.group_instance_id, request.generation_id)
    if error != ErrorCode.NONE:
        return error
    start_session(group, group.members[request.member_id], turn)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(group: ClassicGroup, leavers: list[MemberIdentity], turn: Turn) -> LeaveGroupResponse:
    """Each member that leaves has its own error; the rest of the group rebalances once, for all of them."""
    if group.state is GroupState.DEAD:
        return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    responses = [
        MemberResponse(
            member_id=leaver.member_id,
            group_instance_id=leaver.group_instance_id,
            error_code=_leave_one(group, leaver, turn),
        )
        for leaver in leavers
    ]
    # Also after a member left that had only received its id, as in Kafka.
    if any(response.error_code == ErrorCode.NONE for response in responses):
        after_removal(group, turn)
    return LeaveGroupResponse(members=responses)


def leave_unknown(leavers: list[MemberIdentity]) -> LeaveGroupResponse:
    """The answer for a group that does not exist."""
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=leaver.member_id,
                group_instance_id=leaver.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for leaver in leavers
        ]
    )


def _leave_one(group: ClassicGroup, leaver: MemberIdentity, turn: Turn) -> ErrorCode:
    member_id, instance_id = leaver.member_id, leaver.group_instance_id
    if not member_id:
        # An administrator removes a static member by its instance id alone.
        member_id = group.static_members.get(instance_id or "", "")
    elif member_id in group.pending_joins:
        group.remove(member_id)
        return ErrorCode.NONE
    error = group.check_member(member_id, instance_id)
    if error == ErrorCode.NONE:
        drop_member(group, group.members[member_id], turn)
    return error
