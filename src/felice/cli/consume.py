"""Prints records as lines of text: `felice consume` and the functions of `kafka-console-consumer`."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from felice.cli.deserializers import Deserializer, deserializer_of
from felice.cli.faults import Fault
from felice.cli.options import (
    client_config,
    connection_options,
    form_of,
    json_option,
    key_values,
    quiet_logger,
    tell_of_waiting,
)
from felice.cli.output import as_json_text
from felice.cli.standard_streams import standard_output
from felice.dataclass import dataclass

if TYPE_CHECKING:
    from felice.client import Consumer, Message

_POLL_S = 0.2
_REACH_TIMEOUT_S = 2.0
# A broker that was busy must not be reported as one that does not answer.
_CHECK_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """How a record is printed: the properties of Kafka's console consumer."""

    print_timestamp: bool = False
    print_key: bool = False
    print_offset: bool = False
    print_partition: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_value: bool = True
    key_separator: str = "\t"
    line_separator: str = "\n"
    headers_separator: str = ","
    null_literal: str = "null"
    key_deserializer: str = ""
    value_deserializer: str = ""
    headers_deserializer: str = ""
    printers: tuple[Deserializer | None, Deserializer | None, Deserializer | None] = (None, None, None)
    """Of keys, values and values of headers; made of the names above."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> RecordFormat:
        """Reads properties such as `print.key=true`; raises `Fault` for an unknown name."""
        # The help of Kafka's tool has the first name, its program the second.
        given = {
            "headers.deserializer" if name == "header.deserializer" else name: text
            for name, text in properties.items()
        }
        form = form_of(cls, given, but=("printers",))
        names = (form.key_deserializer, form.value_deserializer, form.headers_deserializer)
        key, value, header = (deserializer_of(name) if name else None for name in names)
        return replace(form, printers=(key, value, header))

    def line(self, message: Message) -> bytes:
        """The parts in the order of Kafka's tool: timestamp, partition, offset, epoch, headers, key, value."""
        key, value, header = self.printers
        parts: list[bytes] = []
        if self.print_timestamp:
            kind, timestamp = message.timestamp()
            parts.append(f"{('NoTimestampType', 'CreateTime', 'LogAppendTime')[kind]}:{timestamp}".encode())
        if self.print_partition:
            parts.append(f"Partition:{message.partition()}".encode())
        if self.print_offset:
            parts.append(f"Offset:{message.offset()}".encode())
        if self.print_epoch:
            parts.append(f"Epoch:{message.leader_epoch()}".encode())
        if self.print_headers:
            parts.append(self._headers(message.headers(), header))
        if self.print_key:
            parts.append(self._text(message.key(), key))
        if self.print_value:
            parts.append(self._text(message.value(), value))
        return self.key_separator.encode().join(parts) + self.line_separator.encode()

    def _headers(self, headers: list[tuple[str, bytes | None]] | None, printer: Deserializer | None) -> bytes:
        if not headers:
            return b"NO_HEADERS"
        pairs = (key.encode() + b":" + self._text(value, printer) for key, value in headers)
        return self.headers_separator.encode().join(pairs)

    def _text(self, value: bytes | None, printer: Deserializer | None) -> bytes:
        if value is None:
            return self.null_literal.encode()
        return value if printer is None else printer(value)


def record_as_json(message: Message) -> dict[str, object]:
    """The facts of a record, to be printed as JSON."""
    kind, timestamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
        "key": message.key(),
        "value": message.value(),
        "headers": [[key, value] for key, value in message.headers() or []],
    }


def json_line(message: Message) -> bytes:
    """The record as one line of JSON."""
    return as_json_text(record_as_json(message)).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records: from where, how many, and how long to wait for the next one."""

    topic: str
    """A name; without a partition also a pattern that begins with ^."""
    partition: int | None = None
    offset: int | None = None
    """The first offset to read, or -2 for the partition's beginning, or -1 for its end."""
    max_records: int | None = None
    timeout_s: float | None = None
    stop_at_end: bool = False


