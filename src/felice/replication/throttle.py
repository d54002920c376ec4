"""How much replication may take of a link (leader/follower.replication.throttled.*).

Keeps true:  over any stretch that begins with a call, what was let through is at most the rate times its length,
             plus one answer. Replicas in sync are never held back: that would drop them out of the ISR.
Pure: times are arguments, in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

_IDLE_S = 1.0
"""Unused allowance is forgotten after this long: a quiet hour does not pay for a burst."""


class ReplicationThrottle:
    def __init__(self) -> None:
        self._free_at_s = 0.0

    def is_exceeded(self, now_s: float) -> bool:
        return self._free_at_s > now_s

    def wait_s(self, now_s: float) -> float:
        return max(0.0, self._free_at_s - now_s)

    def record(self, size_bytes: int, bytes_per_second: int, now_s: float) -> None:
        self._free_at_s = max(self._free_at_s, now_s - _IDLE_S) + size_bytes / bytes_per_second


def is_throttled(replicas: Sequence[str], partition: int, broker_id: int) -> bool:
    """Whether `*` or `partition:broker` is listed."""
    return "*" in replicas or f"{partition}:{broker_id}" in replicas
