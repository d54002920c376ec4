"""Limits the bandwidth of replication (leader/follower.replication.throttled.*).

Keeps true:  in any period, the bytes that pass are at most what the rate allows in that period and one second more
             (`_IDLE_S`), plus one answer.
             In-sync replicas are never throttled: that would remove them from the ISR.
Pure: times are arguments, in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

_IDLE_S = 1.0
"""Unused allowance expires after this time, so that the burst after an idle hour is bounded."""


class ReplicationThrottle:
    """One rate limit, shared by all throttled partitions of one direction."""

    def __init__(self) -> None:
        self._free_at_s = 0.0

    def is_exceeded(self, now_s: float) -> bool:
        """Whether the bytes so far use up the rate beyond `now_s`."""
        return self._free_at_s > now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until the rate allows more bytes; 0 if it does now."""
        return max(0.0, self._free_at_s - now_s)

    def record(self, size_bytes: int, bytes_per_second: int, now_s: float) -> None:
        """Counts bytes that were sent or received. A time without traffic gives credit of at most `_IDLE_S`."""
        self._free_at_s = max(self._free_at_s, now_s - _IDLE_S) + size_bytes / bytes_per_second


def is_throttled(replicas: Sequence[str], partition: int, broker_id: int) -> bool:
    """Whether the list contains `*` or `partition:broker`."""
    return "*" in replicas or f"{partition}:{broker_id}" in replicas
