"""`kafka-console-producer` and `kafka-console-consumer`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from felice.cli.consume import (
    RecordFormat,
    consume_records,
    reader_config,
    select,
    write_records,
)
from felice.cli.kafka_tools import run_tool
from felice.cli.options import client_config, key_values
from felice.cli.produce import LineFormat, produce_lines, prompting

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("kafka-console-producer")
@click.option("--bootstrap-server", required=True)
@click.option("--topic", required=True)
@click.option("--command-config", "--producer.config", "command_config", type=_file)
@click.option("--property", "--reader-property", "properties", multiple=True, metavar="KEY=VALUE")
@click.option("--command-property", "--producer-property", "extra", multiple=True, metavar="KEY=VALUE")
@click.option("--request-required-acks", "acks", default="-1", type=click.Choice(["-1", "0", "1", "all"]))
@click.option("--compression-codec", "codec", is_flag=False, flag_value="gzip", default="none")
@click.option("--batch-size", type=int)
@click.option("--timeout", "linger_ms", type=int)
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
    """Send lines of standard input to a topic."""
    config: dict[str, Any] = {"acks": acks, "compression.type": codec}
    if batch_size is not None:
        config["batch.size"] = batch_size
    if linger_ms is not None:
        config["linger.ms"] = linger_ms
    config.update(client_config(bootstrap_server, command_config, extra))
    form = LineFormat.parse(key_values(properties))
    produce_lines(config, topic, prompting(sys.stdin.buffer), form)


@click.command("kafka-console-consumer")
@click.option("--bootstrap-server", required=True)
@click.option("--topic", required=True)
@click.option("--command-config", "--consumer.config", "command_config", type=_file)
@click.option("--property", "--formatter-property", "properties", multiple=True, metavar="KEY=VALUE")
@click.option("--command-property", "--consumer-property", "extra", multiple=True, metavar="KEY=VALUE")
@click.option("--from-beginning", is_flag=True)
@click.option("--group")
@click.option("--partition", type=click.IntRange(min=0))
@click.option("--offset")
@click.option("--max-messages", type=click.IntRange(min=1))
@click.option("--timeout-ms", type=int)
@click.option(
    "--isolation-level", type=click.Choice(["read_uncommitted", "read_committed"]), default="read_uncommitted"
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
    """Print the records of a topic."""
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
    run_tool(kafka_console_producer)


def consume_main() -> None:
    run_tool(kafka_console_consumer)
