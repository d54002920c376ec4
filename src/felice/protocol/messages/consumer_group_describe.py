"""ConsumerGroupDescribe (key 69): epochs, assignor and members of groups of KIP-848."""

from __future__ import annotations

import uuid

from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED
from felice.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    nested,
    request,
    response,
    string,
    struct,
    uid,
)

# The types of a member.
MEMBER_TYPE_CONSUMER = 1
MEMBER_TYPE_CLASSIC = 0
MEMBER_TYPE_UNKNOWN = -1


@request(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """Groups by id."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@struct
class Assignment:
    """The current or the target assignment of a member."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@struct
class Member:
    """A member. Its type is 0 if it uses the classic protocol, 1 if it uses the new one, and -1 if that is unknown."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = nested(Assignment)
    target_assignment: Assignment = nested(Assignment)
    member_type: int = int8(versions="1+", default=MEMBER_TYPE_UNKNOWN, ignorable=True)


@struct
class DescribedGroup:
    """One group."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=OPERATIONS_NOT_REQUESTED)


@response(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """Groups, in the order of the request."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
