"""Follows the applications of one process until they end.

Keeps true: an application that fails or is stopped releases its lock, and the others continue.
            A failure is printed at once and again at the end, and the exit code is 1.
How:        each application has a query of its own, and is reported and stopped alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from felice.cli.faults import Fault, describe_fault
from felice.dataclass import dataclass

if TYPE_CHECKING:
    from felice.pipelines.streams.on_spark.directory import Checkpoint
    from felice.pipelines.streams.on_spark.lock import RunLock
    from felice.streams import App

T = TypeVar("T")
R = TypeVar("R")

BUSY_POLL_S = 0.02
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

    app: App
    checkpoint: Checkpoint
    lock: RunLock


class Running:
    """An application whose query is followed to its end."""

    def __init__(self, claim: Claim, query: Any, say: Callable[[str], None]) -> None:
        self._claim, self._query, self._say = claim, query, say
        from felice.pipelines.streams.on_spark.progress import Totals

        description = claim.checkpoint.description()
        assert description is not None, "starting wrote it"
        self._state: Path = claim.checkpoint.state_path(description)
        self._reported, self._totals = -1, Totals()
        self._cut: tuple[int, float] | None = None
        """While it stops: its last batch at the time of the request, and the deadline for the end of that batch."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, to which reports are written, and in which commands leave requests."""
        return self._claim.checkpoint

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
        self.checkpoint.stop_path.unlink(missing_ok=True)
        # Java continues with other applications, so the next start of this application must not wait for Java's end.
        self._claim.lock.note_java(None)
        self.release()
        return failure

    def release(self) -> None:
        """Release the application's lock."""
        self._claim.lock.release()

    def report_failure(self, reason: str) -> None:
        """Write the reason of a failure to the checkpoint, for `felice streams describe`."""
        self.checkpoint.report(self.checkpoint.progress() | {"failure": reason})

    def _report(self) -> None:
        from felice.pipelines.streams.on_spark.progress import report_of

        last = None
        for progress in self._query.recentProgress:
            # Spark also reports triggers without rows. The next batch has the same number.
            if progress["batchId"] <= self._reported or not progress["numInputRows"]:
                continue
            self._totals.add(progress)
            if report := report_of(progress, self._state, self._totals):
                self._say(report.line())
                self._reported, last = report.batch, report
        if last is not None:
            self.checkpoint.report(last.document())

    def _is_worth_waiting(self, last_batch: int, deadline: float) -> bool:
        return self._is_busy() and self._last_batch() == last_batch and time.monotonic() < deadline

    def _is_busy(self) -> bool:
        return bool(self._query.isActive and self._query.status["isTriggerActive"])

    def _last_batch(self) -> int:
        progress = self._query.lastProgress
        return -1 if progress is None else int(progress["batchId"])


@dataclass(slots=True)
class Changes:
    """The changes after the file was read again, by names of applications; `failed` has reasons."""

    started: list[str] = field(default_factory=list)
    stopping: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Steps:
    """The functions that find and start applications."""

    read: Callable[[], list[App]]
    """The Apps that the file defines now."""
    claim: Callable[[App], Claim]
    """Takes the lock of an App."""
    start: Callable[[Claim], Any]
    """Starts the query of an App."""
    wait: Callable[[], None]
    """Returns after a while, or when a query ends."""
    is_interrupted: Callable[[], bool]
    """Whether Ctrl-C or SIGTERM came."""


class Applications:
    """The applications that this process runs."""

    def __init__(self, steps: Steps, *, are_many: bool) -> None:
        self._steps, self._are_many = steps, are_many
        self._running: dict[str, Running] = {}
        self._failures: dict[str, str] = {}

    def claim(self, apps: list[App]) -> list[Claim]:
        """Take the locks. With one App an error is raised; with several it is printed, and the other Apps continue."""
        claims = [self._attempt(app.name, self._steps.claim, app) for app in apps]
        return [claim for claim in claims if claim is not None]

    def start(self, claim: Claim) -> bool:
        """Start an application. Returns whether it runs."""
        name = claim.app.name
        try:
            query = self._attempt(name, self._steps.start, claim)
            if query is not None:
                self._running[name] = Running(claim, query, partial(self._say, name))
        finally:
            if name not in self._running:
                claim.lock.release()
        if name in self._running:
            self._failures.pop(name, None)
            click.echo(f"{name} is running", err=True)
        return name in self._running

    def follow(self) -> None:
        """Follow the applications until the last query has ended. Raises a `Fault` that names those that failed."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        try:
            while self._running:
                self._follow_once()
        except (Py4JError, ConnectionError, EOFError) as error:
            self._fail_all(f"Spark's Java has ended ({type(error).__name__})")
        finally:
            for one in self._running.values():
                one.release()
        if self._failures:
            raise Fault(self._all_failures())

    def reload(self) -> Changes:
        """Read the file again: start its Apps that do not run, and stop Apps that it no longer defines."""
        changes = Changes()
        self._are_many = True
        try:
            apps = {app.name: app for app in self._steps.read()}
        except Exception as error:
            changes.failed["the file"] = _reason(error)
            return changes
        for app in apps.values():
            if app.name not in self._running:
                self._add(app, changes)
        for name, one in self._running.items():
            if name not in apps:
                one.ask_to_stop()
                changes.stopping.append(name)
        return changes

    def _add(self, app: App, changes: Changes) -> None:
        if any(self.start(claim) for claim in self.claim([app])):
            changes.started.append(app.name)
        else:
            changes.failed[app.name] = self._failures[app.name]

    def _follow_once(self) -> None:
        if self._steps.is_interrupted():
            for one in self._running.values():
                one.ask_to_stop()
        for name, one in list(self._running.items()):
            self._step(name, one)
        if any(one.is_stopping for one in self._running.values()):
            time.sleep(BUSY_POLL_S)
        elif self._running:
            self._steps.wait()

    def _step(self, name: str, one: Running) -> None:
        one.step()
        if one.checkpoint.reload_path.exists():
            one.checkpoint.answer_reload(asdict(self.reload()))
        if one.is_over:
            del self._running[name]
            if (failure := one.end()) is not None:
                self._fail(name, failure)

    def _attempt(self, name: str, step: Callable[[T], R], given: T) -> R | None:
        try:
            return step(given)
        except Exception as error:
            if not self._are_many:
                raise
            self._fail(name, _reason(error))
            return None

    def _fail(self, name: str, reason: str) -> None:
        self._failures[name] = reason
        if self._are_many:
            others = ", ".join(self._running) or "none"
            click.echo(f"error: {name} has failed; still running: {others}\n{reason}", err=True)

    def _say(self, name: str, text: str) -> None:
        click.echo(f"{name}: {text}" if self._are_many else text, err=True)

    def _fail_all(self, reason: str) -> None:
        while self._running:
            name, one = self._running.popitem()
            one.report_failure(reason)
            one.release()
            self._fail(name, reason)

    def _all_failures(self) -> str:
        if not self._are_many:
            return next(iter(self._failures.values()))
        return "\n".join(f"{name} has failed: {reason}" for name, reason in self._failures.items())


def _reason(error: Exception) -> str:
    return describe_fault(error) or f"{type(error).__name__}: {error}"
