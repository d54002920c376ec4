"""A time limit that a connection sets again for each event that it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls a function after a time, unless the deadline is set again or cancelled before."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether the deadline was set and not cancelled, even if its time is over."""
        return self._timer is not None

    def set(self, seconds: float, end: Callable[[], None]) -> None:
        """Call `end` after this many seconds. A function that was set before is not called."""
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, end)

    def cancel(self) -> None:
        """Call nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