def consume_records(config: Mapping[str, object], selection: Selection) -> Iterator[Message]:
    """The records, until the selection is satisfied. The consumer is closed when the iterator is."""
    from felice.client import Consumer, TopicPartition

    settings = {
        "client.id": "console-consumer",
        "enable.partition.eof": selection.stop_at_end,
        "logger": quiet_logger(),
        **config,
    }
    consumer = Consumer(settings)
    try:
        if selection.partition is not None:
            start = selection.offset if selection.offset is not None else -1
            consumer.assign([TopicPartition(selection.topic, selection.partition, start)])
        else:
            consumer.subscribe([selection.topic])
        yield from _poll(consumer, selection)
    finally:
        consumer.close()


def _poll(consumer: Consumer, selection: Selection) -> Iterator[Message]:
    from felice.client import KafkaError, KafkaException

    count = 0
    ended: set[tuple[str | None, int | None]] = set()
    waited_since = time.monotonic()
    # Until a record or the end of a partition comes, it is unknown whether any broker was reached.
    is_unheard = True
    is_checked = selection.partition is None
    try:
        while selection.max_records is None or count < selection.max_records:
            message = consumer.poll(_POLL_S)
            if message is None:
                is_checked = is_checked or _has_partition(consumer, selection)
                if selection.timeout_s is not None and time.monotonic() - waited_since >= selection.timeout_s:
                    break
                continue
            error = message.error()
            if error is None:
                is_unheard = False
                yield message
                count += 1
                waited_since = time.monotonic()
            elif error.code() == KafkaError._PARTITION_EOF:
                is_unheard = False
                ended.add((message.topic(), message.partition()))
                if ended >= {(found.topic, found.partition) for found in consumer.assignment()}:
                    break
            elif not error.retriable() or (
                selection.stop_at_end and error == KafkaError.UNKNOWN_TOPIC_OR_PART
            ):
                # An unknown topic has no end, so `stop_at_end` could never be satisfied.
                raise KafkaException(error)
            else:
                tell_of_waiting(error)
    except KeyboardInterrupt:
        if is_unheard:
            check_reached(consumer)
        raise
    if is_unheard:
        check_reached(consumer)


def _has_partition(consumer: Consumer, selection: Selection) -> bool:
    """Whether the partition exists. False also while metadata is missing; raises `Fault` if the topic lacks it."""
    from felice.client import KafkaException

    with suppress(KafkaException):
        found = consumer.list_topics(selection.topic, timeout=_REACH_TIMEOUT_S).topics[selection.topic]
        if found.error is not None or not found.partitions:
            return False
        if selection.partition not in found.partitions:
            raise Fault(
                f"topic {selection.topic} has no partition {selection.partition}; "
                f"its partitions are 0 to {max(found.partitions)}"
            )
        return True
    return False


def check_reached(consumer: Consumer) -> None:
    """Raises if no broker was ever reached. Waiting in vain for records, on the other hand, is a normal end."""
    from felice.client import KafkaException

    if consumer.assignment() and consumer.memberid():
        return  # the coordinator has answered
    try:
        consumer.list_topics("", timeout=_CHECK_TIMEOUT_S)
    except KafkaException:
        raise Fault("no broker answers. Is one running, and does --bootstrap-server name it?") from None


class Written(NamedTuple):
    """What was printed: the number of records, and whether the process was interrupted."""

    records: int
    interrupted: bool


def write_records(
    records: Iterator[Message],
    write: Callable[[Message], bytes],
    out: BinaryIO,
    flush_each: bool,
    *,
    skip_on_error: bool = False,
) -> Written:
    """Prints records as they arrive, until they end or the process is asked to stop. What cannot be printed ends this,
    or is skipped."""
    count = 0
    interrupted = False
    try:
        for message in records:
            try:
                out.write(write(message))
            except Fault as error:
                where = f"{message.topic()}-{message.partition()} offset {message.offset()}: {error.message}"
                if not skip_on_error:
                    out.flush()
                    raise Fault(where) from None
                click.echo(f"skipped: {where}", err=True)
            count += 1
            if flush_each:
                out.flush()
    except KeyboardInterrupt:
        interrupted = True
    out.flush()
    return Written(count, interrupted)


