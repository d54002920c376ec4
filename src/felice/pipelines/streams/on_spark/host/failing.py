"""The error that names the Apps which failed, as it passes from a worker through Spark's Java to the driver; and the
time limit of an App's code. An App whose code exceeds the limit has failed.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType

from felice.dataclass import dataclass
from felice.pipelines.errors import PlainError

_MARK = "HostedAppsFailed: "
_LINE = re.compile(rf"{_MARK}(\{{.*\}})")


class HostedAppsFailed(PlainError):
    """Apps that failed. The text is a document, since Spark passes errors on as texts."""

    def __init__(self, incarnations: Sequence[str], error: str, is_overdue: bool = False) -> None:
        found = {"apps": list(incarnations), "error": error, "overdue": is_overdue}
        super().__init__(json.dumps(found))

    def __reduce__(self) -> tuple[type[HostedAppsFailed], tuple[list[str], str, bool]]:
        found = json.loads(str(self))
        return HostedAppsFailed, (found["apps"], found["error"], found["overdue"])


@dataclass(frozen=True, slots=True)
class Failed:
    """What the driver reads from the text of `HostedAppsFailed`."""

    incarnations: tuple[str, ...]
    error: str
    is_overdue: bool = False
    """Whether the code of these Apps exceeded its time limit, so that all other Apps waited."""


def failed_in(text: str) -> Failed | None:
    """The Apps that an error of Spark names, if any."""
    if (found := _LINE.search(text)) is None:
        return None
    try:
        document = json.loads(found[1])
    except ValueError:
        return None
    return Failed(tuple(document["apps"]), document["error"], document["overdue"])


class Overdue(BaseException):
    """An App's code exceeded its time limit. A `BaseException`, because the App's code may catch every `Exception`."""


_TOLD_CALLS = 2
_AGAIN_S = 1.0
"""The time between two signals. Code that catches every exception gets further signals."""


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """Raise `Overdue` in this block when it takes longer than `limit_s`. This interrupts code of Python, also while it
    waits. Code of other languages goes on until it returns to Python.

    A signal can do so in the main thread, in which Spark runs the tasks of its workers. Elsewhere there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    told = list[str]()

    def end(number: int, frame: FrameType | None) -> None:
        called = [
            f"{one.name} ({one.filename}, line {one.lineno})"
            for one in reversed(traceback.extract_stack(frame, _TOLD_CALLS))
        ]
        told.append(
            f"no result within {limit_s:g} s, while all others wait; it was in {', called by '.join(called)}"
        )
        raise Overdue(told[0])

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Exception as error:
        if told:  # A task catches what a record raises, and names the record.
            raise Overdue(str(error)) from None
        raise
    finally:  # The signal may have come at the end of the block, before the timer was ended.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if told:
        # The code has caught `Overdue`, perhaps as an error of a skipped record. The next run may not catch it.
        raise Overdue(told[0])


@contextmanager
def named(incarnation: str, limit_s: float | None = None) -> Iterator[None]:
    """Adds the name of the App to an error of this block, even if the block exceeds the time limit."""
    try:
        with nullcontext() if limit_s is None else within(limit_s):
            yield
    except HostedAppsFailed:
        raise
    except Overdue as error:
        raise HostedAppsFailed([incarnation], str(error), True) from None
    except Exception as error:
        text = str(error) if isinstance(error, PlainError) else f"{type(error).__name__}: {error}"
        raise HostedAppsFailed([incarnation], text) from None
