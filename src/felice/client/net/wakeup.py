"""Wakes the thread of an application that waits for the client's event loop.

Keeps true:  An interrupt (Ctrl-C) at any moment leaves no lock behind. `threading.Condition` would: its `__enter__` is
             Python code, and an interrupt between its two last instructions leaves the lock held, so that the event
             loop waits for it forever.
How:         A `SimpleQueue`, whose operations are single calls into C, holds at most a few tokens.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Wakeup:
    """A `set` ends one `wait`, which is under way or comes next. After it the thread checks its condition again."""

    def __init__(self) -> None:
        self._tokens: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Wake one thread that waits, or let the next wait end at once."""
        if self._tokens.empty():
            self._tokens.put(None)

    def wait(self, timeout_s: float) -> None:
        """Wait until `set` is called, at most `timeout_s` seconds. It may also end for a `set` in the past."""
        try:
            self._tokens.get(timeout=timeout_s)
        except Empty:
            return