def parse_offset(text: str) -> int:
    """Reads `earliest`, `latest` or an offset. Refuses negative offsets: no tool counts them from the end."""
    if text in ("earliest", "latest"):
        return {"earliest": -2, "latest": -1}[text]
    if not text.isdecimal():
        raise Fault(
            f"The provided offset value '{text}' is incorrect; use 'earliest', 'latest' or a number >= 0"
        )
    return int(text)


def reader_config(
    config: dict[str, object], group: str | None, *, from_beginning: bool, partition: int | None = None
) -> dict[str, object]:
    """The configuration of a console consumer. Without a group it gets a new group and commits nothing.

    Raises `Fault` if the configuration contradicts the options."""
    configured = config.get("group.id") or None
    if group is not None and partition is not None:
        raise Fault("Options group and partition cannot be specified together.")
    if group is not None and configured not in (None, group):
        raise Fault(
            f"The group ids in --group and in the configuration do not match: {group!r} and {configured!r}"
        )
    reset = config.get("auto.offset.reset")
    if from_beginning and reset not in (None, "earliest", "smallest", "beginning"):
        raise Fault(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', "
            "please remove one option"
        )
    config.setdefault("auto.offset.reset", "earliest" if from_beginning else "latest")
    config.setdefault("enable.auto.commit", bool(group or configured))
    config["group.id"] = group or configured or f"console-consumer-{uuid.uuid4().int % 100_000}"
    return config


def select(
    topic: str,
    *,
    from_beginning: bool,
    partition: int | None,
    offset: str | None,
    max_records: int | None,
    timeout_ms: int | None,
    stop_at_end: bool = False,
) -> Selection:
    """The selection that the options of a console consumer describe."""
    start = parse_offset(offset) if offset is not None else (-2 if from_beginning else -1)
    return Selection(
        topic,
        partition=partition,
        offset=start if partition is not None else None,
        max_records=max_records,
        timeout_s=timeout_ms / 1000 if timeout_ms is not None else None,
        stop_at_end=stop_at_end,
    )


@click.command()
@click.argument("topic")
@connection_options
@click.option(
    "--from-beginning", is_flag=True, help="Start at the first record if the group has no committed offset."
)
@click.option(
    "--group",
    "-g",
    help="Consumer group to join; offsets are committed. Default: a new group that commits nothing.",
)
@click.option("--partition", type=click.IntRange(min=0), help="Read one partition only.")
@click.option("--offset", help="Where to start in --partition: earliest, latest or a number.")
@click.option("--max-messages", "-n", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--timeout-ms", type=int, help="Stop if no record arrives for this long.")
@click.option("--until-end", is_flag=True, help="Stop at the end of the topic instead of waiting for more.")
@click.option(
    "--property",
    "-p",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="What to print: print.key, print.offset, …",
)
@click.option(
    "--config", "-X", "extra", multiple=True, metavar="KEY=VALUE", help="A consumer option; may be repeated."
)
@json_option
def consume(
    topic: str,
    bootstrap: str,
    command_config: Path | None,
    from_beginning: bool,
    group: str | None,
    partition: int | None,
    offset: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    until_end: bool,
    properties: tuple[str, ...],
    extra: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the records of a topic.

    \b
    felice consume flights --from-beginning -n 10
    felice consume flights --partition 0 --offset 100 --until-end -p print.key=true
    """
    if offset is not None and partition is None:
        raise Fault("--offset needs --partition: an offset means nothing without one")
    if from_beginning and offset is not None:
        raise Fault("--from-beginning and --offset cannot be specified together")
    out = standard_output()
    config = client_config(bootstrap, command_config, extra)
    selection = select(
        topic,
        from_beginning=from_beginning,
        partition=partition,
        offset=offset,
        max_records=max_messages,
        timeout_ms=timeout_ms,
        stop_at_end=until_end,
    )
    form = RecordFormat.parse(key_values(properties))
    reader = reader_config(config, group, from_beginning=from_beginning, partition=partition)
    records = consume_records(reader, selection)
    write = json_line if as_json else form.line
    # JSON is read by programs, which may wait for the next line, so each line is flushed.
    written = write_records(records, write, out, as_json or sys.stdout.isatty())
    if written.interrupted:
        raise click.Abort
