"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848).

The broker assigns their partitions, too, so no request waits for other members. The response to JoinGroup has the
member's epoch as the generation, and the response to SyncGroup has the assignment. Heartbeat returns
REBALANCE_IN_PROGRESS when the member must give up partitions, or can get more partitions.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from felice.coordinator.group.classic.join import (
    MEMBER_ID_REQUIRED_SINCE,
    rebalance_timeout_ms,
    supported_protocols,
)
from felice.coordinator.group.classic.rebalance import join_error
from felice.coordinator.group.consumer.checks import check_instance, check_member, check_room
from felice.coordinator.group.consumer.group import ConsumerGroup
from felice.coordinator.group.consumer.steps import (
    Step,
    assign,
    follow_topics,
    known_member,
    new_member,
    reconcile_member,
    set_deadlines,
    subscribe,
    take_over,
)
from felice.coordinator.group.consumer.tombstones import removal_of
from felice.coordinator.group.consumer.values import ClassicProtocols, Subscription, shared_topics
from felice.coordinator.group.modern.reconciliation import MemberState, Partitions
from felice.coordinator.group.modern.topics import Topics
from felice.coordinator.group.turn import Caller, Turn
from felice.coordinator.shard import ReplyAfterWrite
from felice.protocol.codec import data_version, decode_data, encode_data
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from felice.protocol.primitives import MalformedMessage

_NO_GENERATION = -1
_NEWEST_VERSION = 3  # of the consumer's protocol


# JoinGroup


def join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    caller: Caller[JoinGroupResponse],
    turn: Turn,
) -> None:
    """Answers at once. The caller has checked the session timeout. Raises `ApiError`."""
    instance_id = request.group_instance_id
    if request.member_id not in group.members:
        check_room(group, instance_id, turn.settings.consumer_max_size)
    brought = check_protocols(group, request)
    if not request.member_id and instance_id is None and caller.version >= MEMBER_ID_REQUIRED_SINCE:
        turn.outcome.reply(caller.waiter, join_error(ErrorCode.MEMBER_ID_REQUIRED, caller.new_member_id))
        return
    step = _begin(group, request, caller)
    subscribe(group, _subscription(request, brought, caller, step.subscription), step)
    follow_topics(group, step, turn)
    target_epoch, target = assign(group, step, turn)
    before = step.current
    owned = _owned(brought, step, turn.topics)
    reconcile_member(group, owned, step, target_epoch, target, turn)
    set_deadlines(group, step, before, request.session_timeout_ms, turn)
    group.revocations.pop(
        step.member_id, None
    )  # a classic member has the time limit of the next line instead
    group.start_waiting(step.member_id, turn.now.steady_ms + rebalance_timeout_ms(request))
    turn.outcome.records += step.records
    response = JoinGroupResponse(
        generation_id=step.current.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=step.member_id,
    )
    turn.outcome.after_write.append(ReplyAfterWrite(caller.waiter, response, join_error))


def check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The member's subscription. Raises INCONSISTENT_GROUP_PROTOCOL if it cannot be read, or if the member has no
    protocol that all classic members have.
    """
    common = {protocol.name for protocol in request.protocols}
    for subscription in group.members.values() if group.classic_count else ():
        if subscription.classic is not None:
            common &= {name for name, _ in subscription.classic.protocols}
    if request.protocol_type == PROTOCOL_TYPE and common:
        brought = read_subscription(request.protocols[0].metadata)
        if brought is not None:
            return brought
    raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _begin(group: ConsumerGroup, request: JoinGroupRequest, caller: Caller[JoinGroupResponse]) -> Step:
    member_id, instance_id = request.member_id, request.group_instance_id
    holder = None if instance_id is None else group.static_members.get(instance_id)
    if not member_id:
        if holder is not None:
            return take_over(group, caller.new_member_id, holder)
        return new_member(group, caller.new_member_id, instance_id)
    check_instance(group, instance_id, member_id)
    if member_id in group.members:
        return known_member(group, member_id)
    return new_member(group, member_id, instance_id)


def _subscription(
    request: JoinGroupRequest,
    brought: ConsumerProtocolSubscription,
    caller: Caller[JoinGroupResponse],
    before: Subscription,
) -> Subscription:
    return replace(
        before,
        rack_id=brought.rack_id or before.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=shared_topics(brought.topics),
        expression="",
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        assignor=None,
        classic=ClassicProtocols(request.session_timeout_ms, supported_protocols(request)),
    )


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """A consumer's subscription of any version; None if it cannot be read."""
    try:
        return decode_data(ConsumerProtocolSubscription, metadata)
    except MalformedMessage:
        return None


def read_assignment(assignment: bytes) -> list[AssignedTopic] | None:
    """A consumer's assignment of any version, empty for a member that has none; None if it cannot be read."""
    if not assignment:
        return []
    try:
        return decode_data(ConsumerProtocolAssignment, assignment).assigned_partitions
    except MalformedMessage:
        return None


