"""`kafka-get-offsets` and `kafka-delete-records`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from felice.cli.faults import Fault
from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool
from felice.cli.offsets import delete_records, offsets_in_rounds, parse_time, partitions_of, read_offset_file
from felice.cli.options import admin_client, command_config_option
from felice.cli.rounds import tell_left_out
from felice.cli.topics import matching_topics, topic_pattern
from felice.dataclass import dataclass
from felice.protocol.patterns import Pattern


@kafka_tool("kafka-get-offsets")
@bootstrap_server_option
@command_config_option
@click.option(
    "--topic", help="Only these topics: a name, several separated by commas, or a regular expression."
)
@click.option("--partitions", metavar="0,1", help="Only these partitions.")
@click.option(
    "--topic-partitions",
    metavar="TOPIC:0-3,…",
    help="Only these: patterns of topics, each with a partition or a range such as 0-3, 5- or -3 (without its end).",
)
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
    if topic_partitions is not None and (topic is not None or partitions is not None):
        raise Fault("Error occurred: --topic-partitions cannot be used with --topic or --partitions")
    moment = parse_time(time)
    rules = [_Rule.parse(text) for text in topic_partitions.split(",")] if topic_partitions else []
    numbers = _numbers(partitions) if partitions is not None else None
    admin = admin_client(bootstrap_server, command_config)
    there = partitions_of(admin, matching_topics(admin, topic, exclude_internal=exclude_internal_topics))
    wanted = [
        (name, number)
        for name, number in there
        if (numbers is None or number in numbers)
        and (not rules or any(rule.matches(name, number) for rule in rules))
    ]
    if not wanted:
        raise Fault("Error occurred: Could not match any topic-partitions with the specified filters")
    for (name, partition), found in offsets_in_rounds(admin, sorted(wanted), moment):
        if isinstance(found, int):
            if found >= 0:  # there is such a record
                click.echo(f"{name}:{partition}:{found}")
        else:
            tell_left_out(f"Skip getting offsets for topic-partition {name}-{partition} due to error", found)


def _numbers(text: str) -> set[int]:
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise Fault(
            f"Error occurred: --partitions expects a comma separated list of numeric partition ids, "
            f"but received: {text}"
        )
    return {int(part) for part in text.split(",")}


# A pattern of names (none: every name), then one partition, or a range without its end.
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|([0-9]*)-([0-9]*)))?")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One part of --topic-partitions: `topic`, `topic:1`, `topic:0-3`, `topic:5-`, `topic:-3`, `:1`."""

    name: Pattern
    numbers: range

    @staticmethod
    def parse(text: str) -> _Rule:
        found = _RULE.fullmatch(text.strip())
        if found is None:
            raise Fault(f"Error occurred: Invalid rule specification: {text}")
        name, one, first, end = found.groups()
        if one:
            numbers = range(int(one), int(one) + 1)
        else:
            numbers = range(int(first or 0), int(end) if end else sys.maxsize)
        return _Rule(topic_pattern(name or ".*"), numbers)

    def matches(self, name: str, number: int) -> bool:
        return number in self.numbers and self.name.fullmatch(name) is not None


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
