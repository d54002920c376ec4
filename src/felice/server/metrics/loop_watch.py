"""Measures how late the event loop is, how busy its thread is, and how many connections arrive.

A timer fires every `TICK_S` and measures its delay. Every request of that moment waits as long, so the delay is the
metric that shows an overloaded broker. The watch runs only while metrics are served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from felice.env import Clock
from felice.env.process_stats import thread_cpu_s

TICK_S = 0.1
_RECENT = 1024
_RATE_WINDOW_S = 30.0
_SAMPLES = int(_RATE_WINDOW_S / TICK_S)


class LoopWatch:
    """Call `start` on the event loop, and `stop`."""

    def __init__(self, clock: Clock, thread_cpu: Callable[[], float] = thread_cpu_s) -> None:
        self._clock = clock
        self._thread_cpu = thread_cpu
        self.delays: deque[float] = deque(maxlen=_RECENT)
        self.largest_delay_s = 0.0
        self.ticks = 0
        self._samples: deque[tuple[float, float, int, int]] = deque(maxlen=_SAMPLES)
        self._counts: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to measure."""
        self._schedule()

    def stop(self) -> None:
        """Ends measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def count_connections(self, counts: Callable[[], tuple[int, int]]) -> None:
        """From now on samples how many connections were accepted and closed since the start."""
        self._counts = counts
        self._samples.clear()

    def take_largest_delay(self) -> float:
        """The largest delay since the last call."""
        largest, self.largest_delay_s = self.largest_delay_s, 0.0
        return largest

    @property
    def idle_share(self) -> float:
        """The share of the last 30 s in which the event loop's thread did not compute, 0 to 1."""
        passed_s, cpu_s, _, _ = self._passed()
        return 1.0 if passed_s <= 0 else min(1.0, max(0.0, 1 - cpu_s / passed_s))

    @property
    def connection_rates(self) -> tuple[float, float]:
        """Connections accepted and closed per second in the last 30 s."""
        passed_s, _, accepted, closed = self._passed()
        return (accepted / passed_s, closed / passed_s) if passed_s > 0 else (0.0, 0.0)

    def _passed(self) -> tuple[float, float, int, int]:
        if len(self._samples) < 2:
            return 0.0, 0.0, 0, 0
        first, last = self._samples[0], self._samples[-1]
        return last[0] - first[0], last[1] - first[1], last[2] - first[2], last[3] - first[3]

    def _schedule(self) -> None:
        self._due_s = self._clock.monotonic() + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now_s = self._clock.monotonic()
        delay_s = max(0.0, now_s - self._due_s)
        self.ticks += 1
        self.delays.append(delay_s)
        self.largest_delay_s = max(self.largest_delay_s, delay_s)
        self._samples.append((now_s, self._thread_cpu(), *self._counts()))
        self._schedule()
