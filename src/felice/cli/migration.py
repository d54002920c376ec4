"""Directories of Apache Kafka become directories of Felice, and the other way round. The source is never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import click

from felice.cli.faults import Fault
from felice.cli.options import json_option
from felice.cli.output import progress, show_json, show_table

if TYPE_CHECKING:
    from felice.migration.importing import ImportSurvey
    from felice.migration.plan import Left
    from felice.migration.transfer import Survey, Transferred

F = TypeVar("F", bound=Callable[..., object])

_MOST_SHOWN = 40


def _shared_options(command: F) -> F:
    """The options of both commands."""
    for decorate in (
        json_option,
        click.option("--copy", is_flag=True, help="Copy all files, also those that hard links could share."),
        click.option(
            "--dry-run",
            is_flag=True,
            help="Report what would be taken over and what would not; write nothing.",
        ),
        click.option(
            "--to",
            "targets",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="A new directory for all sources. Or repeat the option: one for each source, in order.",
        ),
        click.argument(
            "sources",
            nargs=-1,
            required=True,
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            metavar="SOURCE…",
        ),
    ):
        command = decorate(command)
    return command


@click.command("import")
@_shared_options
@click.option(
    "--znodes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For a cluster with ZooKeeper: the output of `felice zookeeper export`.",
)
@click.option(
    "--without-metadata",
    is_flag=True,
    help="For a cluster with ZooKeeper: import only topics and records, without configurations and ACLs.",
)
@click.option(
    "--allow-missing", is_flag=True, help="Let partitions whose logs are not in the sources begin empty."
)
def import_(
    sources: tuple[Path, ...],
    targets: tuple[Path, ...],
    dry_run: bool,
    copy: bool,
    as_json: bool,
    znodes: Path | None,
    without_metadata: bool,
    allow_missing: bool,
) -> None:
    """Make a directory of Felice from the log.dirs of a stopped Kafka node.

    SOURCE is each entry of its log.dirs (and metadata.log.dir). Kafka 3.9 and 4 are read.

    \b
    felice import /var/lib/kafka --dry-run
    felice import /disk1/kafka /disk2/kafka --to /disk1/felice --to /disk2/felice
    felice zookeeper export --connect zk1:2181/kafka > nodes.json
    felice import /var/lib/kafka --znodes nodes.json --to /var/lib/felice
    """
    from felice.env import SystemDisk
    from felice.migration import importing, new_directories, source_locks
    from felice.migration.znodes import read_nodes

    _check_targets(targets, dry_run)
    if znodes is not None and without_metadata:
        raise Fault("--znodes gives the metadata that --without-metadata leaves out; choose one")
    disk = SystemDisk()
    with source_locks.held(sources, "Kafka") as check:
        found = importing.survey(
            disk,
            sources,
            nodes=None if znodes is None else read_nodes(znodes.read_text(encoding="utf-8")),
            without_metadata=without_metadata,
            may_miss_logs=allow_missing,
        )
        new_directories.check_free(disk, targets, sources)
        done = None
        if not dry_run:
            with progress("Bytes", found.size_bytes, quiet=as_json) as advance:
                done = importing.carry_out(
                    disk, found, targets, uuid4, advance, may_link=not copy, check=check
                )
    _show(
        _facts(found, found.plan.counts, found.plan.left, done)
        | {"notes": list(found.notes), "open_transactions": _transactions(found)},
        targets,
        as_json,
        "Start the broker with",
    )


@click.command("export")
@_shared_options
def export(
    sources: tuple[Path, ...], targets: tuple[Path, ...], dry_run: bool, copy: bool, as_json: bool
) -> None:
    """Make a directory of Apache Kafka (4.3, KRaft) from the log.dirs of a stopped single-broker cluster.

    SOURCE is each entry of its log.dirs, the one with the directory `metadata` first.

    \b
    felice export /var/lib/felice --dry-run
    felice export /var/lib/felice --to /var/lib/kafka
    """
    from felice.env import SystemClock, SystemDisk
    from felice.migration import exporting, new_directories, source_locks, transfer

    _check_targets(targets, dry_run)
    disk = SystemDisk()
    with source_locks.held(sources, "broker") as check:
        found = exporting.survey(disk, sources)
        plan = exporting.plan_of(found, uuid4)
        new_directories.check_free(disk, targets, sources)
        done = None
        if not dry_run:
            with progress("Bytes", found.size_bytes, quiet=as_json) as advance:
                done = exporting.carry_out(
                    disk,
                    found,
                    targets,
                    uuid4,
                    advance,
                    SystemClock().now_ms(),
                    may_link=not copy,
                    check=check,
                )
    left = [*found.left, *plan.left]
    facts = _facts(found, plan.counts, left, done)
    start = "Start Kafka 4.3 with process.roles=broker,controller,"
    notes = transfer.unclean(found.contents)
    _show(facts | {"notes": notes, "open_transactions": []}, targets, as_json, start)


def _check_targets(targets: Sequence[Path], dry_run: bool) -> None:
    if not targets and not dry_run:
        raise Fault("name the new directory with --to, or only look with --dry-run")


def _facts(
    found: Survey,
    counts: Mapping[str, int],
    left: Sequence[Left],
    done: Transferred | None,
) -> dict[str, object]:
    return {
        "node_id": found.node_id,
        "cluster_id": found.cluster_id,
        "size_bytes": found.size_bytes,
        "counts": dict(counts),
        "left": [{"kind": one.kind, "name": one.name, "reason": one.reason} for one in left],
        "copied_bytes": done.copied_bytes if done else None,
        "linked_bytes": done.linked_bytes if done else None,
    }


def _transactions(found: ImportSurvey) -> list[dict[str, object]]:
    return [
        {
            "transactional_id": one.transactional_id,
            "producer_id": one.producer_id,
            "timeout_ms": one.timeout_ms,
            "partitions": list(one.partitions),
        }
        for one in found.transactions
    ]


def _show(facts: dict[str, Any], targets: Sequence[Path], as_json: bool, start: str) -> None:
    if as_json:
        show_json(facts)
        return
    counts = ", ".join(f"{number} {what}" for what, number in facts["counts"].items())
    click.echo(
        f"Node {facts['node_id']} of cluster {facts['cluster_id']}: {counts}; {facts['size_bytes']:,} bytes."
    )
    if transactions := facts["open_transactions"]:
        click.echo("Open transactions, which the broker will abort at their timeouts:")
        _show_some(transactions)
    if left := facts["left"]:
        click.echo("Not taken over, or only in part:")
        _show_some(left)
    for note in facts["notes"]:
        click.echo(f"Note: {note}.")
    if facts["copied_bytes"] is None:
        click.echo("Nothing was written (--dry-run).")
        return
    paths = ",".join(str(path.absolute()) for path in targets)
    click.echo(
        f"Copied {facts['copied_bytes']:,} bytes, and linked {facts['linked_bytes']:,}. "
        f"{start} node.id={facts['node_id']} and log.dirs={paths}"
    )


def _show_some(rows: Sequence[Mapping[str, object]]) -> None:
    show_table(rows[:_MOST_SHOWN])
    if (more := len(rows) - _MOST_SHOWN) > 0:
        click.echo(f"and {more} more (--json has them)")
