"""Commands for stream applications, which are found by their checkpoints: list, describe, stop, reset, rescale …"""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felice.cli.application_file import app_in
from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option
from felice.cli.output import progress, show, show_fields, show_json
from felice.cli.run import checkpoint_at, locked, plain_faults
from felice.cli.web_servers import (
    login_of,
    serve_until_signal,
    tls_config_option,
    tls_of,
    users_option,
    warn_if_open,
)

if TYPE_CHECKING:
    from felice.client.admin import AdminClient
    from felice.pipelines.streams.on_spark.directory import Checkpoint, Description
    from felice.pipelines.streams.on_spark.lock import RunLock
    from felice.web.serving import Service

POLL_S = 0.2
_SHOWN = {"batch": None, "rows": None, "rows_per_s": None, "batch_ms": None, "behind": None}

checkpoint_option = click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="The application's checkpoint. Without it: NAME-checkpoint in the current directory.",
)

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=180.0,
    show_default=True,
    help="Seconds to wait for the application.",
)


@click.group(cls=CommandGroup)
def streams() -> None:
    """List, describe, stop, reload, reset, rescale and serve stream applications; prepare Spark for them.

    Applications are found by their checkpoints, so run the commands in the directory of `felice run`, or name its
    checkpoint.

    \b
    felice streams list
    felice streams describe wordcount
    felice streams stop wordcount
    """


@streams.command("list")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
@json_option
def list_command(directory: Path, as_json: bool) -> None:
    """List the applications whose checkpoints are in a directory, with state and speed.

    \b
    felice streams list
    felice streams list /srv/checkpoints --json
    """
    from felice.pipelines.streams.on_spark.directory import checkpoints_below

    found = (checkpoint for checkpoint in checkpoints_below(directory) if not checkpoint.is_of_frame)
    rows = [_listed(checkpoint) for checkpoint in found]
    show(rows, as_json, empty=f"there is no checkpoint of a stream application in {directory}")


@streams.command("describe")
@click.argument("application")
@checkpoint_option
@json_option
def describe_command(application: str, checkpoint: Path | None, as_json: bool) -> None:
    """Print an application's topology, partitions, last batch, state and failure.

    \b
    felice streams describe wordcount
    """
    with plain_faults():
        found = _existing(application, checkpoint)
        rows = _described(found, _description(found))
    if as_json:
        show_json(rows)
        return
    topology = rows.pop("topology")
    show_fields(rows)
    click.echo(f"\n{topology}")


@streams.command("stop")
@click.argument("application")
@checkpoint_option
@timeout_option
def stop_command(application: str, checkpoint: Path | None, timeout: float) -> None:
    """Stop an application after its running batch, and wait for its end.

    \b
    felice streams stop wordcount
    """
    from felice.pipelines.streams.on_spark.lock import is_running

    found = _running(application, checkpoint)
    found.stop_path.touch()
    is_still = f"{application} is still running after {timeout:g} s"
    _wait_while(lambda: is_running(found), found, is_still, timeout)
    click.echo(f"{application} has stopped")


@streams.command("reload")
@click.argument("application")
@checkpoint_option
@timeout_option
def reload_command(application: str, checkpoint: Path | None, timeout: float) -> None:
    """Let the process that runs an application read its file again.

    Apps that the file defines and that do not run are started: new Apps, and those that failed or were stopped. Apps
    that the file no longer defines are stopped after their running batch. The others run on unchanged.

    \b
    felice streams reload wordcount
    """
    found = _running(application, checkpoint)
    found.reload_path.touch()
    _wait_while(
        found.reload_path.exists, found, f"{application} has not answered after {timeout:g} s", timeout
    )
    changes = found.take_answer()
    for what in ("started", "stopping"):
        if changes[what]:
            click.echo(f"{what}: {', '.join(changes[what])}")
    if not any(changes.values()):
        click.echo(
            "nothing to start or to stop; running applications keep the functions that they were started with"
        )
    if changes["failed"]:
        raise Fault("\n".join(f"{name}: {reason}" for name, reason in changes["failed"].items()))


