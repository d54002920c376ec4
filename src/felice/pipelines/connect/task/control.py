"""What others may tell a running task: to pause, to go on, to stop. Safe to use from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Control:
    """The wishes of the worker for one task."""

    def __init__(self, *, paused: bool = False) -> None:
        self._changed = threading.Condition()
        self._paused = paused
        self._stopping = False
        self._on_stop: Callable[[], None] | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the task shall wait."""
        return self._paused

    @property
    def is_stopping(self) -> bool:
        """Whether the task shall end."""
        return self._stopping

    def pause(self) -> None:
        """Makes the task wait."""
        self._set(paused=True)

    def resume(self) -> None:
        """Makes the task go on."""
        self._set(paused=False)

    def stop(self) -> None:
        """Makes the task end. Further calls do nothing."""
        with self._changed:
            if self._stopping:
                return
            self._stopping = True
            on_stop = self._on_stop
            self._changed.notify_all()
        if on_stop is not None:
            on_stop()

    def call_at_stop(self, on_stop: Callable[[], None]) -> None:
        """Calls this once when the task shall end; at once if it shall already."""
        with self._changed:
            self._on_stop = on_stop
            stopping = self._stopping
        if stopping:
            on_stop()

    def wait_s(self, seconds: float) -> None:
        """Waits so long, or until something changes."""
        with self._changed:
            if not self._stopping:
                self._changed.wait(seconds)

    def wait_while_paused(self) -> None:
        """Returns when the task shall go on or end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or not self._paused)

    def now_s(self) -> float:
        """The time of a clock that never goes back, in seconds."""
        return time.monotonic()

    def _set(self, *, paused: bool) -> None:
        with self._changed:
            self._paused = paused
            self._changed.notify_all()
