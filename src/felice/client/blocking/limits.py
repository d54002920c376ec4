"""The time limit of a blocking client's current call: no wait inside the call outlasts it.

Keeps true:  A limit inside another one never ends later than the outer one.
How:         The client, its brokers and their connections share one `TimeLimit`. Every wait asks it for the time
             that is left.
Leaves:      the resolution of host names to the system, which has a time limit of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class TimeLimit:
    """When the current call of one client ends. Only one thread at a time may use it."""

    def __init__(self) -> None:
        self._end = float("inf")

    @contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """Let what is inside the block end after `limit_s` seconds, or at the end of an outer block before that."""
        outer = self._end
        self._end = self.end_of(limit_s)
        try:
            yield
        finally:
            self._end = outer

    @contextmanager
    def share(self, brokers_left: int) -> Iterator[None]:
        """Limit the block to one of so many equal parts of the time that is left.

        So a broker that does not answer leaves time for those that are asked after it.
        """
        with self.within(self.left_s() / brokers_left):
            yield

    def end_of(self, wait_s: float) -> float:
        """Return when a wait of `wait_s` seconds ends that begins now, on the clock of `time.monotonic`."""
        return min(self._end, time.monotonic() + max(0.0, wait_s))

    def left_s(self, wait_s: float = float("inf")) -> float:
        """Return `wait_s`, or the rest of the time if that is shorter."""
        return min(wait_s, max(0.0, self._end - time.monotonic()))

    @property
    def is_over(self) -> bool:
        """True when the call must end."""
        return time.monotonic() >= self._end

    def pause(self, pause_s: float) -> None:
        """Sleep before the next attempt, at most until the end."""
        time.sleep(self.left_s(pause_s))
