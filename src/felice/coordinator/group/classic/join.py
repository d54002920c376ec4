"""JoinGroup: which members may join, under which id, and whether that begins a rebalance.

| group is            | new dynamic member                  | known instance, no id   | known member                  |
|---------------------|-------------------------------------|-------------------------|-------------------------------|
| Empty               | v4+: MEMBER_ID_REQUIRED, else joins | -                       | UNKNOWN_MEMBER_ID             |
| PreparingRebalance  | the same                            | replaces the old member | updated, parked               |
| CompletingRebalance | the same, rebalance                 | replaces it, rebalance  | same metadata: answered again |
| Stable              | the same, rebalance                 | replaces it, no rebal.  | leader or changed: rebalance  |

Checks come in Kafka's order: session timeout, group, size, Dead, protocols, instance id, member id.
"""

from __future__ import annotations

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.member import Member
from felice.coordinator.group.classic.rebalance import (
    answer_join,
    answer_sync,
    complete_if_all_joined,
    join_error,
    joined_response,
    prepare_or_complete,
    prepare_rebalance,
    start_session,
    storing_error,
)
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.records import Record
from felice.coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from felice.coordinator.group.turn import Caller, Turn
from felice.coordinator.shard import Instant, Outcome
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4  # KIP-394
_SKIP_ASSIGNMENT_SINCE = 9  # KIP-814


def join(
    group: ClassicGroup, request: JoinGroupRequest, caller: Caller[JoinGroupResponse], turn: Turn
) -> None:
    """Handles a JoinGroup. The caller has checked the session timeout, and found or created the group."""
    member_id = request.member_id
    error = _check(group, request, turn)
    if error == ErrorCode.GROUP_MAX_SIZE_REACHED:
        group.remove(member_id)
        turn.outcome.reply(caller.waiter, join_error(error))
        complete_if_all_joined(group, turn)
    elif error != ErrorCode.NONE:
        turn.outcome.reply(caller.waiter, join_error(error, member_id))
    elif not member_id:
        _join_new(group, request, caller, turn)
    elif member_id in group.pending_joins:
        _enter(group, request, caller, member_id, turn)
    else:
        _join_known(group, request, caller, turn)


def _check(group: ClassicGroup, request: JoinGroupRequest, turn: Turn) -> ErrorCode:
    if not _has_room(group, request.member_id, turn.settings.max_size):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not request.member_id:
        return ErrorCode.NONE
    if request.member_id in group.pending_joins and request.group_instance_id is None:
        return ErrorCode.NONE
    return group.check_member(request.member_id, request.group_instance_id)


def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        # The members that rejoin first stay: so a group shrinks to a limit that was lowered.
        return (member is not None and member.joining is not None) or group.joining_count < max_size
    return member is not None or len(group.members) < max_size


# New members


def _join_new(
    group: ClassicGroup, request: JoinGroupRequest, caller: Caller[JoinGroupResponse], turn: Turn
) -> None:
    instance_id = request.group_instance_id
    if instance_id is not None and instance_id in group.static_members:
        _take_over(group, request, caller, instance_id, turn)
    elif instance_id is None and caller.version >= MEMBER_ID_REQUIRED_SINCE:
        _require_member_id(group, request, caller, turn)
    else:
        _enter(group, request, caller, caller.new_member_id, turn)


def _require_member_id(
    group: ClassicGroup, request: JoinGroupRequest, caller: Caller[JoinGroupResponse], turn: Turn
) -> None:
    """KIP-394: a client that gives up before its first answer must not leave a member behind."""
    deadline_ms = turn.now.steady_ms + request.session_timeout_ms
    group.pending_joins[caller.new_member_id] = deadline_ms
    group.wake_at(deadline_ms)
    turn.outcome.reply(caller.waiter, join_error(ErrorCode.MEMBER_ID_REQUIRED, caller.new_member_id))


def _enter(
    group: ClassicGroup,
    request: JoinGroupRequest,
    caller: Caller[JoinGroupResponse],
    member_id: str,
    turn: Turn,
) -> None:
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=supported_protocols(request),
        is_new=True,
        joining=caller.waiter,
    )
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_joined = True
    group.add(member, request.protocol_type)
    start_session(group, member, turn, NEW_MEMBER_JOIN_TIMEOUT_MS)
    prepare_or_complete(group, turn)


# Known members


def _join_known(
    group: ClassicGroup, request: JoinGroupRequest, caller: Caller[JoinGroupResponse], turn: Turn
) -> None:
    member = group.members[request.member_id]
    unchanged = member.protocols == supported_protocols(request)
    leads = group.leader_id == member.member_id
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            begin = True
        case GroupState.COMPLETING_REBALANCE:
            # Unchanged: the member missed the answer to its last JoinGroup, which is still valid.
            begin = not unchanged
        case _:
            # The leader may have seen a change of topics, which its metadata does not show.
            begin = leads or not unchanged
    if begin:
        _update(group, member, request, caller, turn)
        prepare_or_complete(group, turn)
    else:
        turn.outcome.reply(caller.waiter, joined_response(group, member.member_id))


