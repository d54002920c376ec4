"""Runs the stream applications of a file on Spark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felice.cli.application_file import apps_in, modules_beside
from felice.cli.faults import Fault, describe_fault
from felice.cli.options import client_config, connection_options
from felice.cli.running import Applications, Steps
from felice.cli.sql_program import SUFFIX, apps_in_sql
from felice.dataclass import dataclass
from felice.env.interrupts import HeldInterrupts, end_at_once, handled_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from felice.pipelines.streams.on_spark.changes import Choices
    from felice.pipelines.streams.on_spark.directory import Checkpoint
    from felice.pipelines.streams.on_spark.lock import RunLock
    from felice.pipelines.streams.on_spark.running import Claim
    from felice.pipelines.streams.scope import Scoped
    from felice.streams import App

POLL_S = 1.0
BROKER_WITHIN_S = 30.0
_BROKER_POLL_S = 0.5
_MOVED = (
    "{name} has run with the checkpoint {other}, and would begin again with {chosen}: move {other} to {chosen}. "
    "(An App that runs alone uses the directory of --checkpoint itself; several Apps use NAME-checkpoint in it)"
)
EXPLAINED = ("CheckpointError", "TopologyError", "StateError", "FormatError", "OutsideError", "PlaceError")


def checkpoint_at(application: str, location: Path | str | None) -> Checkpoint:
    """The checkpoint in the directory `location`, or in the default one. An address is that of its copy."""
    from felice.pipelines.streams.on_spark.directory import checkpoint_of

    return checkpoint_of(application, location)


@contextmanager
def locked(
    checkpoint: Checkpoint, application: str, cluster: str | None = None, *, pulls: bool = True
) -> Iterator[RunLock]:
    """Hold the lock of an application. With `pulls`, the directory is first replaced by its copy, if it has one."""
    from felice.pipelines.streams.on_spark.lock import RunLock

    with RunLock(checkpoint, application, cluster, pulls=pulls) as lock:
        yield lock


@contextmanager
def plain_faults() -> Iterator[None]:
    """Errors in an application or its checkpoint become a `Fault`, which is printed as one line."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ in EXPLAINED:
            raise Fault(str(error)) from None
        raise


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@connection_options
@click.option(
    "--master", default="local[*]", show_default=True, help="Where Spark runs: local[N] or spark://host:7077."
)
@click.option(
    "--checkpoint",
    metavar="LOCATION",
    help="Directory for offsets and state. Without it: NAME-checkpoint in the current directory. With an address "
    "(s3://BUCKET/PATH, webhdfs://HOST/PATH or file:///PATH) the offsets are in NAME-checkpoint; a copy of them, from "
    "which another machine can continue, and the state are at the address.",
)
@click.option(
    "--state",
    metavar="URI",
    help="Where the stores are kept, if not in the checkpoint: s3://BUCKET/PATH, webhdfs://HOST/PATH, or a directory "
    "of all workers. The first start fixes it.",
)
@click.option(
    "--state-memory",
    metavar="MIB",
    type=click.IntRange(1),
    help="Memory for the stores of an App in each worker; 256 without it. Larger stores are kept on the machine's "
    "disk.",
)
@click.option(
    "--local-state",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where each machine keeps such stores, on a disk of its own. Without it: in the checkpoint, or on a cluster "
    "where Spark keeps temporary files.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="Tasks of each sub-topology with state; the first start fixes the number.",
)
@click.option(
    "--trigger-ms",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Least time between the starts of two batches.",
)
@click.option(
    "--max-records",
    type=click.IntRange(1),
    help="Most records of a batch. Without it: 200,000, or no limit if the application also reads DataFrames.",
)
@click.option(
    "--max-task-idle-ms",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="As max.task.idle.ms: how long to wait for empty input partitions before the others are processed.",
)
@click.option(
    "--app", "only", multiple=True, help="Run only this App of the file. May be given several times."
)
@click.option("--until-caught-up", is_flag=True, help="End when all records that exist now are processed.")
@click.option("--describe", is_flag=True, help="Print the topology and end.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what this version of the program does with the state of the previous version, and end.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="OLD=NEW",
    help="The store NEW keeps the state of the store OLD. May be given several times.",
)
@click.option(
    "--drop",
    multiple=True,
    metavar="OLD",
    help="Drop the state of the store OLD. May be given several times.",
)
@click.option(
    "--restart",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Restart a failed application up to so many times in a row; a finished batch resets the count.",
)
def run(
    file: Path,
    bootstrap: str,
    command_config: Path | None,
    master: str,
    checkpoint: str | None,
    state: str | None,
    state_memory: int | None,
    local_state: Path | None,
    partitions: int | None,
    trigger_ms: int,
    max_records: int | None,
    max_task_idle_ms: int,
    only: tuple[str, ...],
    until_caught_up: bool,
    describe: bool,
    dry_run: bool,
    keep: tuple[str, ...],
    drop: tuple[str, ...],
    restart: int,
) -> None:
    """Run the stream applications that a Python file defines, or the queries of a file of SQL (NAME.sql), on Spark.

    Each App runs separately: if one fails or is stopped, the others continue. Ctrl-C or SIGTERM stops all of them after
    their running batches, and a second one ends them at once. With the same checkpoint, an application later continues
    where it stopped. If an application fails, the reason is printed, and the exit code is 1 in the end.

    You may change the program: each store whose formats and windows are unchanged keeps its state. Before the
    application starts, changes of the state are printed; --dry-run prints them and changes nothing.

    \b
    felice run wordcount.py --until-caught-up
    felice run wordcount.py --describe
    felice run wordcount.py --dry-run
    felice run payments.sql --restart 10
    felice run wordcount.py --command-config alice.properties
    """
    client = client_config(bootstrap, command_config)
    apps = _apps(file, only, client, creates=not (describe or dry_run))
    if describe:
        click.echo(_described(apps))
        return
    settings = Settings(
        file,
        only,
        bootstrap,
        master,
        checkpoint,
        {
            "client": client,
            "partitions": partitions,
            "state": state,
            "state_memory_mb": state_memory,
            "local_state": local_state,
            "until_caught_up": until_caught_up,
            "trigger_ms": trigger_ms,
            "max_records": max_records,
            "max_task_idle_ms": max_task_idle_ms,
            "choices": _choices(keep, drop),
        },
        restart,
    )
    with plain_faults():
        if dry_run:
            for app in apps:
                with settings.checkpoint_to_look_at(app, is_only=len(apps) == 1) as found:
                    for line in _told(app, found, settings, all_of_it=True):
                        click.echo(line)
            return
        _run(apps, settings)


