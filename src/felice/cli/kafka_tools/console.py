"""`kafka-console-producer` and `kafka-console-consumer`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.consume import (
    RecordFormat,
    consume_records,
    reader_config,
    select,
    write_records,
)
from felice.cli.faults import Fault
from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool
from felice.cli.options import client_config, form_properties
from felice.cli.produce import LineFormat, produce_lines, prompting
from felice.cli.standard_streams import standard_output

if TYPE_CHECKING:
    from felice.client import Message

_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_FORMATTERS = frozenset(
    f"{package}.DefaultMessageFormatter" for package in ("kafka.tools", "org.apache.kafka.tools.consumer")
)
_NO_OUTPUT = frozenset(
    f"{package}.NoOpMessageFormatter" for package in ("kafka.tools", "org.apache.kafka.tools.consumer")
)
# Options of the producer, by the key of its configuration.
_KEYS = {
    "acks": "acks",
    "batch_size": "batch.size",
    "codec": "compression.type",
    "linger_ms": "linger.ms",
    "max_block_ms": "max.block.ms",
    "max_memory_bytes": "buffer.memory",
    "message_send_max_retries": "retries",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "request_timeout_ms": "request.timeout.ms",
    "retry_backoff_ms": "retry.backoff.ms",
    "socket_buffer_size": "send.buffer.bytes",
}


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
    type=click.Choice(["-1", "0", "1", "all"]),
    help="Replicas that must have a record before it is acknowledged (-1: all in-sync replicas).",
)
@click.option(
    "--compression-codec",
    "codec",
    is_flag=False,
    flag_value="gzip",
    help="none, gzip, snappy, lz4 or zstd; without a value gzip.",
)
@click.option(
    "--batch-size", "--max-partition-memory-bytes", "batch_size", type=int, help="Largest batch in bytes."
)
@click.option("--timeout", "linger_ms", type=int, help="Milliseconds that a batch waits for more records.")
@click.option("--max-block-ms", type=int, help="max.block.ms; without effect, --request-timeout-ms has one.")
@click.option("--max-memory-bytes", type=int, help="buffer.memory: bytes of records that wait to be sent.")
@click.option("--message-send-max-retries", type=int, help="retries: how often a record is sent again.")
@click.option(
    "--metadata-expiry-ms", type=int, help="metadata.max.age.ms: when metadata are asked for again."
)
@click.option("--request-timeout-ms", type=int, help="request.timeout.ms: how long an answer may take.")
@click.option("--retry-backoff-ms", type=int, help="retry.backoff.ms: the pause before a retry.")
@click.option("--socket-buffer-size", type=int, help="send.buffer.bytes: the size of TCP's buffer.")
@click.option("--sync", is_flag=True, help="Wait for the answer to each record before the next is sent.")
@click.option("--reader-config", type=_file, help="A file of properties as --reader-property takes them.")
def kafka_console_producer(
    bootstrap_server: str,
    topic: str,
    command_config: Path | None,
    properties: tuple[str, ...],
    extra: tuple[str, ...],
    sync: bool,
    reader_config: Path | None,
    **tuning: str | int | None,
) -> None:
    """Send lines of standard input to a topic.

    \b
    echo hello | kafka-console-producer --bootstrap-server localhost:9092 --topic flights
    """
    given = [f"{_KEYS[name]}={value}" for name, value in tuning.items() if value is not None]
    config = client_config(bootstrap_server, command_config, [*extra, *given])
    form = LineFormat.parse(form_properties(reader_config, properties))
    produce_lines(config, topic, prompting(sys.stdin.buffer), form, sync=sync)


@kafka_tool("kafka-console-consumer")
@bootstrap_server_option
@click.option("--topic", help="Topic to read.")
@click.option("--include", metavar="PATTERN", help="Topics to read: those whose whole name matches.")
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
    help="What to print: print.key, print.offset, key.separator, value.deserializer, …",
)
@click.option(
    "--formatter-config", type=_file, help="A file of properties as --formatter-property takes them."
)
@click.option("--formatter", metavar="CLASS", help="Kafka's DefaultMessageFormatter or NoOpMessageFormatter.")
@click.option("--key-deserializer", metavar="CLASS", help="How keys are printed, as key.deserializer.")
@click.option("--value-deserializer", metavar="CLASS", help="How values are printed, as value.deserializer.")
@click.option("--skip-message-on-error", is_flag=True, help="Go on after a record that cannot be printed.")
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
    topic: str | None,
    include: str | None,
    command_config: Path | None,
    properties: tuple[str, ...],
    formatter_config: Path | None,
    formatter: str | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    skip_message_on_error: bool,
    extra: tuple[str, ...],
    from_beginning: bool,
    group: str | None,
    partition: int | None,
    offset: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
) -> None:
    """Print the records of a topic, or of topics whose names match a pattern.

    \b
    kafka-console-consumer --bootstrap-server localhost:9092 --topic flights --from-beginning
    kafka-console-consumer --bootstrap-server localhost:9092 --topic counts --formatter-property print.key=true \\
        --value-deserializer org.apache.kafka.common.serialization.LongDeserializer
    """
    wanted = _topic_or_pattern(topic, include, partition)
    if offset is not None and partition is None:
        raise Fault("The partition is required when offset is specified.")
    if from_beginning and offset is not None:
        raise Fault("Options from-beginning and offset cannot be specified together.")
    printed = form_properties(formatter_config, properties)
    for name, class_name in (
        ("key.deserializer", key_deserializer),
        ("value.deserializer", value_deserializer),
    ):
        if class_name is not None:
            printed[name] = class_name
    form = RecordFormat.parse(printed)
    write = _formatter(formatter, form)
    config = client_config(bootstrap_server, command_config, extra)
    config.setdefault("isolation.level", isolation_level)
    reader = reader_config(config, group, from_beginning=from_beginning, partition=partition)
    selection = select(
        wanted,
        from_beginning=from_beginning,
        partition=partition,
        offset=offset,
        max_records=max_messages,
        timeout_ms=timeout_ms,
    )
    written = write_records(
        consume_records(reader, selection),
        write,
        standard_output(),
        sys.stdout.isatty(),
        skip_on_error=skip_message_on_error,
    )
    click.echo(f"Processed a total of {written.records} messages", err=True)
    if written.interrupted:
        raise click.Abort


def _topic_or_pattern(topic: str | None, include: str | None, partition: int | None) -> str:
    """What to subscribe to: a pattern begins with ^."""
    if (topic is None) == (include is None):
        raise Fault("Exactly one of the following arguments is required: [topic], [include]")
    if include is not None and partition is not None:
        raise Fault("The topic is required when partition is specified.")
    return topic if topic is not None else f"^(?:{include})$"


def _formatter(class_name: str | None, form: RecordFormat) -> Callable[[Message], bytes]:
    """What prints a record. Raises `Fault` for a class that this tool does not know."""
    if class_name is None or class_name in _FORMATTERS:
        return form.line
    if class_name in _NO_OUTPUT:
        return lambda message: b""
    known = ", ".join(sorted(name for name in _FORMATTERS | _NO_OUTPUT if name.startswith("org.")))
    raise Fault(f"there is no formatter {class_name}; there are {known}")
