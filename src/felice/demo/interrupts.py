"""Ctrl-C while Spark runs: it is noted at once and raised between calls to Java.

Keeps true: the first Ctrl-C does not interrupt a call to Java, because py4j would print
            its own traceback, and its connection could not be used for a clean stop.
            A second Ctrl-C interrupts at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType


class HeldInterrupts:
    """A context manager that holds back Ctrl-C. `check` raises it; the end of the block does so at the latest."""

    def __init__(self) -> None:
        self._came = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> HeldInterrupts:
        if _in_main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _in_main_thread():
            signal.signal(signal.SIGINT, self._before)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raises KeyboardInterrupt if Ctrl-C was pressed."""
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True


def _in_main_thread() -> bool:
    # Only the main thread gets signals and may set their handlers.
    return threading.current_thread() is threading.main_thread()
