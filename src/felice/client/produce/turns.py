"""Pauses that a producing thread makes for the event loop's thread.

Keeps true:  A thread pauses only while many bytes wait to be sent, for a fifth of a millisecond after each millisecond
             of work at most.
Why:         The interpreter takes its lock from a thread that computes only every 5 ms (`sys.getswitchinterval`), and
             the loop's thread needs it again after each system call. A program that did nothing but produce would
             queue some megabytes for each megabyte that is sent, in fresh memory, and wait for the rest at its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_BACKLOG_BYTES = 4_000_000
_PAUSE_S = 0.0002
_WORK_S = 0.001


class Turns:
    """`clock` returns seconds that never go back."""

    __slots__ = ("_clock", "_next", "_sleep")

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0

    def give(self, waiting_bytes: int) -> None:
        """Let the loop's thread run if it is behind. Call this after work was passed to it."""
        if waiting_bytes >= _BACKLOG_BYTES and self._clock() >= self._next:
            self._sleep(_PAUSE_S)
            self._next = self._clock() + _WORK_S
