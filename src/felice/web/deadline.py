"""One limit of time that is set again and again, as a connection waits for one thing after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls a function after a time, unless it is set again or cancelled before."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether it was set, and not cancelled since; also when its time is over."""
        return self._timer is not None

    def set(self, seconds: float, end: Callable[[], None]) -> None:
        """Call `end` after so many seconds, and no longer what was to be called before."""
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, end)

    def cancel(self) -> None:
        """Call nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
