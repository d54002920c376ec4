"""Limits reading, writing and sending to a number of bytes per second.

Keeps true: in any period, the bytes let through are at most what the rate allows in that period and one second more
            (`_IDLE_S`), plus the bytes of one call. A new rate also counts for the bytes that wait already, so that a
            rate that was set far too low can be raised. Setting `stopping` ends every wait in `take` at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event, Lock

from felice.env import Clock

RATE_CHECK_INTERVAL_S = 1.0
"""How soon a wait notices that the rate was changed."""

_IDLE_S = 1.0
"""Unused allowance expires after this time, so that the burst after an idle hour is bounded."""


class RateLimit:
    """Counts bytes against a rate. Times are arguments, in seconds."""

    def __init__(self, rate: Callable[[], float]) -> None:
        """`rate` returns the bytes per second, more than 0. It may change at any time."""
        self._rate = rate
        # Bytes since the beginning: those that came, and those that the rates have allowed until `_at_s`.
        self._recorded = self._allowed = 0.0
        self._at_s = 0.0

    def record(self, size_bytes: int, now_s: float) -> float:
        """Counts bytes that pass, or wait. Returns their place among all bytes, for `wait_s`."""
        self._advance(now_s)
        self._recorded += size_bytes
        return self._recorded

    def wait_s(self, now_s: float, place: float | None = None) -> float:
        """Seconds until the rate allows the bytes up to a place, or all that were counted; 0 if it does now."""
        rate = self._advance(now_s)
        return max(0.0, ((self._recorded if place is None else place) - self._allowed) / rate)

    def is_exceeded(self, now_s: float) -> bool:
        """Whether more bytes were counted than the rate allows."""
        return self.wait_s(now_s) > 0

    def _advance(self, now_s: float) -> float:
        """Counts what the rate has allowed since the last call. Returns the rate."""
        rate = self._rate()
        allowed = self._allowed + (now_s - self._at_s) * rate
        self._allowed = min(allowed, self._recorded + _IDLE_S * rate)
        self._at_s = now_s
        return rate


class Throttle:
    """A limit that threads and tasks share. Threads wait in `take`, tasks in `take_async`."""

    def __init__(self, clock: Clock, rate: Callable[[], float]) -> None:
        """`rate` is that of a `RateLimit`."""
        self.stopping = Event()
        self._clock = clock
        self._lock = Lock()
        self._limit = RateLimit(rate)

    def take(self, size_bytes: int) -> None:
        """Returns when `size_bytes` more may be read or written. Blocks the thread."""
        place = self._record(size_bytes)
        while (wait_s := self._wait_s(place)) > 0:
            if self.stopping.wait(min(wait_s, RATE_CHECK_INTERVAL_S)):
                return

    async def take_async(self, size_bytes: int) -> None:
        """Returns when `size_bytes` more may be read or written. Does not look at `stopping`: cancel the task."""
        place = self._record(size_bytes)
        while (wait_s := self._wait_s(place)) > 0:
            await asyncio.sleep(min(wait_s, RATE_CHECK_INTERVAL_S))

    def _record(self, size_bytes: int) -> float:
        with self._lock:
            return self._limit.record(size_bytes, self._clock.monotonic())

    def _wait_s(self, place: float) -> float:
        with self._lock:
            return self._limit.wait_s(self._clock.monotonic(), place)
