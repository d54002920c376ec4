"""LeaveGroup (key 13): members leave a group. One up to version 2, several from version 3 (KIP-345)."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, request, response, string, struct


@struct
class MemberIdentity:
    """A member by its id, or a static member by its instance id."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="3+", default=None)
    reason: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)


@request(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """`member_id` up to version 2, `members` after that."""

    group_id: str = string()
    member_id: str = string(versions="0-2")
    members: list[MemberIdentity] = array(MemberIdentity, versions="3+")


@struct
class MemberResponse:
    """The result for one member."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="3+")
    error_code: int = int16()


@response(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """From version 3 each member has its own error."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, versions="3+")
