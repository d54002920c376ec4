"""Limits reading and writing to a number of bytes per second, over all threads and tasks that share the limit.

Keeps true: in any period, the bytes let through are at most what the rate allows in that period and one second more
            (`_IDLE_S`), plus the bytes of one call. Setting `stopping` ends every wait in `take` at once.
"""

from __future__ import annotations

from threading import Event, Lock

from felice.env import Clock

_IDLE_S = 1.0
"""Unused allowance expires after this time, so that the burst after an idle hour is bounded."""


class Throttle:
    """The limit. Threads wait in `take`, tasks for the time that `reserve` returns."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.stopping = Event()
        self._clock = clock
        self._lock = Lock()
        self._free_at_s = 0.0

    def take(self, size_bytes: int) -> None:
        """Returns when `size_bytes` more may be read or written. Blocks the thread."""
        wait_s = self.reserve(size_bytes)
        if wait_s > 0:
            self.stopping.wait(wait_s)

    def reserve(self, size_bytes: int) -> float:
        """Counts `size_bytes`. Returns the seconds after which the caller may read or write them; 0 for at once."""
        with self._lock:
            now_s = self._clock.monotonic()
            start_s = max(self._free_at_s, now_s - _IDLE_S)
            self._free_at_s = start_s + size_bytes / self.bytes_per_second
            return max(0.0, self._free_at_s - now_s)
