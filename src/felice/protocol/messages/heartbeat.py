"""Heartbeat (key 12): keeps a member in its group, and tells it of a rebalance."""

from __future__ import annotations

from felice.protocol.schema import int16, int32, request, response, string


@request(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Tells the coordinator that a member is alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", nullable="3+", default=None)


@response(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
