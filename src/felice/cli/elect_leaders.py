"""Leader elections that an operator requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option
from felice.cli.output import partition_lines, show_json

if TYPE_CHECKING:
    from felice.client.admin import AdminClient

KINDS = ("preferred", "unclean")


def elect(
    admin: AdminClient, kind: str, partitions: Sequence[tuple[str, int]] | None
) -> dict[tuple[str, int], str | None]:
    """The result for each partition: None if a leader was elected, else the name of the error."""
    from felice.client.admin import ElectionType, TopicPartition

    wanted = None if partitions is None else [TopicPartition(*partition) for partition in partitions]
    results = admin.elect_leaders(ElectionType[kind.upper()], wanted).result()
    return {
        (found.topic, found.partition): None if error is None else error.name()
        for found, error in results.items()
    }


@click.command("elect-leaders")
@click.argument("topics", nargs=-1)
@connection_options
@click.option(
    "--type",
    "kind",
    type=click.Choice(KINDS),
    default="preferred",
    show_default=True,
    help="preferred: the first replica. unclean: any live replica, even if records are lost.",
)
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition of the topic.")
@click.option("--all", "everything", is_flag=True, help="Every partition of the cluster.")
@json_option
def elect_leaders(
    topics: tuple[str, ...],
    bootstrap: str,
    command_config: Path | None,
    kind: str,
    partition: int | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Return leadership to preferred replicas, or (unclean) give it to any live replica.

    \b
    felice elect-leaders flights
    felice elect-leaders flights --partition 0 --type unclean

    An unclean election loses the records that only the missing replicas have.
    """
    if bool(topics) == everything:
        raise Fault("name topics, or give --all for every partition")
    if partition is not None and len(topics) != 1:
        raise Fault("--partition needs exactly one topic")
    admin = admin_client(bootstrap, command_config)
    results = elect(admin, kind, None if everything else _partitions(admin, topics, partition))
    rows = [
        {"partition": f"{topic}-{number}", "result": error or "elected"}
        for (topic, number), error in sorted(results.items())
    ]
    if as_json:
        show_json(rows)
    else:
        _print(rows)
    if any(error not in (None, "ELECTION_NOT_NEEDED") for error in results.values()):
        click.get_current_context().exit(1)


def _print(rows: Sequence[Mapping[str, str]]) -> None:
    """Prints partitions grouped by result, because one dead broker causes the same error for many partitions."""
    if not rows:
        click.echo("No partition needed an election.", err=True)
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(row["result"], []).append(row["partition"])
    for result, names in sorted(groups.items()):
        click.echo(f"{result}: {len(names)} partition{'s' * (len(names) != 1)}")
        for line in partition_lines(names):
            click.echo(line)


def _partitions(admin: AdminClient, topics: Sequence[str], partition: int | None) -> list[tuple[str, int]]:
    from felice.cli.offsets import partitions_of
    from felice.cli.topics import existing

    if partition is not None:
        return [(topics[0], partition)]
    return partitions_of(admin, existing(admin, topics))
