"""Pauses that a producing thread makes for the event loop's thread.

Keeps true:  A thread pauses only while at least `_BACKLOG_BYTES` wait to be sent. A pause takes 0.2 ms, and at least
             1 ms of work lies between two pauses.
             While the event loop's thread appends the records that were held for a topic, each new record of that topic
             pauses for 1 ms: otherwise new records are held as fast as old ones are appended, without end.
Why:         A thread that computes gives the interpreter's lock to a waiting thread only after 5 ms
             (`sys.getswitchinterval`), and the event loop's thread needs the lock again after each system call. Without
             pauses, a program that only produces queues several megabytes in fresh memory for each megabyte that is
             sent, and waits at its end until the queued records are sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_BACKLOG_BYTES = 4_000_000
_PAUSE_S = 0.0002
_WORK_S = 0.001
_CATCH_UP_S = 0.001


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

    def let_catch_up(self) -> None:
        """Let the loop's thread append held records. Call this after a record was held behind them."""
        self._sleep(_CATCH_UP_S)
