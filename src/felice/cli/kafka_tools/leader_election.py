"""`kafka-leader-election`."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict, Unpack

import click

from felice.cli.elect_leaders import KINDS, elect
from felice.cli.faults import Fault
from felice.cli.json_files import partition_of, read_rows
from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool
from felice.cli.options import admin_client

_SHAPE = '{"partitions": [{"topic": "t", "partition": 0}]}'


class _Options(TypedDict):
    """The options of the tool besides those of the connection."""

    topic: str | None
    partition: int | None
    path_to_json_file: Path | None
    all_topic_partitions: bool


@kafka_tool("kafka-leader-election")
@bootstrap_server_option
@click.option(
    "--admin.config",
    "--command-config",
    "command_config",
    type=click.Path(exists=True, path_type=Path),
    help="A file of client properties.",
)
@click.option(
    "--election-type",
    type=click.Choice(KINDS, case_sensitive=False),
    required=True,
    help="preferred: the first replica. unclean: any live replica, even if records are lost.",
)
@click.option("--topic", help="Topic whose partition gets a leader.")
@click.option("--partition", type=int, help="Partition of --topic.")
@click.option(
    "--path-to-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON file that lists partitions.",
)
@click.option("--all-topic-partitions", is_flag=True, help="Every partition of the cluster.")
def kafka_leader_election(
    bootstrap_server: str, command_config: Path | None, election_type: str, **asked: Unpack[_Options]
) -> None:
    """Elect leaders of a partition, of those that a file names, or of all.

    \b
    kafka-leader-election --bootstrap-server localhost:9092 --election-type preferred --all-topic-partitions
    """
    partitions = _partitions(asked)
    results = elect(admin_client(bootstrap_server, command_config), election_type, partitions)
    done = [name for name, error in _named(results) if error is None]
    needless = [name for name, error in _named(results) if error == "ELECTION_NOT_NEEDED"]
    failed = [(name, error) for name, error in _named(results) if error not in (None, "ELECTION_NOT_NEEDED")]
    kind = election_type.upper()
    if done:
        click.echo(f"Successfully completed leader election ({kind}) for partitions {', '.join(done)}")
    if needless:
        click.echo(f"Valid replica already elected for partitions {', '.join(needless)}")
    for name, error in failed:
        click.echo(f"Error completing leader election ({kind}) for partition: {name}: {error}")
    if failed:
        raise Fault(f"{len(failed)} replica(s) could not be elected")


def _named(results: dict[tuple[str, int], str | None]) -> list[tuple[str, str | None]]:
    return [(f"{topic}-{number}", error) for (topic, number), error in sorted(results.items())]


def _partitions(asked: _Options) -> list[tuple[str, int]] | None:
    ways = [asked["topic"] is not None, asked["path_to_json_file"] is not None, asked["all_topic_partitions"]]
    if sum(ways) != 1:
        raise Fault(
            "One and only one of the following options is required: "
            "--topic, --path-to-json-file, --all-topic-partitions"
        )
    if asked["topic"] is not None:
        if asked["partition"] is None:
            raise Fault("Missing required option(s): --partition")
        return [(asked["topic"], asked["partition"])]
    if asked["path_to_json_file"] is None:
        return None
    return read_rows(asked["path_to_json_file"], "partitions", _SHAPE, partition_of)
