"""`kafka-get-offsets` and `kafka-delete-records`."""

from __future__ import annotations

from pathlib import Path

import click

from felice.cli.faults import Fault
from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool, run_tool
from felice.cli.offsets import delete_records, offsets_at, parse_time, partitions_of, read_offset_file
from felice.cli.options import admin_client, command_config_option
from felice.cli.topics import matching_topics


@kafka_tool("kafka-get-offsets")
@bootstrap_server_option
@command_config_option
@click.option(
    "--topic", help="Only these topics: a name, several separated by commas, or a regular expression."
)
@click.option("--partitions", metavar="0,1", help="Only these partitions.")
@click.option("--topic-partitions", metavar="TOPIC:0,…", help="Only these partitions of these topics.")
@click.option("--time", default="latest", help="latest, earliest, max-timestamp, or milliseconds since 1970.")
@click.option(
    "--exclude-internal-topics", is_flag=True, help="Leave out __consumer_offsets and other internal topics."
)
def kafka_get_offsets(
    bootstrap_server: str,
    command_config: Path | None,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time: str,
    exclude_internal_topics: bool,
) -> None:
    """Print topic:partition:offset of each partition at a time.

    \b
    kafka-get-offsets --bootstrap-server localhost:9092 --topic flights --time earliest
    """
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
    if not colon or not number.isdecimal():
        raise Fault(f"expected topic:partition, got {text!r}")
    return name, int(number)


@kafka_tool("kafka-delete-records")
@bootstrap_server_option
@command_config_option
@click.option(
    "--offset-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="A JSON file with one offset for each partition.",
)
def kafka_delete_records(bootstrap_server: str, command_config: Path | None, offset_json_file: Path) -> None:
    """Delete the records of partitions before the offsets that a file names.

    \b
    kafka-delete-records --bootstrap-server localhost:9092 --offset-json-file offsets.json
    """
    before = read_offset_file(offset_json_file)
    click.echo("Executing records delete operation")
    starts = delete_records(admin_client(bootstrap_server, command_config), before)
    click.echo("Records delete operation completed:")
    for (topic, partition), low_watermark in starts.items():
        click.echo(f"partition: {topic}-{partition}\tlow_watermark: {low_watermark}")


def get_main() -> None:
    """The entry point of `kafka-get-offsets`."""
    run_tool(kafka_get_offsets)


def delete_main() -> None:
    """The entry point of `kafka-delete-records`."""
    run_tool(kafka_delete_records)
