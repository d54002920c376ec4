"""Which replicas are throttled (leader/follower.replication.throttled.replicas).

In-sync replicas never wait for the rate (leader/follower.replication.throttled.rate): that would remove them from the
ISR.
"""

from __future__ import annotations

from collections.abc import Sequence


def is_throttled(replicas: Sequence[str], partition: int, broker_id: int) -> bool:
    """Whether the list contains `*` or `partition:broker`."""
    return "*" in replicas or f"{partition}:{broker_id}" in replicas