@streams.command("reset")
@click.argument("application")
@checkpoint_option
@connection_options
@click.option(
    "--to",
    default="earliest",
    show_default=True,
    help="Where the next start begins: earliest, latest, a time such as 2026-11-22T10:00:00Z, or a JSON of offsets.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset_command(
    application: str, checkpoint: Path | None, bootstrap: str, command_config: Path | None, to: str, yes: bool
) -> None:
    """Remove an application's state and offsets, so that it begins again.

    The application must be stopped. Its checkpoint and its consumer group are removed. Results that it wrote stay in
    their topics, and the next run writes them again.

    \b
    felice streams reset wordcount --yes
    felice streams reset wordcount --to 2026-11-22T10:00:00Z
    """
    from felice.pipelines.streams.on_spark.places import place_at

    starting = starting_options(to)
    found = _existing(application, checkpoint)
    # A copy that cannot be read can be reset, too.
    with plain_faults(), locked(found, application, bootstrap, pulls=False) as lock:
        state_at = _check_owner(found, application)
        if not yes:
            _confirm(f"Remove the state in {state_at or found.path} and the group {application}?")
        _delete_group(admin_client(bootstrap, command_config), application)
        copy_at = found.copy_address
        # Rename the directory first: a crash must not leave a part of a checkpoint.
        aside = found.path.with_name(f".{found.path.name}.{secrets.token_hex(4)}")
        found.path.rename(aside)
        found.start_from(starting)
        if copy_at:
            _copy_reset(replace(found, copy_at=copy_at), application, lock)
        shutil.rmtree(aside)
        if state_at:
            place_at(state_at).remove_all()
    click.echo(f"{application} begins again from {to}")


def _copy_reset(checkpoint: Checkpoint, application: str, lock: RunLock) -> None:
    """The copy has no description then, so other machines begin again, too."""
    from felice.pipelines.streams.on_spark.checkpoint_copy import CheckpointCopy

    checkpoint.keep_copy_address()
    CheckpointCopy(checkpoint.path, checkpoint.copy_at, application).push(lock.epoch)


def _confirm(question: str) -> None:
    """Ends the command unless the user agrees. Raises `Fault` if nobody can answer."""
    try:
        is_agreed = click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise Fault("no answer on standard input; without a terminal, give --yes") from None
    if not is_agreed:
        raise click.Abort


@streams.command("rescale")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--partitions", type=click.IntRange(1), required=True, help="The new number of partitions.")
@click.option("--app", "name", help="The App, if the file defines several.")
@checkpoint_option
def rescale_command(file: Path, partitions: int, name: str | None, checkpoint: Path | None) -> None:
    """Redistribute an application's state over another number of partitions.

    The application must be stopped; FILE is its program. Topics keep their partitions.

    \b
    felice streams rescale wordcount.py --partitions 8
    """
    from felice.pipelines.streams.on_spark.rescale import rescale
    from felice.pipelines.streams.on_spark.runner import described

    app = app_in(file, name)
    found = _existing(app.name, checkpoint)
    with plain_faults(), locked(found, app.name):
        before = described(app, found, partitions)
        if before.partitions != partitions:
            rescale(app, found, before, partitions)
    click.echo(f"{app.name} has {partitions} partitions, before {before.partitions}")


@streams.command("serve")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--app", "name", help="The App, if the file defines several.")
@checkpoint_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8084, show_default=True, help="0: a free port."
)
@click.option(
    "--state-memory",
    metavar="MIB",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="Memory for the rows of stores. Larger stores are kept on this machine's disk.",
)
@click.option(
    "--local-state",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where larger stores are kept, in a directory that is removed at the end. By default: the system's directory "
    "for temporary files.",
)
@users_option
@tls_config_option
def serve_command(
    file: Path,
    name: str | None,
    checkpoint: Path | None,
    host: str,
    port: int,
    state_memory: int,
    local_state: Path | None,
    users_file: Path | None,
    tls_config: Path | None,
) -> None:
    """Answer queries of an application's state over HTTP, and metrics for Prometheus.

    FILE is the application's program. The command reads its checkpoint, so the application may be running or stopped,
    and answers have the state after the last finished batch. Ctrl-C stops it.

    \b
    felice streams serve wordcount.py
    curl localhost:8084/stores/counts/be
    curl 'localhost:8084/stores/counts?prefix=b&limit=10'
    """
    from felice.pipelines.streams.serving.queries import Queries
    from felice.pipelines.streams.serving.server import state_server

    app = app_in(file, name)
    found = _existing(app.name, checkpoint)
    login, (tls, _) = login_of(users_file, None), tls_of(tls_config, None)
    warn_if_open("the state", host, login)

    def made() -> tuple[Service, Callable[[], None]]:
        queries = Queries(app, found, state_memory_mb=state_memory, local_state=local_state)
        server = state_server(queries, host, port, tls=tls, login=login)
        return server, lambda: click.echo(f"{app.name} is served at {server.url}")

    serve_until_signal(made)


@streams.command("prepare")
def prepare_command() -> None:
    """Make Spark start in less time on this machine, by an archive of the classes that its Java loads.

    The command runs a small application on a broker of its own, which takes half a minute. The archive takes 170 MB
    below ~/.cache/felice. Run the command again after Java or Spark is updated; in an image for containers, run it
    when the image is built.

    \b
    felice streams prepare
    """
    from felice.cli.preparing import run_small_application
    from felice.pipelines.spark.class_archive import ArchiveError, write

    try:
        with progress("Spark runs a small application", None):
            path = write(run_small_application)
    except ArchiveError as error:
        raise Fault(str(error)) from None
    click.echo(f"Spark's Java uses {path} ({path.stat().st_size / 1e6:.0f} MB) from now on")


