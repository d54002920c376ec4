"""Log directories of brokers, and moving replicas between them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option, wait_all
from felice.cli.output import Row, progress, show
from felice.cli.rounds import ask_in_rounds

if TYPE_CHECKING:
    from felice.client import KafkaException
    from felice.client.admin import AdminClient, LogDirDescription

_POLL_S = 0.2


def log_dirs_of(
    admin: AdminClient, brokers: Sequence[int], topics: Sequence[str] | None
) -> dict[int, list[LogDirDescription]]:
    """The log directories of each broker; raises the first failure."""
    return wait_all(admin.describe_log_dirs(brokers, topics))


def log_dirs_in_rounds(
    admin: AdminClient, brokers: Sequence[int], topics: Sequence[str] | None
) -> dict[int, list[LogDirDescription] | KafkaException]:
    """The log directories of each broker, or the error of a broker that does not answer."""
    found = ask_in_rounds(
        brokers, lambda some, limit_s: admin.describe_log_dirs(some, topics, request_timeout=limit_s)
    )
    return dict(sorted(found, key=lambda row: row[0]))


@click.group("log-dirs", cls=CommandGroup)
def log_dirs() -> None:
    """Show brokers' log directories, and move replicas between them.

    \b
    felice log-dirs describe
    felice log-dirs move flights 0 --to /disk2/felice
    """


@log_dirs.command("describe")
@connection_options
@click.option("--broker", "brokers", type=int, multiple=True, help="Only this broker; may be repeated.")
@click.option("--topic", "topics", multiple=True, help="Only this topic's replicas; may be repeated.")
@json_option
def describe_command(
    bootstrap: str,
    command_config: Path | None,
    brokers: tuple[int, ...],
    topics: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show each directory with the number and size of its replicas, and its free space.

    \b
    felice log-dirs describe
    """
    from felice.client import KafkaException

    admin = admin_client(bootstrap, command_config)
    answers = log_dirs_in_rounds(admin, brokers or known_brokers(admin), topics or None)
    rows = [
        _row(broker, found)
        for broker, directories in answers.items()
        if not isinstance(directories, KafkaException)
        for found in directories
    ]
    show(rows if as_json else [_readable(row) for row in rows], as_json, empty="No broker answered.")
    for error in answers.values():
        if isinstance(error, KafkaException):
            raise error


def known_brokers(admin: AdminClient) -> list[int]:
    """The ids of all brokers in the metadata."""
    return sorted(admin.list_topics(timeout=30).brokers)


class DirectoryRow(TypedDict):
    """A log directory of a broker, with the size of its replicas and of its volume in bytes (-1: unknown)."""

    broker: int
    directory: str
    state: str
    replicas: int
    moving_here: int
    strays: int
    size_bytes: int
    usable_bytes: int
    total_bytes: int


def _row(broker: int, found: LogDirDescription) -> DirectoryRow:
    return {
        "broker": broker,
        "directory": found.path,
        "state": "online" if found.error is None else found.error.name(),
        "replicas": sum(not replica.is_future for replica in found.replicas),
        "moving_here": sum(replica.is_future for replica in found.replicas),
        "strays": len(found.stray_logs),
        "size_bytes": sum(replica.size_bytes for replica in found.replicas),
        "usable_bytes": found.usable_bytes,
        "total_bytes": found.total_bytes,
    }


def _readable(row: DirectoryRow) -> Row:
    """The row with sizes in units that are easy to read."""
    from rich.filesize import decimal

    readable = {name: value for name, value in row.items() if not name.endswith("_bytes")}
    sizes = {"size": row["size_bytes"], "usable": row["usable_bytes"], "total": row["total_bytes"]}
    return readable | {name: decimal(size) if size >= 0 else "-" for name, size in sizes.items()}


@log_dirs.command("move")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@connection_options
@click.option("--to", "target", required=True, help="Target directory, as `describe` shows it.")
@click.option(
    "--broker", type=int, help="Broker that has the replica; required if there are several brokers."
)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the replica has moved.")
def move_command(
    topic: str,
    partition: int,
    bootstrap: str,
    command_config: Path | None,
    target: str,
    broker: int | None,
    wait: bool,
) -> None:
    """Move a replica to another directory of its broker, while it keeps serving.

    \b
    felice log-dirs move flights 0 --to /disk2/felice
    """
    admin = admin_client(bootstrap, command_config)
    chosen = _only_broker(admin) if broker is None else broker
    wait_all(admin.alter_replica_log_dirs(chosen, {(topic, partition): target}))
    if not wait:
        click.echo(f"{topic}-{partition} is moving to {target}.")
        return
    _wait_until_moved(admin, chosen, (topic, partition), target)
    click.echo(f"{topic}-{partition} is in {target}.")


def _only_broker(admin: AdminClient) -> int:
    brokers = known_brokers(admin)
    if len(brokers) > 1:
        raise Fault(
            f"there are brokers {', '.join(map(str, brokers))}: choose the broker of the replica with --broker"
        )
    return int(brokers[0])


def _wait_until_moved(admin: AdminClient, broker: int, wanted: tuple[str, int], target: str) -> None:
    topic, partition = wanted
    shown = 0
    with progress(f"moving {topic}-{partition}", None) as advance:
        while True:
            [directories] = log_dirs_of(admin, [broker], [topic]).values()
            places = {
                (found.path, replica.is_future): replica
                for found in directories
                for replica in found.replicas
                if (replica.topic, replica.partition) == wanted
            }
            if (target, False) in places:
                return
            if (target, True) not in places:
                raise Fault(f"{topic}-{partition} was not moved to {target}; the broker's log says why")
            copied = places[target, True].size_bytes
            advance(max(copied - shown, 0))
            shown = max(copied, shown)
            time.sleep(_POLL_S)
