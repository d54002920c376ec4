"""Ctrl-C while Spark runs: noted at once, acted upon between calls to Java.

Keeps true: no call to Java is broken off by the first Ctrl-C, since that would print
            py4j's own traceback and leave the connection unusable for a clean stop.
            A second one interrupts at once, whatever runs.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class HeldInterrupts:
    """`with` it, `check` between calls; one that came is raised at the end at the latest."""

    def __init__(self) -> None:
        self._came = False
        self._before: Any = None

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
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True


def _in_main_thread() -> bool:
    # Python gives signals to no other thread, and lets no other set their handlers.
    return threading.current_thread() is threading.main_thread()
