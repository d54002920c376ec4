"""Runs a stream application on Spark."""

from __future__ import annotations

import re
import runpy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felice.cli.faults import Fault
from felice.cli.options import client_config, connection_options

if TYPE_CHECKING:
    from felice.pipelines.streams.on_spark.directory import Checkpoint
    from felice.pipelines.streams.on_spark.lock import RunLock
    from felice.streams import App

POLL_S = 1.0
STOP_WITHIN_S = 120.0
TELLING = ("CheckpointError", "TopologyError", "StateError", "FormatError")
# What Spark shows of an error without a message, such as the end of a connection to a process that was killed.
_NO_MESSAGE = "(no cause message)"
_ERROR_LINE = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|TornBatch)): (.+)$", re.MULTILINE)


def app_in(path: Path) -> App:
    """The App that a file defines: the one named `app`, or the only one."""
    from felice.streams import App

    # Not imported as a module: functions of a module that workers cannot import would not reach them.
    found = runpy.run_path(str(path), run_name="felice_app")
    apps = {id(value): value for value in found.values() if isinstance(value, App)}
    if isinstance(found.get("app"), App):
        return found["app"]  # type: ignore[no-any-return]
    if len(apps) != 1:
        raise Fault(f"{path} defines {len(apps)} Apps; name the one to run `app`")
    return next(iter(apps.values()))


def checkpoint_at(application: str, directory: Path | None) -> Checkpoint:
    """The checkpoint of an application: the directory, or the default one."""
    from felice.pipelines.streams.on_spark.directory import Checkpoint

    return Checkpoint((directory or Path(f"{application}-checkpoint")).absolute())


@contextmanager
def locked(checkpoint: Checkpoint, application: str, cluster: str | None = None) -> Iterator[RunLock]:
    """Hold the lock of an application."""
    from felice.pipelines.streams.on_spark.lock import RunLock

    with RunLock(checkpoint, application, cluster) as lock:
        yield lock


