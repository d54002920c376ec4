"""Responses of consumer groups that contain only an error."""

from __future__ import annotations

from felice.coordinator.group.classic.rebalance import storing_error
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


def error_response(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """A response that contains only an error. As in classic groups, too large records give UNKNOWN_SERVER_ERROR."""
    code = storing_error(error)
    if message is None:
        message = error.message
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
