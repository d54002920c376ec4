"""ConsumerGroupHeartbeat (KIP-848): a member joins, stays, changes its subscription, or leaves.

Keeps true:  G7: a member's epoch is checked before anything changes, and a response shows only state in the log.
             A heartbeat that changes nothing writes no record, and reads no other member.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias
from uuid import UUID

from felice.coordinator.group.consumer import removal
from felice.coordinator.group.consumer.answers import error_response
from felice.coordinator.group.consumer.checks import (
    check_epoch,
    check_instance,
    check_member,
    check_room,
    has_released,
)
from felice.coordinator.group.consumer.expressions import May, check_expression
from felice.coordinator.group.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
)
from felice.coordinator.group.consumer.steps import (
    Step,
    assign,
    follow_topics,
    known_member,
    new_member,
    reconcile_member,
    resolve,
    set_deadlines,
    subscribe,
    take_over,
)
from felice.coordinator.group.consumer.values import Subscription, shared_topics
from felice.coordinator.group.modern.reconciliation import Partitions
from felice.coordinator.group.turn import Caller, Turn
from felice.coordinator.shard import ReplyAfterWrite
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

Request: TypeAlias = ConsumerGroupHeartbeatRequest
Response: TypeAlias = ConsumerGroupHeartbeatResponse


def heartbeat(
    group: ConsumerGroup, request: Request, caller: Caller[Response], may_describe: May | None, turn: Turn
) -> None:
    """Handles a heartbeat of an existing group, or of a group that this event creates. Raises `ApiError`.

    `checks.check_request` has accepted the request.
    """
    if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        removal.leave(group, request, caller, turn)
        return
    step = _begin(group, request, caller, turn)
    subscribe(group, _subscription(request, caller, step.subscription), step)
    follow_topics(group, step, turn)
    resolve(group, step, may_describe, turn)
    target_epoch, target = assign(group, step, turn)
    before = step.current
    reconcile_member(group, owned_of(request), step, target_epoch, target, turn)
    times = turn.settings.times_of(group.group_id)
    set_deadlines(group, step, before, times.session_timeout_ms, turn)
    group.stop_waiting(step.member_id)  # it may have been a member of the classic protocol
    turn.outcome.records += step.records
    response = Response(
        member_id=step.member_id,
        member_epoch=step.current.epoch,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
    )
    if _is_full(request) or step.current.assigned != before.assigned:
        response.assignment = _assignment(step.current.partitions)
    turn.outcome.after_write.append(ReplyAfterWrite(caller.waiter, response, error_response))


# The member


def _begin(group: ConsumerGroup, request: Request, caller: Caller[Response], turn: Turn) -> Step:
    """Finds or creates the member. Checks its epoch and instance id, and the size of the group."""
    member_id, instance_id = request.member_id or caller.new_member_id, request.instance_id
    joins = request.member_epoch == JOIN_EPOCH
    if joins and member_id not in group.members:
        check_room(group, instance_id, turn.settings.consumer_max_size)
        holder = None if instance_id is None else group.static_members.get(instance_id)
        if holder is None:
            return new_member(group, member_id, instance_id)
        if not has_released(group, holder):
            message = (
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by member {holder}."
            )
            raise ApiError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        return take_over(group, member_id, holder)
    check_instance(group, instance_id, member_id)
    check_member(group, member_id)
    step = known_member(group, member_id)
    check_epoch(step.current, request.member_epoch, owned_of(request))
    return step


def _subscription(request: Request, caller: Caller[Response], before: Subscription) -> Subscription:
    """The member's subscription, with the fields that the request changes."""
    names, expression = request.subscribed_topic_names, request.subscribed_topic_regex
    if expression and expression != before.expression:
        check_expression(expression)
    return replace(
        before,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        topics=before.topics if names is None else shared_topics(names),
        expression=before.expression if expression is None else expression,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms
            if request.rebalance_timeout_ms == -1
            else request.rebalance_timeout_ms
        ),
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def owned_of(request: Request) -> Partitions | None:
    """The partitions that a member reports as its own; None if it reports nothing."""
    if request.topic_partitions is None:
        return None
    owned: dict[UUID, frozenset[int]] = {}
    for topic in request.topic_partitions:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()).union(topic.partitions)
    return owned


# The answer


def _is_full(request: Request) -> bool:
    """Whether the response needs the assignment: the member joins, or sends all fields after a lost response."""
    if request.member_epoch == JOIN_EPOCH:
        return True
    names_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and request.topic_partitions is not None and names_topics


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(has)) for topic_id, has in partitions.items()
        ]
    )
