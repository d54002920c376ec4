"""Offsets of partitions, and deleting the records before an offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.json_files import partition_of, read_rows
from felice.cli.options import admin_client, connection_options, json_option, wait_all
from felice.cli.output import show
from felice.cli.rounds import ask_in_rounds, tell_left_out
from felice.cli.topics import existing, list_topics

if TYPE_CHECKING:
    from felice.client import KafkaException
    from felice.client.admin import AdminClient, ListOffsetsResultInfo

_SHAPE = '{"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}'

SPECIAL_TIMES = {"latest": -1, "earliest": -2, "max-timestamp": -3}


def parse_time(text: str) -> int:
    """`latest`, `earliest`, `max-timestamp`, or milliseconds since the epoch."""
    if text in SPECIAL_TIMES:
        return SPECIAL_TIMES[text]
    try:
        return int(text)
    except ValueError:
        choices = ", ".join(SPECIAL_TIMES)
        raise Fault(
            f"malformed time argument {text}: use {choices} or milliseconds since the epoch"
        ) from None


def partitions_of(admin: AdminClient, topics: Sequence[str]) -> list[tuple[str, int]]:
    """All partitions of the topics."""
    found = admin.list_topics(timeout=30).topics
    return [(topic, partition) for topic in topics for partition in sorted(found[topic].partitions)]


def offsets_in_rounds(
    admin: AdminClient, partitions: Sequence[tuple[str, int]], time: int
) -> Iterator[tuple[tuple[str, int], int | KafkaException]]:
    """Each partition with its first offset at or after a time, or at a special time; -1 if there is no such record.

    A partition that no broker leads comes last, with its error.
    """
    from felice.client import KafkaException
    from felice.client.admin import OffsetSpec, TopicPartition

    special = {-1: OffsetSpec.latest, -2: OffsetSpec.earliest, -3: OffsetSpec.max_timestamp}
    spec = special[time]() if time in special else OffsetSpec.for_timestamp(time)

    def ask(
        some: list[tuple[str, int]], limit_s: float
    ) -> dict[tuple[str, int], Future[ListOffsetsResultInfo]]:
        asked = {TopicPartition(*partition): spec for partition in some}
        found = admin.list_offsets(asked, request_timeout=limit_s)
        return {(partition.topic, partition.partition): future for partition, future in found.items()}

    for partition, found in ask_in_rounds(partitions, ask):
        yield partition, found if isinstance(found, KafkaException) else found.offset


def offsets_at(
    admin: AdminClient, partitions: Sequence[tuple[str, int]], time: int
) -> dict[tuple[str, int], int]:
    """The offsets of `offsets_in_rounds`; raises the error of the first partition without one."""
    from felice.client import KafkaException

    offsets = {}
    for partition, found in offsets_in_rounds(admin, partitions, time):
        if isinstance(found, KafkaException):
            raise found
        offsets[partition] = found
    return offsets


def delete_records(admin: AdminClient, before: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Moves the start of each partition to an offset (-1: its end) and returns the new starts."""
    from felice.client.admin import TopicPartition

    asked = [TopicPartition(topic, partition, offset) for (topic, partition), offset in before.items()]
    results = wait_all(admin.delete_records(asked))
    return {(given.topic, given.partition): result.low_watermark for given, result in results.items()}


def read_offset_file(path: Path) -> dict[tuple[str, int], int]:
    """Reads the file of `kafka-delete-records`: an offset for each partition."""
    rows = read_rows(path, "partitions", _SHAPE, lambda row: (partition_of(row), int(row["offset"])))
    if len(found := dict(rows)) != len(rows):
        raise Fault(f"{path} names a partition twice")
    return found


@click.group(cls=CommandGroup)
def offsets() -> None:
    """Show the offsets of partitions, and delete records before an offset.

    \b
    felice offsets get flights --time latest
    felice offsets delete-records flights --partition 0 --before 1000
    """


@offsets.command("get")
@click.argument("names", nargs=-1)
@connection_options
@click.option(
    "--time",
    default="latest",
    show_default=True,
    help="latest, earliest, max-timestamp, or milliseconds since 1970.",
)
@json_option
def get_command(
    names: tuple[str, ...], bootstrap: str, command_config: Path | None, time: str, as_json: bool
) -> None:
    """Show the offset of each partition at a time.

    \b
    felice offsets get flights --time earliest
    """
    admin = admin_client(bootstrap, command_config)
    wanted = existing(admin, names) if names else list_topics(admin, exclude_internal=True)
    from felice.client import KafkaException

    found = dict(offsets_in_rounds(admin, partitions_of(admin, wanted), parse_time(time)))
    rows: list[dict[str, object]] = [
        {"topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in sorted(found.items(), key=lambda row: row[0])
        if isinstance(offset, int)
    ]
    if rows or not found:
        show(rows, as_json, empty="There are no partitions.")
    for (topic, partition), offset in found.items():
        if isinstance(offset, KafkaException):
            tell_left_out(f"left out {topic}-{partition}", offset)
    if found and not rows:
        raise Fault("no broker told an offset")


@offsets.command("delete-records")
@click.argument("name")
@connection_options
@click.option("--partition", type=click.IntRange(min=0), required=True, help="Partition of the topic.")
@click.option("--before", type=int, required=True, help="First offset to keep; -1 deletes all records.")
def delete_records_command(
    name: str, bootstrap: str, command_config: Path | None, partition: int, before: int
) -> None:
    """Delete a partition's records before an offset.

    \b
    felice offsets delete-records flights --partition 0 --before 1000
    """
    starts = delete_records(admin_client(bootstrap, command_config), {(name, partition): before})
    click.echo(f"{name}-{partition} begins at offset {starts[name, partition]}.")
