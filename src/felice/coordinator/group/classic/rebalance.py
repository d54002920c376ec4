"""The rebalance: from the first JoinGroup to the last SyncGroup, with all its deadlines.

Keeps true:  the generation grows by one each time the join phase ends, even without members.
             A parked JoinGroup is answered exactly once, even if its member is removed meanwhile.
             A group that waits always has a deadline at which it stops waiting.
The join phase ends when every member has rejoined, or at the rebalance timeout without the members that have not
(static members may stay). The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` instead,
again for each new member, up to the rebalance timeout. Then the same timeout applies to the SyncGroups.
"""

from __future__ import annotations

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.member import Member
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.turn import Turn
from felice.coordinator.shard import NEVER_MS, Reply, Sendable
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from felice.protocol.messages.sync_group import SyncGroupResponse

# Begin and end of the join phase


def prepare_or_complete(group: ClassicGroup, turn: Turn) -> None:
    """Begins a rebalance after a change, or checks whether the rebalance under way can end."""
    if group.can_rebalance:
        prepare_rebalance(group, turn)
    else:
        complete_if_all_joined(group, turn)


def prepare_rebalance(group: ClassicGroup, turn: Turn) -> None:
    """Begins the join phase: members must rejoin. The first rebalance of a group waits for more members (KIP-134)."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        propagate_error(group, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    group.pending_syncs.clear()
    group.sync_deadline_ms = NEVER_MS
    initial = group.state is GroupState.EMPTY
    group.transition(GroupState.PREPARING_REBALANCE, turn.now)
    if initial:
        group.new_member_joined = False
        delay_ms = turn.settings.initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        _set_join_deadline(group, delay_ms, turn)
    elif group.all_members_joined:
        complete_join(group, turn)
    else:
        _set_join_deadline(group, group.rebalance_timeout_ms, turn)


def complete_if_all_joined(group: ClassicGroup, turn: Turn) -> None:
    """Does not end the initial delay early: it waits for members that have not come yet."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.all_members_joined
    ):
        complete_join(group, turn)


def complete_join(group: ClassicGroup, turn: Turn) -> None:
    """Ends the join phase with the members that have joined."""
    group.join_deadline_ms = NEVER_MS
    late = [m.member_id for m in group.members.values() if m.joining is None and m.instance_id is None]
    for member_id in late:
        group.remove(member_id)
    if group.members and not group.elect_leader():
        # Only static members are left, and none has rejoined: their session timeouts will decide.
        _set_join_deadline(group, group.rebalance_timeout_ms, turn)
        return
    group.next_generation(turn.now)
    if group.state is GroupState.EMPTY:
        # If this write fails the old generation may come back after a restart; its members will time out.
        turn.outcome.records.append(group.record())
        return
    for member in group.members.values():
        if member.joining is None:
            continue  # a static member that is away: it stays until its session ends
        answer_join(group, member, joined_response(group, member.member_id), turn)
        start_session(group, member, turn)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    group.sync_deadline_ms = turn.now.steady_ms + group.rebalance_timeout_ms
    group.wake_at(group.sync_deadline_ms)


def _set_join_deadline(group: ClassicGroup, delay_ms: int, turn: Turn) -> None:
    group.join_deadline_ms = turn.now.steady_ms + delay_ms
    group.wake_at(group.join_deadline_ms)


# Answers


