"""`kafka-get-offsets` and `kafka-delete-records`."""

from __future__ import annotations

from pathlib import Path

import click

from felice.cli.faults import Fault
from felice.cli.kafka_tools import run_tool
from felice.cli.offsets import delete_records, offsets_at, parse_time, partitions_of, read_offset_file
from felice.cli.options import admin_client, command_config_option
from felice.cli.topics import matching_topics


@click.command("kafka-get-offsets")
@click.option("--bootstrap-server", required=True)
@command_config_option
@click.option("--topic")
@click.option("--partitions", metavar="0,1")
@click.option("--topic-partitions", metavar="TOPIC:0,…")
@click.option("--time", default="latest")
@click.option("--exclude-internal-topics", is_flag=True)
def kafka_get_offsets(
    bootstrap_server: str,
    command_config: Path | None,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time: str,
    exclude_internal_topics: bool,
) -> None:
    """Print topic:partition:offset of each partition at a time."""
    admin = admin_client(bootstrap_server, command_config)
    if topic_partitions:
        wanted = [_parse_partition(text) for text in topic_partitions.split(",")]
    else:
        names = matching_topics(admin, topic, exclude_internal=exclude_internal_topics)
        wanted = partitions_of(admin, names)
        if partitions:
            chosen = {number.strip() for number in partitions.split(",")}
            wanted = [found for found in wanted if str(found[1]) in chosen]
    if not wanted:
        raise Fault("Error occurred: Could not match any topic-partitions with the specified filters")
    for (name, partition), offset in sorted(offsets_at(admin, wanted, parse_time(time)).items()):
        click.echo(f"{name}:{partition}:{offset if offset >= 0 else ''}")


def _parse_partition(text: str) -> tuple[str, int]:
    name, colon, number = text.rpartition(":")
    if not colon or not number.isdigit():
        raise Fault(f"expected topic:partition, got {text!r}")
    return name, int(number)


@click.command("kafka-delete-records")
@click.option("--bootstrap-server", required=True)
@command_config_option
@click.option(
    "--offset-json-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True
)
def kafka_delete_records(bootstrap_server: str, command_config: Path | None, offset_json_file: Path) -> None:
    """Delete the records of partitions before the offsets that a file names."""
    before = read_offset_file(offset_json_file)
    click.echo("Executing records delete operation")
    starts = delete_records(admin_client(bootstrap_server, command_config), before)
    click.echo("Records delete operation completed:")
    for (topic, partition), low_watermark in starts.items():
        click.echo(f"partition: {topic}-{partition}\tlow_watermark: {low_watermark}")


def get_main() -> None:
    run_tool(kafka_get_offsets)


def delete_main() -> None:
    run_tool(kafka_delete_records)
