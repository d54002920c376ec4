"""The events of consumer groups, behind one import: a shard imports this module with the first event of such a group.

Most starts of a broker need none of it, and each module costs a third of a millisecond.
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