def _update(
    group: ClassicGroup,
    member: Member,
    request: JoinGroupRequest,
    caller: Caller[JoinGroupResponse],
    turn: Turn,
) -> None:
    group.set_protocols(member, supported_protocols(request))
    member.rebalance_timeout_ms = rebalance_timeout_ms(request)
    member.session_timeout_ms = request.session_timeout_ms
    displaced = group.park_join(member, caller.waiter)
    if displaced is not None:
        # The client sent a new request, so it gave up the first one; but every request must be answered.
        turn.outcome.reply(displaced, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))


# Static members that return (KIP-345)


def _take_over(
    group: ClassicGroup,
    request: JoinGroupRequest,
    caller: Caller[JoinGroupResponse],
    instance_id: str,
    turn: Turn,
) -> None:
    old_leader_id = group.leader_id
    old = group.replace_static(instance_id, caller.new_member_id)
    before = Takeover.remember(group, old, instance_id, old_leader_id)
    _fence(group, old, turn)
    member = group.members[caller.new_member_id]
    member.client_id, member.client_host = caller.client_id, caller.client_host
    _update(group, member, request, caller, turn)
    start_session(group, member, turn)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        _keep_assignment(group, before, caller, turn)
    elif group.state is GroupState.PREPARING_REBALANCE:
        complete_if_all_joined(group, turn)
    else:
        # In CompletingRebalance the leader may know the old id: its assignment would miss the new one.
        prepare_rebalance(group, turn)


def _fence(group: ClassicGroup, old: Member, turn: Turn) -> None:
    if old.joining is not None:
        turn.outcome.reply(old.joining, join_error(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        old.joining = None
    answer_sync(group, old, ErrorCode.FENCED_INSTANCE_ID, turn)


def _keep_assignment(
    group: ClassicGroup, before: Takeover, caller: Caller[JoinGroupResponse], turn: Turn
) -> None:
    group.subscribed_topics = group.read_subscribed_topics()
    member_id = caller.new_member_id
    if caller.version >= _SKIP_ASSIGNMENT_SINCE:
        leads = group.leader_id == member_id
        response = joined_response(group, member_id, skip_assignment=leads)
    else:
        # The leader does not recognise its old id as its own, so it fetches its assignment as a follower does.
        response = joined_response(group, member_id, leader_id=before.leader_id)
    turn.outcome.records.append(group.record())
    turn.outcome.after_write.append(StaticMemberStored(turn.settings, group, member_id, before, response))


@dataclass(frozen=True, slots=True)
class Takeover:
    """The state of a static member before it was replaced, in case the replacement cannot be stored."""

    instance_id: str
    member_id: str
    leader_id: str | None
    protocols: tuple[tuple[str, bytes], ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int

    @classmethod
    def remember(cls, group: ClassicGroup, old: Member, instance_id: str, leader_id: str | None) -> Takeover:
        """The state of the old member, before the new one takes its place."""
        return cls(
            instance_id,
            old.member_id,
            leader_id,
            old.protocols,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
        )

    def revert(self, group: ClassicGroup, turn: Turn) -> None:
        """Gives the place back to the old member, because the change could not be stored."""
        group.replace_static(self.instance_id, self.member_id)
        member = group.members[self.member_id]
        group.set_protocols(member, self.protocols)
        member.rebalance_timeout_ms = self.rebalance_timeout_ms
        member.session_timeout_ms = self.session_timeout_ms
        group.subscribed_topics = group.read_subscribed_topics()
        start_session(group, member, turn)


@dataclass(frozen=True, slots=True)
class StaticMemberStored:
    """Continues when the new id of a static member is stored: it returned without a rebalance, and is answered now."""

    settings: GroupSettings
    group: ClassicGroup
    member_id: str
    before: Takeover
    response: JoinGroupResponse

    def on_committed(self, now: Instant) -> Outcome[Record]:
        """Answers the JoinGroup of the new member."""
        turn = Turn(self.settings, now)
        member = self._still_here()
        if member is not None:
            answer_join(self.group, member, self.response, turn)
        return turn.outcome

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[Record]:
        """Answers the JoinGroup with an error, and gives the place back to the old member."""
        turn = Turn(self.settings, now)
        member = self._still_here()
        if member is not None:
            answer_join(self.group, member, join_error(storing_error(error)), turn)
            self.before.revert(self.group, turn)
        return turn.outcome

    def _still_here(self) -> Member | None:
        """None if the member changed meanwhile: a rebalance or another replacement has answered it."""
        return self.group.members.get(self.member_id) if self.group.state is GroupState.STABLE else None


def supported_protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    """In the member's order; a name that occurs twice counts once."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(protocols.items())


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 uses one timeout for both."""
    if request.rebalance_timeout_ms == -1:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms
