"""Ctrl-C and SIGTERM while Spark runs: noted at once, and raised between calls to Java. Java ignores both.

PySpark makes Java ignore Ctrl-C, and `children_ignore_sigterm` makes it ignore SIGTERM.

Keeps true: the first signal does not interrupt a call to Java. py4j would print its own traceback, and would take the
            response of the interrupted call for that of the next one, so that a clean stop failed.
            A second signal interrupts at once.
            A service manager that sends SIGTERM to all processes of a service lets Spark finish its batch.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType, TracebackType

_HELD = (signal.SIGINT, signal.SIGTERM)


class HeldInterrupts:
    """A context manager that holds Ctrl-C and SIGTERM back until `check` or `came`, or until the end of its block."""

    def __init__(self) -> None:
        self._came = self._is_told = False
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> HeldInterrupts:
        if _in_main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _HELD}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came and `came` has not returned True yet."""
        if self._came and not self._is_told:
            raise KeyboardInterrupt

    def came(self) -> bool:
        """Whether a signal came. If so, the caller must stop by itself: the end of the block does not raise."""
        self._is_told = self._came
        return self._came

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True


_do_children_ignore = False


@contextmanager
def children_ignore_sigterm() -> Iterator[None]:
    """Processes that start in this block ignore SIGTERM, and so do the processes that they start. They must end in
    another way, for example with their standard input.

    This holds for `subprocess.Popen` with a `preexec_fn`, as PySpark starts Java, and for `os.fork`.
    """
    global _do_children_ignore
    _register_once()
    _do_children_ignore = True
    try:
        yield
    finally:
        _do_children_ignore = False


@cache
def _register_once() -> None:
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    if _do_children_ignore:
        # If SIGTERM is ignored when Java starts, Java keeps ignoring it. Python's daemon of workers sets a handler, so
        # the signal is blocked, too.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _in_main_thread() -> bool:
    # Only the main thread gets signals and may set their handlers.
    return threading.current_thread() is threading.main_thread()
