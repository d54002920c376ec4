"""The checks of a ConsumerGroupHeartbeat: its fields, the member, its instance id, and its epoch."""

from __future__ import annotations

from felice.coordinator.group.consumer.group import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerGroup
from felice.coordinator.group.modern.reconciliation import Current, Partitions
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_MEMBER_ID_REQUIRED_SINCE = 1


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Raises INVALID_REQUEST or UNSUPPORTED_ASSIGNOR, with Kafka's message."""
    if version >= _MEMBER_ID_REQUIRED_SINCE or request.member_epoch != JOIN_EPOCH:
        _check_not_blank(request.member_id, "MemberId")
    _check_not_blank(request.group_id, "GroupId")
    _check_filled(request.instance_id, "InstanceId")
    _check_filled(request.rack_id, "RackId")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = (
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}."
        )
        raise ApiError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if not request.subscribed_topic_names and not request.subscribed_topic_regex:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _check_not_blank(value: str, field: str) -> None:
    if not value.strip():
        raise _invalid(f"{field} can't be empty.")


def _check_filled(value: str | None, field: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{field} can't be empty.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


# The member


def check_room(group: ConsumerGroup, instance_id: str | None, max_size: int) -> None:
    """Raises GROUP_MAX_SIZE_REACHED for a new member if the group is full, except for a static member that returns."""
    if len(group.members) >= max_size and (instance_id is None or instance_id not in group.static_members):
        message = f"The consumer group has reached its maximum capacity of {max_size} members."
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def check_instance(group: ConsumerGroup, instance_id: str | None, member_id: str) -> None:
    """Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID if the instance id does not belong to this member."""
    if instance_id is None:
        return
    holder = group.static_members.get(instance_id)
    if holder is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}."
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID, message)


def check_member(group: ConsumerGroup, member_id: str) -> None:
    """Raises UNKNOWN_MEMBER_ID."""
    if member_id not in group.members:
        message = f"Member {member_id} is not a member of group {group.group_id}."
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, message)


def has_released(group: ConsumerGroup, holder: str) -> bool:
    """Whether a static member may be replaced: it left with epoch -2, or uses the classic protocol, which has no -2."""
    return group.members[holder].classic is not None or group.current(holder).epoch == STATIC_LEAVE_EPOCH


def check_epoch(current: Current, epoch: int, owned: Partitions | None) -> None:
    """Raises FENCED_MEMBER_EPOCH, unless `epoch` is the current epoch, or a repeated request has the previous epoch."""
    if epoch in (JOIN_EPOCH, current.epoch):
        return
    if epoch > current.epoch:
        message = (
            f"The consumer group member has a greater member epoch ({epoch}) than the one known by the group "
            f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin."
        )
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)
    is_repeated = epoch == current.previous_epoch and owned is not None and _is_part(owned, current)
    if not is_repeated:
        message = (
            f"The consumer group member has a smaller member epoch ({epoch}) than the one known by the group "
            f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin."
        )
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _is_part(owned: Partitions, current: Current) -> bool:
    return all(
        partition in current.assigned.get(topic_id, {})
        for topic_id, partitions in owned.items()
        for partition in partitions
    )
