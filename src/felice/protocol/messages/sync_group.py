"""SyncGroup (key 14): the leader sends the assignment, and every member gets its own part."""

from __future__ import annotations

from felice.protocol.schema import array, binary, int16, int32, request, response, string, struct


@struct
class SyncGroupRequestAssignment:
    """What the leader assigned to one member."""

    member_id: str = string()
    assignment: bytes = binary()


@request(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Protocol type and name, from version 5, must be those of the group."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", nullable="3+", default=None)
    protocol_type: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@response(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The member's own assignment."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = binary()
