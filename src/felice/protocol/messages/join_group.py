"""JoinGroup (key 11): become a member of a group, or take part in its rebalance.

From version 4 the first join without a member id is answered MEMBER_ID_REQUIRED with the id to use (KIP-394);
static members from version 5; from version 9 the leader may be told to skip the assignment.
"""

from __future__ import annotations

from felice.protocol.schema import array, binary, boolean, int16, int32, request, response, string, struct


@struct
class JoinGroupRequestProtocol:
    """One assignor the member can use, with its subscription for it."""

    name: str = string()
    metadata: bytes = binary()


@request(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Version 0 has no rebalance timeout: the session timeout serves as both."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(versions="1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(versions="5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(versions="8+", nullable="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    """A member's subscription, for the leader only."""

    member_id: str = string()
    group_instance_id: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = binary()


@response(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """`protocol_name` may be None only from version 7; before that an error needs the empty string."""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(versions="7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean(versions="9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
