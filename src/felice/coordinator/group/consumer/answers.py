"""The answers of consumer groups that have only an error."""

from __future__ import annotations

from felice.coordinator.group.classic.rebalance import storing_error
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


def error_response(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """A response that has only an error: for records that are too large, as for classic groups, an unknown one."""
    code = storing_error(error)
    if message is None:
        message = error.message
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
