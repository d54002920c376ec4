"""Time as an argument.

Wall time stamps records and may jump. Monotonic time measures waits and never
goes back. The two must not be mixed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Protocol

from felice.env.begun import time_limit


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
        # When the key was allowed last, and how often it was refused since.
        self._last: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()
        self.refused = 0
        """How often the key that was allowed last was refused before."""

    def allows(self, key: Hashable) -> bool:
        """Whether the event may happen now; if so, its key has to wait for the interval."""
        now = self._monotonic()
        last, refused = self._last.get(key, (-math.inf, 0))
        if now - last < self._interval_s:
            self._last[key] = last, refused + 1
            return False
        self._last.pop(key, None)
        self._last[key] = now, 0
        self.refused = refused
        if len(self._last) > self._MOST_KEYS:
            self._last.popitem(last=False)
        return True


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for the event; returns whether it was set within `seconds`."""
    try:
        async with time_limit(seconds):
            return await event.wait()
    except TimeoutError:
        return False
