"""Time as an argument.

Wall time stamps records and may jump. Monotonic time measures waits and never
goes back. The two must not be mixed.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Protocol


class Clock(Protocol):
    """Wall time and monotonic time. A simulation has virtual ones."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never decreases."""
        ...


class SystemClock:
    """The machine's clocks as a `Clock`."""

    def now_ms(self) -> int:
        """The machine's wall clock, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """The machine's monotonic clock, in seconds; only differences mean something. Every request asks three times."""


class RateLimit:
    """Allows an event once in `interval_s` for each key. Bounded: the oldest keys are forgotten."""

    _MOST_KEYS = 1_000

    def __init__(self, monotonic: Callable[[], float], interval_s: float) -> None:
        self._monotonic = monotonic
        self._interval_s = interval_s
        self._last: OrderedDict[Hashable, float] = OrderedDict()

    def allows(self, key: Hashable) -> bool:
        """Whether the event may happen now; if so, its key has to wait for the interval."""
        now, last = self._monotonic(), self._last.get(key)
        if last is not None and now - last < self._interval_s:
            return False
        self._last.pop(key, None)
        self._last[key] = now
        if len(self._last) > self._MOST_KEYS:
            self._last.popitem(last=False)
        return True


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for the event; returns whether it was set within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
