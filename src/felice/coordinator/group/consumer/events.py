"""The events of consumer groups. A shard imports this module at the first event of a consumer group.

Most brokers do not need it when they start, and the import of each of its modules takes a third of a millisecond.
"""

from __future__ import annotations

from felice.coordinator.group.consumer import classic_members
from felice.coordinator.group.consumer.answers import error_response
from felice.coordinator.group.consumer.conversion import Upgraded, downgraded, is_last_of_protocol, upgraded
from felice.coordinator.group.consumer.describe import describe_consumer
from felice.coordinator.group.consumer.heartbeat import heartbeat

__all__ = [
    "Upgraded",
    "classic_members",
    "describe_consumer",
    "downgraded",
    "error_response",
    "heartbeat",
    "is_last_of_protocol",
    "upgraded",
]