def starting_options(to: str) -> dict[str, str]:
    """The options of the source that make it begin at the given place."""
    if to in ("earliest", "latest") or to.startswith("{"):
        return {"startingOffsets": to}
    try:
        moment = datetime.fromisoformat(to)
    except ValueError:
        raise Fault(
            f"--to is {to!r}; it must be earliest, latest, a time such as 2026-11-22T10:00:00Z, or JSON"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return {"startingTimestamp": str(round(moment.timestamp() * 1000))}


def _existing(application: str, directory: Path | None) -> Checkpoint:
    found = checkpoint_at(application, directory)
    if not found.directory.is_dir():
        raise Fault(f"{found.path} is no checkpoint of a stream application; name it with --checkpoint")
    if found.is_of_frame:
        raise Fault(
            f"{found.path} belongs to a query of Spark that reads a DataFrame of {application}; stop the query in its "
            "own program. To begin again, remove the checkpoint"
        )
    return found


def _running(application: str, directory: Path | None) -> Checkpoint:
    from felice.pipelines.streams.on_spark.lock import is_running

    found = _existing(application, directory)
    if not is_running(found):
        raise Fault(f"{application} is not running")
    return found


def _wait_while(condition: Callable[[], bool], checkpoint: Checkpoint, late: str, timeout: float) -> None:
    from felice.pipelines.streams.on_spark.lock import holder_of

    until = time.monotonic() + timeout
    while condition():
        if time.monotonic() > until:
            raise Fault(f"{late}, in {holder_of(checkpoint)}")
        time.sleep(POLL_S)


def _check_owner(checkpoint: Checkpoint, application: str) -> str:
    """Refuse to remove the checkpoint of another application. A checkpoint of another release may be removed.

    Returns where the state is, if not in the checkpoint.
    """
    from felice.pipelines.streams.on_spark.directory import CheckpointError

    try:
        kept = checkpoint.description()
    except CheckpointError:
        if checkpoint.is_used:
            return ""
        raise
    if kept is not None and kept.application != application:
        raise Fault(f"{checkpoint.path} belongs to the application {kept.application!r}")
    return "" if kept is None else kept.state_at


def _description(checkpoint: Checkpoint) -> Description:
    found = checkpoint.description()
    if found is None:
        raise Fault(f"{checkpoint.path} has not been used by an application yet")
    return found


def _listed(checkpoint: Checkpoint) -> dict[str, Any]:
    from felice.pipelines.streams.on_spark.directory import CheckpointError

    progress = checkpoint.progress()
    try:
        description = _description(checkpoint)
        name, partitions = description.application, description.partitions
    except CheckpointError:
        name, partitions = "?", 0
    found = {key: progress.get(key) for key in _SHOWN}
    return (
        {"application": name, "state": _state(checkpoint), "partitions": partitions}
        | found
        | {"checkpoint": str(checkpoint.path)}
    )


def _described(checkpoint: Checkpoint, description: Description) -> dict[str, Any]:
    from felice.pipelines.streams.on_spark.lease import holder_of_copy
    from felice.pipelines.streams.on_spark.lock import holder_of, is_running
    from felice.pipelines.streams.on_spark.progress import in_time, size_of, sizes_of
    from felice.pipelines.streams.stores import NEVER

    size = size_of(sizes_of(checkpoint, description).values())
    progress = checkpoint.progress()
    reported = progress.pop("reported_at", None)
    return {
        "application": description.application,
        "checkpoint": str(checkpoint.path),
        "state": _state(checkpoint),
        "copy": (copy_at := checkpoint.copy_address) or None,
        "copy_used_by": (holder_of_copy(copy_at) or None) if copy_at else None,
        "run_by": holder_of(checkpoint) if is_running(checkpoint) else None,
        "partitions": description.partitions,
        **{name: progress.get(name) for name in (*_SHOWN, "skipped", "dropped", "failure")},
        "reported_at": None if reported is None else in_time(reported),
        "state_rows": size.rows,
        "state_bytes": size.size_bytes,
        "stream_time": None if size.stream_time == NEVER else in_time(size.stream_time),
        "topology": description.topology,
    }


def _state(checkpoint: Checkpoint) -> str:
    from felice.pipelines.streams.on_spark.lock import is_running

    if is_running(checkpoint):
        return "running"
    return "failed" if "failure" in checkpoint.progress() else "stopped"


def _delete_group(admin: AdminClient, group: str) -> None:
    from felice.client import KafkaError, KafkaException

    try:
        admin.delete_consumer_groups([group])[group].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise
