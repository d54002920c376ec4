"""Follows the applications of one process until they end.

Keeps true: an application that fails or is stopped releases its lock, and the others continue.
            A failure is printed at once and again at the end, and the exit code is 1.
How:        each application has a query of its own, and is reported and stopped alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from felice.cli.faults import Fault, describe_fault
from felice.dataclass import dataclass

if TYPE_CHECKING:
    from felice.pipelines.streams.on_spark.running import Claim, Running
    from felice.pipelines.streams.scope import Scoped

T = TypeVar("T")
R = TypeVar("R")

_OUTAGE = "PlaceError"
"""The place of a checkpoint's copy, or of the state, does not answer."""
BUSY_POLL_S = 0.02
LONGEST_PAUSE_S = 60.0
"""Between two starts of an application that fails again and again. The first pause is a second, and each is twice as
long as the one before.
"""


@dataclass(slots=True)
class Changes:
    """The changes after the file was read again, by names of applications; `failed` has reasons."""

    started: list[str] = field(default_factory=list)
    stopping: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Steps:
    """The functions that find and start applications."""

    read: Callable[[], Sequence[Scoped]]
    """The Apps that the file defines now."""
    claim: Callable[[Scoped], Claim]
    """Takes the lock of an App."""
    start: Callable[[Claim], Any]
    """Starts the query of an App."""
    wait: Callable[[], None]
    """Returns after a while, or when a query ends."""
    is_interrupted: Callable[[], bool]
    """Whether Ctrl-C or SIGTERM came."""


class Restart(NamedTuple):
    """An application that has failed and will be started again."""

    app: Scoped
    at: float
    """By the monotonic clock."""
    failure: str


class Applications:
    """The applications that this process runs."""

    def __init__(self, steps: Steps, *, are_many: bool, restarts: int = 0) -> None:
        self._steps, self._are_many, self._restarts = steps, are_many, restarts
        self._running: dict[str, Running] = {}
        self._failures: dict[str, str] = {}
        self._in_a_row: dict[str, int] = {}
        """How often each application was started again without finishing a batch."""
        self._due: dict[str, Restart] = {}

    def claim(self, apps: Sequence[Scoped]) -> list[Claim]:
        """Take the locks. With one App an error is raised; with several it is printed, and the other Apps continue."""
        # At once, because each may wait for the machine that held the lease of its checkpoint's copy.
        with ThreadPoolExecutor(max(1, len(apps))) as threads:
            claims = threads.map(lambda app: self._attempt(app.name, self._steps.claim, app), apps)
            return [claim for claim in claims if claim is not None]

    def start(self, claim: Claim) -> bool:
        """Start an application. Returns whether it runs."""
        from felice.pipelines.streams.on_spark.running import Running

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
            while self._running or self._due:
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
                self._due.pop(app.name, None)
                self._add(app, changes)
        for name in self._due.keys() - apps.keys():
            del self._due[name]
        for name, one in self._running.items():
            if name not in apps:
                one.ask_to_stop()
                changes.stopping.append(name)
        return changes

    def _add(self, app: Scoped, changes: Changes) -> None:
        if any(self.start(claim) for claim in self.claim([app])):
            changes.started.append(app.name)
        else:
            changes.failed[app.name] = self._failures[app.name]

    def _follow_once(self) -> None:
        if self._steps.is_interrupted():
            for one in self._running.values():
                one.ask_to_stop()
            while self._due:
                name, restart = self._due.popitem()
                self._fail(name, restart.failure)
        self._start_again()
        for name, one in list(self._running.items()):
            self._step(name, one)
        if any(one.is_stopping for one in self._running.values()):
            time.sleep(BUSY_POLL_S)
        elif self._running:
            self._steps.wait()
        elif self._due:
            time.sleep(BUSY_POLL_S)

    def _step(self, name: str, one: Running) -> None:
        one.step()
        if one.checkpoint.reload_path.exists():
            one.checkpoint.answer_reload(asdict(self.reload()))
        if one.is_over:
            del self._running[name]
            if (failure := one.end()) is not None:
                self._after_failure(name, one, failure)

    def _after_failure(self, name: str, one: Running, failure: str) -> None:
        """Start the application again later, if it has not failed too often."""
        if one.has_finished_batch:
            self._in_a_row.pop(name, None)
        if one.is_stopping:
            self._fail(name, failure)
        else:
            self._fail_or_wait(one.app, failure)

    def _fail_or_wait(self, app: Scoped, failure: str) -> None:
        name = app.name
        in_a_row = self._in_a_row.get(name, 0)
        if in_a_row >= self._restarts:
            self._fail(name, failure)
            return
        pause_s = min(LONGEST_PAUSE_S, 2.0**in_a_row)
        self._in_a_row[name] = in_a_row + 1
        self._due[name] = Restart(app, time.monotonic() + pause_s, failure)
        attempt = f"attempt {in_a_row + 1} of {self._restarts}"
        self._say(name, f"failed, starts again in {pause_s:g} s ({attempt}): {failure}")

    def _start_again(self) -> None:
        for name, restart in list(self._due.items()):
            if restart.at <= time.monotonic():
                del self._due[name]
                try:
                    for claim in self.claim([restart.app]):
                        self.start(claim)
                except Exception as error:
                    if type(error).__name__ == _OUTAGE:
                        self._fail_or_wait(restart.app, _reason(error))
                    else:
                        self._fail(name, _reason(error))

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
        while self._due:
            name, restart = self._due.popitem()
            self._fail(name, restart.failure)
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