@contextmanager
def plain_faults() -> Iterator[None]:
    """What is wrong with an application or its checkpoint becomes one line."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ in TELLING:
            raise Fault(str(error)) from None
        raise


def reason_of(text: str) -> str:
    """What stopped a query: the last error in Spark's account of it, which is the one of our code or the user's."""
    errors = _ERROR_LINE.findall(text)
    return f"{errors[-1][0]}: {errors[-1][1]}" if errors else text.strip().splitlines()[0]


def failure_of(query: Any) -> str:
    """What stopped a query; where Spark has no message, which error Java had, and what to look for."""
    reason = reason_of(str(query.exception()))
    if _NO_MESSAGE not in reason:
        return reason
    cause = query._jsq.exception().get()
    while cause.getCause() is not None:
        cause = cause.getCause()
    return (
        f"a process that Spark started for the query has ended ({cause.getClass().getName()}). The operating system "
        "may have killed it, for example because memory was short. Start the application again: it goes on after its "
        "last finished batch"
    )


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@connection_options
@click.option(
    "--master", default="local[*]", show_default=True, help="Where Spark runs: local[N] or spark://host:7077."
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="Directory for offsets and state. Without it: NAME-checkpoint in the current directory.",
)
@click.option(
    "--partitions", type=click.IntRange(1), help="Tasks of each part with state; the first start fixes it."
)
@click.option(
    "--trigger-ms", type=click.IntRange(0), default=0, show_default=True, help="Least time between batches."
)
@click.option("--until-caught-up", is_flag=True, help="End when all records that exist now are processed.")
@click.option("--describe", is_flag=True, help="Print the topology and end.")
def run(
    file: Path,
    bootstrap: str,
    command_config: Path | None,
    master: str,
    checkpoint: Path | None,
    partitions: int | None,
    trigger_ms: int,
    until_caught_up: bool,
    describe: bool,
) -> None:
    """Run the stream application that a Python file defines, on Spark.

    Ctrl-C or SIGTERM stops it after the batch that is running. Started again with the same checkpoint, it goes on where
    it stopped. If it fails, the reason is printed and the exit code is 1.

    \b
    felice run wordcount.py --until-caught-up
    felice run wordcount.py --describe
    felice run wordcount.py --command-config alice.properties
    """
    app = app_in(file)
    if describe:
        click.echo(app.describe())
        return
    checkpoint_of_app = checkpoint_at(app.name, checkpoint)
    options = {
        "client": client_config(bootstrap, command_config),
        "partitions": partitions,
        "until_caught_up": until_caught_up,
        "trigger_ms": trigger_ms,
    }
    with plain_faults(), locked(checkpoint_of_app, app.name, bootstrap) as lock:
        query = _started(app, master, bootstrap, checkpoint_of_app, lock, options)
        click.echo(f"{app.name} is running", err=True)
        _Run(query, checkpoint_of_app).follow()


def _started(
    app: App, master: str, bootstrap: str, checkpoint: Checkpoint, lock: RunLock, options: dict[str, Any]
) -> Any:
    from felice.pipelines.streams.on_spark.runner import SPARK_CONFIG, start
    from felice.spark import session

    for path in (checkpoint.stop_path, checkpoint.progress_path):  # Of the run before.
        path.unlink(missing_ok=True)
    spark = session(app.name, master, config=SPARK_CONFIG)
    lock.note_java(int(spark.sparkContext._jvm.ProcessHandle.current().pid()))  # type: ignore[union-attr]
    return start(app, spark, bootstrap, checkpoint.path, **options)


class _Run:
    """A query that is followed to its end."""

    def __init__(self, query: Any, checkpoint: Checkpoint) -> None:
        self._query, self._checkpoint = query, checkpoint
        description = checkpoint.description()
        assert description is not None, "starting wrote it"
        self._state = checkpoint.state_path(description)
        self._told = -1

    def follow(self) -> None:
        """Print progress until the query ends; stop it when asked to. Raises a `Fault` if the query fails."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        try:
            self._follow()
        except (Py4JError, ConnectionError, EOFError) as error:
            raise self._failed(f"Spark's Java has ended ({type(error).__name__})") from None

    def _follow(self) -> None:
        try:
            self._wait()
        except KeyboardInterrupt:
            self._stop()
        except Exception:
            # The failure of the query. What is no failure of the query is raised again.
            if self._query.exception() is None:
                raise
        self._tell()
        if self._query.exception() is not None:
            raise self._failed(failure_of(self._query))

    def _wait(self) -> None:
        while self._query.isActive:
            self._tell()
            if self._checkpoint.stop_path.exists():
                self._stop()
                self._checkpoint.stop_path.unlink(missing_ok=True)
                return
            self._query.awaitTermination(POLL_S)

    def _failed(self, reason: str) -> Fault:
        self._checkpoint.report(self._checkpoint.progress() | {"failure": reason})
        return Fault(reason)

    def _tell(self) -> None:
        """Print the batches that have not been told, and report the last."""
        from felice.pipelines.streams.on_spark.progress import report_of

        report = None
        for progress in self._query.recentProgress:
            if progress["batchId"] > self._told and (report := report_of(progress, self._state)):
                click.echo(report.line(), err=True)
                self._told = report.batch
        if report is not None:
            self._checkpoint.report(report.document())

    def _stop(self) -> None:
        """After the running batch, as far as that can be waited for: a batch that is cut off runs again."""
        click.echo("stopping after this batch", err=True)
        running = self._last_batch()
        deadline = time.monotonic() + STOP_WITHIN_S
        while self._is_busy() and self._last_batch() == running and time.monotonic() < deadline:
            time.sleep(0.02)
        self._query.stop()

    def _is_busy(self) -> bool:
        return bool(self._query.isActive and self._query.status["isTriggerActive"])

    def _last_batch(self) -> int:
        progress = self._query.lastProgress
        return -1 if progress is None else int(progress["batchId"])