def by_id(assigned: list[AssignedTopic], topics: Topics) -> dict[UUID, frozenset[int]]:
    """The partitions by topic id; topics that do not exist are left out."""
    found: dict[UUID, frozenset[int]] = {}
    for topic in assigned:
        known = topics.by_name.get(topic.topic)
        if known is not None and topic.partitions:
            found[known.topic_id] = found.get(known.topic_id, frozenset()).union(topic.partitions)
    return found


def _owned(brought: ConsumerProtocolSubscription, step: Step, topics: Topics) -> Partitions:
    """The partitions that the member reports; none if it reports the partitions of another generation."""
    if brought.generation_id not in (_NO_GENERATION, step.current.epoch):
        return {}
    return by_id(brought.owned_partitions, topics)


# SyncGroup


def sync(
    group: ConsumerGroup,
    request: SyncGroupRequest,
    caller: Caller[SyncGroupResponse],
    turn: Turn,
) -> None:
    """Answers with the member's partitions. Raises `ApiError`."""
    classic = _classic_member(group, request.member_id, request.group_instance_id)
    current = group.current(request.member_id)
    if request.generation_id != current.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    protocol = classic.protocols[0][0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, protocol):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    has_moved_on = group.target_epoch.epoch > current.epoch
    if has_moved_on and current.state is not MemberState.UNREVOKED_PARTITIONS:
        _ask_to_rejoin(group, request.member_id, turn)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.stop_waiting(request.member_id)
    group.start_session(request.member_id, turn.now.steady_ms + classic.session_timeout_ms)
    response = SyncGroupResponse(
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignment=encode_assignment(current.partitions, turn.topics, classic),
    )
    turn.outcome.after_write.append(ReplyAfterWrite(caller.waiter, response, sync_error))


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """A SyncGroup response that has only an error."""
    return SyncGroupResponse(error_code=error)


def encode_assignment(partitions: Partitions, topics: Topics, classic: ClassicProtocols) -> bytes:
    """The assignment for a member of the classic protocol, in the version of its subscription."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopic(topic=topics.names[topic_id], partitions=sorted(has))
            for topic_id, has in partitions.items()
            if topic_id in topics.names
        ]
    )
    return encode_data(assignment, _version_of(classic.protocols[0][1]))


def _version_of(metadata: bytes) -> int:
    """The version of a subscription; 0, which all clients can read, if `metadata` is not a subscription."""
    try:
        return max(0, min(data_version(metadata), _NEWEST_VERSION))
    except MalformedMessage:
        return 0


# Heartbeat


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, turn: Turn) -> ErrorCode:
    """Restarts the session; REBALANCE_IN_PROGRESS asks the member to rejoin."""
    try:
        classic = _classic_member(group, request.member_id, request.group_instance_id)
    except ApiError as error:
        return error.code
    current = group.current(request.member_id)
    if request.generation_id != current.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    group.start_session(request.member_id, turn.now.steady_ms + classic.session_timeout_ms)
    must_rejoin = (
        current.epoch < group.target_epoch.epoch
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (current.state is MemberState.UNRELEASED_PARTITIONS and _is_more_free(group, request.member_id))
    )
    if must_rejoin:
        _ask_to_rejoin(group, request.member_id, turn)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _is_more_free(group: ConsumerGroup, member_id: str) -> bool:
    """Whether the member can get a partition: a partition of its target that no member holds."""
    return any(
        (topic_id, partition) not in group.holders
        for topic_id, partitions in group.target(member_id).items()
        for partition in partitions
    )


def _ask_to_rejoin(group: ConsumerGroup, member_id: str, turn: Turn) -> None:
    timeout_ms = group.members[member_id].rebalance_timeout_ms
    group.start_waiting(member_id, turn.now.steady_ms + timeout_ms, is_new=False)


# LeaveGroup


def leave(group: ConsumerGroup, leavers: list[MemberIdentity], turn: Turn) -> LeaveGroupResponse:
    """Removes the members that use the classic protocol. The response has an error for each of the others."""
    rows: list[MemberResponse] = []
    leaving: dict[str, None] = {}
    for leaver in leavers:
        member_id = leaver.member_id
        if not member_id and leaver.group_instance_id is not None:
            member_id = group.static_members.get(leaver.group_instance_id, "")
        try:
            _classic_member(group, member_id, leaver.group_instance_id)
            error = ErrorCode.NONE
        except ApiError as refused:
            error = refused.code
        if error == ErrorCode.NONE:
            leaving[member_id] = None
        rows.append(
            MemberResponse(
                member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error
            )
        )
    if leaving:
        turn.outcome.records += removal_of(group, leaving)
    return LeaveGroupResponse(members=rows)


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ClassicProtocols:
    """Raises `ApiError` unless this is a member that uses the classic protocol."""
    check_instance(group, instance_id, member_id)
    check_member(group, member_id)
    classic = group.members[member_id].classic
    if classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    return classic
