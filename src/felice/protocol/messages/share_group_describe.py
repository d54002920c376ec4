"""ShareGroupDescribe (key 77): epochs and members of share groups (KIP-932)."""

from __future__ import annotations

from felice.protocol.messages.consumer_group_describe import Assignment
from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED
from felice.protocol.schema import array, boolean, int16, int32, nested, request, response, string, struct


@request(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    """Groups by id."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@struct
class Member:
    """A member."""

    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    assignment: Assignment = nested(Assignment)


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


@response(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    """Groups, in the order of the request."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
