"""DescribeGroups (key 15): state, protocol and members of groups.

Up to version 5 an unknown group is a group in state Dead; from version 6 it is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED
from felice.protocol.schema import array, binary, boolean, int16, int32, request, response, string, struct


@request(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Groups by id."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(versions="3+")


@struct
class DescribedGroupMember:
    """A member. Its metadata and assignment are bytes of the members' own protocol."""

    member_id: str = string()
    group_instance_id: str | None = string(versions="4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


@struct
class DescribedGroup:
    """One group. The response must have every requested group; otherwise librdkafka aborts."""

    error_code: int = int16()
    error_message: str | None = string(versions="6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(versions="3+", default=OPERATIONS_NOT_REQUESTED)


@response(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """Groups, in the order of the request."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
