"""`kafka-console-producer` and `kafka-console-consumer`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from felice.cli.consume import (
    RecordFormat,
    consume_records,
    reader_config,
    select,
    write_records,
)
from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool, run_tool
from felice.cli.options import client_config, key_values
from felice.cli.produce import LineFormat, produce_lines, prompting

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@kafka_tool("kafka-console-producer")
@bootstrap_server_option
@click.option("--topic", required=True, help="Topic to write to.")
@click.option(
    "--command-config",
    "--producer.config",
    "command_config",
    type=_file,
    help="A file of producer properties.",
)
@click.option(
    "--property",
    "--reader-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="How lines become records: parse.key, key.separator, …",
)
@click.option(
    "--command-property",
    "--producer-property",
    "extra",
    multiple=True,
    metavar="KEY=VALUE",
    help="A producer option; may be repeated.",
)
@click.option(
    "--request-required-acks",
    "acks",
    default="-1",
    type=click.Choice(["-1", "0", "1", "all"]),
    help="Replicas that must have a record before it is acknowledged (-1: all in-sync replicas).",
)
@click.option(
    "--compression-codec",
    "codec",
    is_flag=False,
    flag_value="gzip",
    default="none",
    help="none, gzip, snappy, lz4 or zstd; without a value gzip.",
)
@click.option("--batch-size", type=int, help="Largest batch in bytes.")
@click.option("--timeout", "linger_ms", type=int, help="Milliseconds that a batch waits for more records.")
def kafka_console_producer(
    bootstrap_server: str,
    topic: str,
    command_config: Path | None,
    properties: tuple[str, ...],
    extra: tuple[str, ...],
    acks: str,
    codec: str,
    batch_size: int | None,
    linger_ms: int | None,
) -> None:
    """Send lines of standard input to a topic.

    \b
    echo hello | kafka-console-producer --bootstrap-server localhost:9092 --topic flights
    """
    config: dict[str, object] = {"acks": acks, "compression.type": codec}
    if batch_size is not None:
        config["batch.size"] = batch_size
    if linger_ms is not None:
        config["linger.ms"] = linger_ms
    config.update(client_config(bootstrap_server, command_config, extra))
    form = LineFormat.parse(key_values(properties))
    produce_lines(config, topic, prompting(sys.stdin.buffer), form)


@kafka_tool("kafka-console-consumer")
@bootstrap_server_option
@click.option("--topic", required=True, help="Topic to read.")
@click.option(
    "--command-config",
    "--consumer.config",
    "command_config",
    type=_file,
    help="A file of consumer properties.",
)
@click.option(
    "--property",
    "--formatter-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="What to print: print.key, print.offset, key.separator, …",
)
@click.option(
    "--command-property",
    "--consumer-property",
    "extra",
    multiple=True,
    metavar="KEY=VALUE",
    help="A consumer option; may be repeated.",
)
@click.option(
    "--from-beginning", is_flag=True, help="Start at the first record if the group has no committed offset."
)
@click.option("--group", help="Consumer group to join; without it a new one that commits nothing.")
@click.option("--partition", type=click.IntRange(min=0), help="Read only this partition.")
@click.option("--offset", help="Where to start in --partition: earliest, latest or a number.")
@click.option("--max-messages", type=click.IntRange(min=1), help="Exit after this many records.")
@click.option("--timeout-ms", type=int, help="Exit if no record arrives for this long.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    help="read_committed hides records of open and aborted transactions.",
)
def kafka_console_consumer(
    bootstrap_server: str,
    topic: str,
    command_config: Path | None,
    properties: tuple[str, ...],
    extra: tuple[str, ...],
    from_beginning: bool,
    group: str | None,
    partition: int | None,
    offset: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
) -> None:
    """Print the records of a topic.

    \b
    kafka-console-consumer --bootstrap-server localhost:9092 --topic flights --from-beginning
    """
    if offset is not None and partition is None:
        raise click.UsageError("The partition is required when offset is specified.")
    if from_beginning and offset is not None:
        raise click.UsageError("Options from-beginning and offset cannot be specified together.")
    config = client_config(bootstrap_server, command_config, extra)
    config.setdefault("isolation.level", isolation_level)
    selection = select(
        topic,
        from_beginning=from_beginning,
        partition=partition,
        offset=offset,
        max_records=max_messages,
        timeout_ms=timeout_ms,
    )
    form = RecordFormat.parse(key_values(properties))
    written = write_records(
        consume_records(reader_config(config, group, from_beginning=from_beginning), selection),
        form.line,
        sys.stdout.buffer,
        sys.stdout.isatty(),
    )
    click.echo(f"Processed a total of {written.records} messages", err=True)
    if written.interrupted:
        raise click.Abort


def produce_main() -> None:
    """The entry point of `kafka-console-producer`."""
    run_tool(kafka_console_producer)


def consume_main() -> None:
    """The entry point of `kafka-console-consumer`."""
    run_tool(kafka_console_consumer)