def _apps(file: Path, only: tuple[str, ...], client: dict[str, object], *, creates: bool) -> list[App]:
    """The applications of a file. Of SQL, `creates` says whether topics that do not exist are created."""
    if file.suffix == SUFFIX:
        return apps_in_sql(file, only, client, creates=creates)
    return apps_in(file, only)


def _choices(keep: tuple[str, ...], drop: tuple[str, ...]) -> Choices:
    from felice.pipelines.streams.on_spark.changes import Choices

    pairs = [one.partition("=") for one in keep]
    if wrong := next((one for one, pair in zip(keep, pairs, strict=True) if not all(pair)), None):
        raise Fault(f"--keep is {wrong!r}; it must be OLD=NEW, the names of two stores")
    return Choices({old: new for old, _, new in pairs}, drop)


def _told(app: Scoped, checkpoint: Checkpoint, settings: Settings, *, all_of_it: bool) -> list[str]:
    """What the program does with the state of the version before. Without `all_of_it` only if something changes."""
    from felice.pipelines.streams.on_spark.changes import check_partitions, planned

    change = planned(app.scope, checkpoint, settings.options["choices"])
    if change is None:
        return [f"{app.name} has no state in {checkpoint.path} yet"] if all_of_it else []
    check_partitions(change.before, checkpoint, settings.options["partitions"])
    if not change.is_seen:
        return [f"{app.name} keeps all of its state"] if all_of_it else []
    return [f"{app.name}: this version of the program changes the state", *change.lines()]


