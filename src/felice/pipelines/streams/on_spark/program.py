"""Runs an App from a program of the user, without `felice run`.

Keeps true: at most one `RunLock` of the application; it is released when the query has ended, however it ended.
How:        a thread follows the query, as `felice run` does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from felice.pipelines.streams.on_spark.changes import NO_CHOICES, Choices, planned
from felice.pipelines.streams.on_spark.directory import checkpoint_of
from felice.pipelines.streams.on_spark.lock import RunLock
from felice.pipelines.streams.on_spark.running import Claim, Running
from felice.pipelines.streams.scope import Scoped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FOLLOW_POLL_S = 0.1


class ApplicationFailed(Exception):
    """An application has ended with an error, whose text this is."""


class RunningApp:
    """An App that runs in this process. As the target of `with` it is stopped at the end of the block."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._failure: str | None = None
        self._has_raised = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"follows {running.app.name}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    @property
    def failure(self) -> str | None:
        """Why it has failed; None if it has not."""
        return self._failure

    @property
    def progress(self) -> dict[str, Any]:
        """The report on the last batch, as `felice streams describe` shows it; empty before the first batch."""
        return self._running.checkpoint.progress()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it ends, at most for `timeout` seconds. Returns whether it has ended.

        Raises `ApplicationFailed` if it has failed.
        """
        # In turns, so that Ctrl-C is noticed.
        until = None if timeout is None else time.monotonic() + timeout
        while not self._ended.wait(FOLLOW_POLL_S):
            if until is not None and time.monotonic() >= until:
                return False
        self._raise_failure()
        return True

    def stop(self) -> None:
        """Stop it after the running batch, and wait for its end. Raises `ApplicationFailed` if it has failed."""
        if self.is_running:
            self._running.checkpoint.stop_path.touch()
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_running:
            self._running.checkpoint.stop_path.touch()
            self._ended.wait()
        if error is None and not self._has_raised:
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._has_raised = True
            raise ApplicationFailed(self._failure)

    def _follow(self) -> None:
        try:
            while not self._running.is_over:
                self._running.step()
                time.sleep(FOLLOW_POLL_S)
            self._failure = self._running.end()
        except Exception as error:  # Spark's Java has ended, or `say` or the disk has failed.
            self._failure = f"{type(error).__name__}: {error}"
            # The lock must not be released while the query runs.
            self._running.abandon()
        finally:
            self._ended.set()


def query_of(claim: Claim, spark: SparkSession, bootstrap: str, **options: Any) -> StreamingQuery:
    """Start the query of an application whose lock is held. `options` are those of `runner.start`."""
    from felice.pipelines.streams.on_spark.runner import start

    claim.lock.note_java(int(spark.sparkContext._jvm.ProcessHandle.current().pid()))  # type: ignore[union-attr]
    query = start(claim.app.scope, spark, bootstrap, claim.checkpoint.path, **options)
    claim.checkpoint.forget_requests()
    return query


def started(
    app: Scoped,
    bootstrap: str,
    checkpoint: Path | str | None,
    *,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    client: Mapping[str, object] = MappingProxyType({}),
    choices: Choices = NO_CHOICES,
    say: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> RunningApp:
    """Start an App; see `App.start`."""
    from felice.pipelines.streams.on_spark.runner import session_for_applications

    kept = checkpoint_of(app.name, checkpoint)
    claim = Claim(app, kept, RunLock(kept, app.name, bootstrap).take(say))
    try:
        if (change := planned(app.scope, kept, choices)) is not None and change.is_seen:
            for line in change.lines():
                say(line)
        session = spark or session_for_applications(app.name, master)
        query = query_of(claim, session, bootstrap, client=client, choices=choices, **options)
        try:
            return RunningApp(Running(claim, query, say))
        except BaseException:
            query.stop()
            raise
    except BaseException:
        claim.lock.release()
        raise
