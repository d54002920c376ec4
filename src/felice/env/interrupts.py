"""Ctrl-C and SIGTERM while Spark runs: noted at once, and raised between calls to Java. Java ignores both.

PySpark makes Java ignore Ctrl-C, and `children_ignore_sigterm` makes it ignore SIGTERM.

Keeps true: the first signal does not interrupt a call to Java. py4j would print its own traceback, and would take the
            response of the interrupted call for that of the next one, so that a clean stop failed.
            A second signal interrupts at once, or ends the process (`end_at_once`).
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
from typing import NoReturn, TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], object]
_HANDLED = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2
_INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


@contextmanager
def handled_by(handler: _Handler) -> Iterator[None]:
    """Let `handler` handle Ctrl-C and SIGTERM in the block. Has no effect outside the main thread, because only the
    main thread gets signals and may set their handlers.
    """
    numbers = _HANDLED if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """A handler that ends the process without cleaning up, as if it had crashed.

    KeyboardInterrupt in a call to Java would lead to more such calls: py4j and PySpark print their tracebacks, and the
    end takes seconds. Java ends by itself when its standard input closes.
    """
    try:
        os.write(_STDERR, b"\nAborted!\n")  # `sys.stderr` may be in the middle of a call.
    finally:
        os._exit(_INTERRUPTED)


class HeldInterrupts:
    """A context manager that holds Ctrl-C and SIGTERM back until `check` or `came`, or until the end of its block.

    `again` handles a second signal. By default it raises KeyboardInterrupt.
    """

    def __init__(self, again: _Handler = signal.default_int_handler) -> None:
        self._again = again
        self._came = self._is_told = False
        self._handled = handled_by(self._note)

    def __enter__(self) -> HeldInterrupts:
        self._handled.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handled.__exit__(kind, error, trace)
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
            self._again(number, frame)
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
