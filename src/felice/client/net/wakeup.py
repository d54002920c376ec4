"""Wakes the thread of an application that waits for the client's event loop.

Keeps true:  An interrupt (Ctrl-C) at any moment leaves no lock behind. `threading.Condition` would: its `__enter__` is
             Python code, and an interrupt between its two last instructions leaves the lock held, so that the event
             loop waits for it forever.
             A wait ends at its limit, also if several threads wait. That of `queue.SimpleQueue` does not: a thread
             whose item was taken by another may wait without a limit (Python 3.11).
How:         A lock that `set` releases and `wait` acquires, each in a single call into C.
"""

from __future__ import annotations

import contextlib
import threading


class Wakeup:
    """A `set` ends one `wait`, which is under way or comes next. After it the thread checks its condition again."""

    def __init__(self) -> None:
        self._token = threading.Lock()
        self._token.acquire()

    def set(self) -> None:
        """Wake one thread that waits, or let the next wait end at once."""
        with contextlib.suppress(RuntimeError):  # it is released already
            self._token.release()

    def wait(self, timeout_s: float) -> None:
        """Wait until `set` is called, at most `timeout_s` seconds. It may also end for a `set` in the past."""
        self._token.acquire(timeout=timeout_s)