def _described(apps: list[App]) -> str:
    if len(apps) == 1:
        return apps[0].describe()
    return "\n".join(f"Application {app.name}\n{app.describe()}" for app in apps)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the command line. `options` are arguments of `runner.start`."""

    file: Path
    only: tuple[str, ...]
    bootstrap: str
    master: str
    checkpoint: str | None
    options: dict[str, Any]
    restarts: int = 0

    def checkpoint_of(self, app: Scoped, is_only: bool) -> Checkpoint:
        """The directory itself for a single App; with several Apps, a directory of its own for each below it.

        Raises `Fault` if the App has used the other of the two places: it would begin again, without its state.
        """
        from felice.pipelines.streams.on_spark.directory import below, is_address

        if self.checkpoint is None:
            return checkpoint_at(app.name, None)
        own = below(self.checkpoint, f"{app.name}-checkpoint")
        if is_address(self.checkpoint):
            address, place_of_others = (self.checkpoint, own) if is_only else (own, self.checkpoint)
            _refuse_moved_copy(app.name, address, place_of_others)
            return checkpoint_at(app.name, address)
        itself, inside = checkpoint_at(app.name, self.checkpoint), checkpoint_at(app.name, own)
        chosen, other = (itself, inside) if is_only else (inside, itself)
        if not chosen.is_used and other.belongs_to(app.name):
            raise Fault(_MOVED.format(name=app.name, chosen=chosen.path, other=other.path))
        return chosen

    @contextmanager
    def checkpoint_to_look_at(self, app: Scoped, is_only: bool) -> Iterator[Checkpoint]:
        """As `checkpoint_of`, with what its copy has, if it has one. Nothing is changed, here or in the copy."""
        from felice.pipelines.streams.on_spark.checkpoint_copy import copy_of

        found = self.checkpoint_of(app, is_only)
        with tempfile.TemporaryDirectory(prefix="felice-dry-run-") as directory:
            seen = replace(found, path=Path(directory), copy_at=found.copy_address)
            copy = copy_of(seen, app.name)
            yield seen if copy is not None and copy.pull() else found


def say_aside(line: str) -> None:
    """Print a line on standard error."""
    click.echo(line, err=True)


def _refuse_moved_copy(name: str, chosen: str, other: str) -> None:
    from felice.pipelines.streams.on_spark.checkpoint_copy import CheckpointCopy

    def has_copy(address: str) -> bool:
        return CheckpointCopy(Path(), address, name).is_of_application()

    if not has_copy(chosen) and has_copy(other):
        raise Fault(
            f"the checkpoint of {name} has its copy at {other}, and would begin again at {chosen}. (An App that runs "
            "alone has its copy at the address of --checkpoint itself; several Apps have NAME-checkpoint below it)"
        )


def _run(apps: list[App], settings: Settings) -> None:
    import felice.spark  # noqa: F401  # Without Spark the command fails here, before it creates a checkpoint.
    from felice.pipelines.streams.on_spark.lock import RunLock
    from felice.pipelines.streams.on_spark.program import query_of
    from felice.pipelines.streams.on_spark.runner import session_for_applications
    from felice.pipelines.streams.on_spark.running import Claim

    _wait_for_broker(settings)
    are_many = len(apps) > 1
    sessions: list[SparkSession] = []
    interrupts = HeldInterrupts(again=end_at_once)

    def claim(app: Scoped) -> Claim:
        is_only = [app.name] == [one.name for one in apps]
        found = settings.checkpoint_of(app, is_only)
        claimed = Claim(app, found, RunLock(found, app.name, settings.bootstrap).take(say_aside))
        try:
            for line in _told(app, found, settings, all_of_it=False):
                say_aside(line)
        except BaseException:
            claimed.lock.release()
            raise
        return claimed

    steps = Steps(
        read=lambda: _apps(settings.file, settings.only, settings.options["client"], creates=True),
        claim=claim,
        start=lambda claim: query_of(
            claim, sessions[0], settings.bootstrap, modules=modules_beside(settings.file), **settings.options
        ),
        wait=lambda: _wait(sessions[0]),
        is_interrupted=interrupts.came,
    )
    running = Applications(steps, are_many=are_many, restarts=settings.restarts)
    if claims := running.claim(apps):
        # Starting Spark takes seconds, so refused locks are reported before.
        name = settings.file.stem if are_many else apps[0].name
        with handled_by(end_at_once):
            sessions.append(session_for_applications(name, settings.master))
            for one in claims:
                running.start(one)
    with interrupts:
        running.follow()


def _wait_for_broker(settings: Settings) -> None:
    """Return when a broker answers. Raises after `BROKER_WITHIN_S`: Spark would need minutes to report the same."""
    from felice.client import KafkaException
    from felice.client.admin import AdminClient

    gives_up_at, is_told = time.monotonic() + BROKER_WITHIN_S, False
    with AdminClient(settings.options["client"]) as admin:
        while True:
            try:
                admin.list_topics("", timeout=max(_BROKER_POLL_S, gives_up_at - time.monotonic()))
            except KafkaException as error:
                if not error.error.retriable() or time.monotonic() >= gives_up_at:
                    raise
                if not is_told:
                    click.echo(f"waiting: {describe_fault(error)}", err=True)
                    is_told = True
                time.sleep(_BROKER_POLL_S)
            else:
                return


def _wait(spark: SparkSession) -> None:
    """Wait until a query ends, at most for `POLL_S`."""
    from pyspark.errors import StreamingQueryException

    try:
        has_ended = spark.streams.awaitAnyTermination(POLL_S)  # type: ignore[arg-type]
    except StreamingQueryException:
        has_ended = True
    if has_ended:
        spark.streams.resetTerminated()
