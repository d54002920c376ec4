"""Follows the query of one application: reports its batches, stops it after a batch, and says why it failed.

Keeps true: each batch is reported once. A stop waits for the running batch, at most for `STOP_WITHIN_S`: an interrupted
            batch runs again at the next start.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.on_spark.checkpoint_copy import copy_of
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError
from felice.pipelines.streams.on_spark.lease import valid_epoch
from felice.pipelines.streams.on_spark.lock import RunLock
from felice.pipelines.streams.on_spark.places import PlaceError
from felice.pipelines.streams.on_spark.progress import Totals, report_of, sizes_of
from felice.pipelines.streams.on_spark.state import Size
from felice.pipelines.streams.scope import Scoped

STOP_WITHIN_S = 120.0
# Spark's text for an error without a message, such as the end of a connection to a process that was killed.
_NO_MESSAGE = "(no cause message)"
# Spark's text if a Python process that it started has not reported within some ten seconds.
_NOT_STARTED = "Python worker failed to connect back"
_GOES_ON = "Start the application again: it goes on after its last finished batch"
_ERROR_LINE = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)|DataLoss|TornBatch): (.+)$", re.MULTILINE)


def reason_of(text: str) -> str:
    """Why a query failed: the last error in Spark's text, which is the error of our code or of the user's."""
    errors = _ERROR_LINE.findall(text)
    return f"{errors[-1][0]}: {errors[-1][1]}" if errors else text.strip().splitlines()[0]


def failure_of(query: Any) -> str:
    """Why a query failed. If Spark does not say it: the likely cause, and what to do."""
    text = str(query.exception())
    if _NOT_STARTED in text:
        return (
            "a Python process that Spark started did not report in time. The machine may have been too busy, or the "
            f"process has ended. {_GOES_ON}"
        )
    reason = reason_of(text)
    if _NO_MESSAGE not in reason:
        return reason
    cause = query._jsq.exception().get()
    while cause.getCause() is not None:
        cause = cause.getCause()
    return (
        f"a process that Spark started for the query has ended ({cause.getClass().getName()}). The operating system "
        f"may have killed it, for example because memory was short. {_GOES_ON}"
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """An App, its checkpoint, and the lock on the checkpoint, which this process holds."""

    app: Scoped
    checkpoint: Checkpoint
    lock: RunLock


class Running:
    """An application whose query is followed to its end."""

    def __init__(self, claim: Claim, query: Any, say: Callable[[str], None]) -> None:
        self._claim, self._query, self._say = claim, query, say
        description = claim.checkpoint.description()
        assert description is not None, "starting wrote it"
        self._description = description
        self._reported, self._totals = -1, Totals()
        self._cut: tuple[int, float] | None = None
        """While it stops: its last batch at the time of the request, and the deadline for the end of that batch."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, to which reports are written, and in which commands leave requests."""
        return self._claim.checkpoint

    @property
    def app(self) -> Scoped:
        """The application."""
        return self._claim.app

    @property
    def has_finished_batch(self) -> bool:
        """Whether it has finished a batch since it was started."""
        return self._reported >= 0

    @property
    def is_stopping(self) -> bool:
        """Whether the application was asked to stop."""
        return self._cut is not None

    @property
    def is_over(self) -> bool:
        """Whether the query has ended."""
        return not self._query.isActive

    def ask_to_stop(self) -> None:
        """Stop the application after its running batch, or after STOP_WITHIN_S.

        An interrupted batch runs again at the next start.
        """
        if self._cut is None:
            self._say("stopping after this batch")
            self._cut = self._last_batch(), time.monotonic() + STOP_WITHIN_S

    def step(self) -> None:
        """Print new batches. Stop the query if a stop was requested and no batch runs."""
        self._report()
        if self.checkpoint.stop_path.exists():
            self.ask_to_stop()
        if self._cut is not None and not self._is_worth_waiting(*self._cut):
            self._query.stop()

    def end(self) -> str | None:
        """Release the lock. Returns why the query failed; None if it was stopped or has caught up."""
        self._report()
        failure = None if self._query.exception() is None else failure_of(self._query)
        if failure is not None:
            self.report_failure(failure)
        self._copy()
        self.checkpoint.stop_path.unlink(missing_ok=True)
        # Java continues with other applications, so the next start of this application must not wait for Java's end.
        self._claim.lock.note_java(None)
        self.release()
        return failure

    def _copy(self) -> None:
        """Spark has noted the last batch as done, so the next start need not run it again."""
        if (copy := copy_of(self.checkpoint, self.app.name)) is not None:
            with suppress(CheckpointError, PlaceError, OSError):  # Then the next start runs it again.
                copy.push(valid_epoch(copy.directory))

    def abandon(self) -> None:
        """End the query at once, and release the lock. A batch that runs now runs again at the next start."""
        with suppress(Exception):  # Without Java there is no query.
            self._query.stop()
        self.release()

    def release(self) -> None:
        """Release the application's lock."""
        self._claim.lock.release()

    def report_failure(self, reason: str) -> None:
        """Write the reason of a failure to the checkpoint, for `felice streams describe`."""
        self.checkpoint.report(self.checkpoint.progress() | {"failure": reason})

    def _report(self) -> None:
        last = None
        for progress in self._query.recentProgress:
            # Spark also reports triggers without rows. The next batch has the same number.
            if progress["batchId"] <= self._reported or not progress["numInputRows"]:
                continue
            self._totals.add(progress)
            if report := report_of(progress, self._sizes(), self._totals):
                self._say(report.line())
                self._reported, last = report.batch, report
        if last is not None:
            self.checkpoint.report(last.document())

    def _sizes(self) -> list[Size]:
        return list(sizes_of(self.checkpoint, self._description).values())

    def _is_worth_waiting(self, last_batch: int, deadline: float) -> bool:
        return self._is_busy() and self._last_batch() == last_batch and time.monotonic() < deadline

    def _is_busy(self) -> bool:
        return bool(self._query.isActive and self._query.status["isTriggerActive"])

    def _last_batch(self) -> int:
        progress = self._query.lastProgress
        return -1 if progress is None else int(progress["batchId"])
