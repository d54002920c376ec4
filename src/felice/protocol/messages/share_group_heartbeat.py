"""ShareGroupHeartbeat (key 76): a member of a share group, whose members share partitions (KIP-932).

The epoch of a request is 0 to join, -1 to leave, and otherwise that of the member. A field that is None has not changed
since the last heartbeat.
"""

from __future__ import annotations

from felice.protocol.messages.consumer_group_heartbeat import Assignment
from felice.protocol.schema import array, int16, int32, nested, request, response, string


@request(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """The member makes its own id."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


@response(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """Without an assignment, the member keeps the one that it has."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, nullable="0+")