def joined_response(
    group: ClassicGroup, member_id: str, *, leader_id: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The JoinGroup response of this member for the current generation; the leader also gets the list of members.

    `leader_id` names another leader than the group's, which keeps the member that asks from assigning.
    """
    leader_id = group.leader_id if leader_id is None else leader_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=_members_for_leader(group) if leader_id == member_id else [],
    )


def _members_for_leader(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    protocol = group.protocol_name or ""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(protocol),
        )
        for member in group.members.values()
    ]


def join_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """A JoinGroup response that carries only an error."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def storing_error(error: ErrorCode) -> ErrorCode:
    """The error for members of a group that could not be written."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error == ErrorCode.MESSAGE_TOO_LARGE else error


def answer_join(group: ClassicGroup, member: Member, response: JoinGroupResponse, turn: Turn) -> None:
    """Answers the member's waiting JoinGroup, if there is one."""
    waiter = group.unpark_join(member)
    if waiter is not None:
        turn.outcome.reply(waiter, response)


def answer_sync(group: ClassicGroup, member: Member, error: ErrorCode, turn: Turn) -> None:
    """Answers the member's waiting SyncGroup, if there is one."""
    waiter, member.syncing = member.syncing, None
    if waiter is not None:
        turn.outcome.reply(waiter, synced_response(group, member, error))
        # Its session may have run out while the request was parked: start it again.
        start_session(group, member, turn)


def synced_response(
    group: ClassicGroup, member: Member, error: ErrorCode = ErrorCode.NONE
) -> SyncGroupResponse:
    """A SyncGroup response with the member's assignment, or with an error alone."""
    if error != ErrorCode.NONE:
        return SyncGroupResponse(error_code=error)
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def propagate_error(group: ClassicGroup, error: ErrorCode, turn: Turn) -> None:
    """Fails this generation: every request that waits for its assignment gets the error."""
    for member in group.members.values():
        member.assignment = b""
        answer_sync(group, member, error, turn)


# Sessions and removal


def start_session(group: ClassicGroup, member: Member, turn: Turn, timeout_ms: int | None = None) -> None:
    """Starts the member's session timeout again, from this event's time."""
    timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
    member.session_deadline_ms = turn.now.steady_ms + timeout_ms
    group.wake_at(member.session_deadline_ms)


def prolong_session(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    """Restarts the session of a member after a commit, because the commit shows that the member is alive."""
    if (member := group.members.get(member_id)) is not None:
        start_session(group, member, turn)


def drop_member(group: ClassicGroup, member: Member, turn: Turn) -> None:
    """Removes a member. Its parked requests fail: if its client is still there, it must join again."""
    answer_join(group, member, join_error(ErrorCode.UNKNOWN_MEMBER_ID), turn)
    answer_sync(group, member, ErrorCode.UNKNOWN_MEMBER_ID, turn)
    group.remove(member.member_id)


def after_removal(group: ClassicGroup, turn: Turn) -> None:
    """Begins a rebalance; or ends the join phase, if it waited only for the removed members."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, turn)
    else:
        complete_if_all_joined(group, turn)


# Deadlines


def on_loaded(group: ClassicGroup, turn: Turn) -> None:
    """Restarts all sessions: members could not reach a coordinator while the log was read."""
    for member in group.members.values():
        start_session(group, member, turn)
    if len(group.members) > turn.settings.max_size:
        prepare_rebalance(group, turn)


def on_unloaded(group: ClassicGroup, error: ErrorCode) -> list[Sendable]:
    """Unloads the group from this broker: answers every waiting JoinGroup and SyncGroup with `error`."""
    replies: list[Sendable] = []
    group.state = GroupState.DEAD
    for member in group.members.values():
        if member.joining is not None:
            replies.append(Reply(member.joining, join_error(error, member.member_id)))
        if member.syncing is not None:
            replies.append(Reply(member.syncing, SyncGroupResponse(error_code=error)))
        member.joining = member.syncing = None
    return replies


def on_time(group: ClassicGroup, turn: Turn) -> None:
    """Applies every deadline that has passed, and finds the next one."""
    now_ms = turn.now.steady_ms
    _expire_pending_joins(group, turn)
    _expire_sessions(group, turn)
    if group.join_deadline_ms <= now_ms:
        _on_join_deadline(group, turn)
    if group.sync_deadline_ms <= now_ms:
        _on_sync_deadline(group, turn)
    group.wake_at_ms = NEVER_MS
    group.wake_at(
        min(
            group.join_deadline_ms,
            group.sync_deadline_ms,
            min(group.pending_joins.values(), default=NEVER_MS),
            min((m.session_deadline_ms for m in group.members.values() if m.expires), default=NEVER_MS),
        )
    )


def _expire_pending_joins(group: ClassicGroup, turn: Turn) -> None:
    late = [
        member_id for member_id, deadline in group.pending_joins.items() if deadline <= turn.now.steady_ms
    ]
    for member_id in late:
        group.remove(member_id)
    if late:
        complete_if_all_joined(group, turn)


def _expire_sessions(group: ClassicGroup, turn: Turn) -> None:
    silent = [
        member
        for member in group.members.values()
        if member.expires and member.session_deadline_ms <= turn.now.steady_ms
    ]
    for member in silent:
        drop_member(group, member, turn)
    if silent:
        after_removal(group, turn)


def _on_join_deadline(group: ClassicGroup, turn: Turn) -> None:
    if group.previous_state is GroupState.EMPTY and group.new_member_joined and group.initial_delay_left_ms:
        group.new_member_joined = False
        delay_ms = min(turn.settings.initial_rebalance_delay_ms, group.initial_delay_left_ms)
        group.initial_delay_left_ms -= delay_ms
        _set_join_deadline(group, delay_ms, turn)
    else:
        complete_join(group, turn)


def _on_sync_deadline(group: ClassicGroup, turn: Turn) -> None:
    """Removes members that joined the generation but never fetched their assignment."""
    group.sync_deadline_ms = NEVER_MS
    late = list(group.pending_syncs)
    for member_id in late:
        group.remove(member_id)
    if late:
        prepare_rebalance(group, turn)
