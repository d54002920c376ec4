"""The session timeout and intervals of one group with server-side assignment."""

from __future__ import annotations

from felice.config.group import GroupConfig
from felice.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """The session timeout and intervals of one group. The defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


def consumer_times(config: GroupConfig) -> GroupTimes:
    """The session timeout and intervals of a consumer group with this configuration."""
    return GroupTimes(
        config.consumer_session_timeout_ms,
        config.consumer_heartbeat_interval_ms,
        config.consumer_assignment_interval_ms,
    )
