"""The times of one group: the broker's options, and the options of the group within the broker's bounds."""

from __future__ import annotations

from collections.abc import Mapping

from felice.config import BrokerConfig
from felice.dataclass import dataclass

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """The times of a group whose members send heartbeats with epochs. The defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


def group_times(config: BrokerConfig, overrides: Mapping[str, str]) -> GroupTimes:
    """The times of a group with these options. A limit of the broker that was tightened later caps the value."""
    return GroupTimes(
        _between(
            overrides.get(SESSION_TIMEOUT),
            config.group_consumer_session_timeout_ms,
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        ),
        _between(
            overrides.get(HEARTBEAT_INTERVAL),
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        ),
        _between(
            overrides.get(ASSIGNMENT_INTERVAL),
            config.group_consumer_assignment_interval_ms,
            config.group_consumer_min_assignment_interval_ms,
            config.group_consumer_max_assignment_interval_ms,
        ),
    )


def _between(own: str | None, default: int, lowest: int, highest: int) -> int:
    return default if own is None else min(max(int(own), lowest), highest)
