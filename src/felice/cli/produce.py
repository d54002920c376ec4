"""Sends lines of text as records: `felice produce` and the functions of `kafka-console-producer`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypedDict, Unpack

import click

from felice.cli.faults import Fault
from felice.cli.options import (
    client_config,
    connection_options,
    delivery_limit,
    form_of,
    json_option,
    key_values,
    quiet_logger,
    tell_of_waiting,
)
from felice.cli.output import show_json
from felice.dataclass import dataclass

if TYPE_CHECKING:
    from felice.client import KafkaError, Message, Producer

# How long an interrupted producer waits for responses.
_PARTING_S = 2.0
# How long it waits for metadata of its topic.
_LOOK_S = 5.0
CODECS = click.Choice(["none", "gzip", "snappy", "lz4", "zstd"])


class ProducedRecord(TypedDict, total=False):
    """The arguments of `Producer.produce` besides the topic."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int
    on_delivery: Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line is parsed to a record: the properties of Kafka's console producer."""

    parse_key: bool = False
    key_separator: str = "\t"
    parse_headers: bool = False
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    null_marker: str | None = None
    ignore_error: bool = False

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> LineFormat:
        """Reads properties such as `parse.key=true`; raises `Fault` for an unknown name, and for separators that cannot
        be told apart."""
        form = form_of(cls, properties)
        form._check_separators()
        return form

    def _check_separators(self) -> None:
        used = {"key.separator": self.key_separator} if self.parse_key else {}
        if self.parse_headers:
            used["headers.delimiter"] = self.headers_delimiter
            used["headers.separator"] = self.headers_separator
            used["headers.key.separator"] = self.headers_key_separator
        for name, text in used.items():
            if not text:
                raise Fault(f"{name} must not be empty")
            if text == self.null_marker:
                raise Fault(f"null.marker and {name} may not be equal")
        for first, second in combinations(
            ("headers.delimiter", "headers.separator", "headers.key.separator"), 2
        ):
            if self.parse_headers and used[first] == used[second]:
                raise Fault(f"{first} and {second} may not be equal")

    def record(self, line: bytes, number: int) -> ProducedRecord:
        """The arguments of `Producer.produce` for one line. A part that is not in the line is null, not empty."""
        record: ProducedRecord = {}
        rest = line
        if self.parse_headers:
            text, rest = self._split(rest, self.headers_delimiter, number, "headers delimiter")
            if (headers := self._value(text)) is not None:
                record["headers"] = self._headers(headers, number)
        if self.parse_key:
            key, rest = self._split(rest, self.key_separator, number, "key separator")
            record["key"] = self._value(key)
        record["value"] = self._value(rest)
        return record

    def _split(self, line: bytes, separator: str, number: int, what: str) -> tuple[bytes | None, bytes]:
        """The parts before and after the separator. Without it the first is None, if errors are to be ignored."""
        first, found, rest = line.partition(separator.encode())
        if found:
            return first, rest
        if self.ignore_error:
            return None, line
        raise Fault(
            f"No {what} {separator!r} found on line number {number}: {line.decode(errors='replace')!r}"
        )

    def _headers(self, text: bytes, number: int) -> list[tuple[str, bytes | None]]:
        pairs = text.split(self.headers_separator.encode())
        while text and pairs and not pairs[-1]:
            pairs.pop()  # as Java's split does: a separator at the end begins no header
        return [self._header(pair, number) for pair in pairs]

    def _header(self, pair: bytes, number: int) -> tuple[str, bytes | None]:
        key, rest = self._split(pair, self.headers_key_separator, number, "header key separator")
        try:
            name = (rest if key is None else key).decode()
        except UnicodeDecodeError:
            raise Fault(f"a header's key is not UTF-8 on line number {number}: {pair!r}") from None
        if name == self.null_marker:
            raise Fault(
                f"a header's key is the null marker {name!r} on line number {number}: keys cannot be null"
            )
        return name, None if key is None else self._value(rest)

    def _value(self, text: bytes | None) -> bytes | None:
        return None if self.null_marker is not None and text == self.null_marker.encode() else text


def produce_lines(
    config: Mapping[str, object],
    topic: str,
    lines: Iterable[bytes],
    form: LineFormat,
    *,
    partition: int = -1,
    sync: bool = False,
) -> dict[str, int]:
    """Sends each line as a record and returns the number of records sent. Raises the first failure. `sync` waits for
    the answer to each record before it sends the next."""
    from felice.client import KafkaException, Producer

    failures: list[KafkaError] = []
    sent = delivered = 0

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1
        else:
            failures.append(error)

    settings = {"client.id": "console-producer", "logger": quiet_logger(), "error_cb": tell_of_waiting}
    try:
        with Producer({**settings, **delivery_limit(config), **config}) as producer, brief_parting(producer):
            new_topic = NewTopicNotice(producer, topic)
            for number, line in enumerate(lines, start=1):
                record = form.record(line.rstrip(b"\n").removesuffix(b"\r"), number)
                if partition >= 0:
                    record["partition"] = partition
                if number == 1:
                    new_topic.look_before()
                record["on_delivery"] = on_delivery
                send_when_room(producer, topic, **record)
                sent += 1
                if sync:
                    producer.flush()
                producer.poll(0)
                if failures:
                    break
                if delivered:
                    new_topic.tell()
            producer.flush()
            if delivered:
                new_topic.tell()
    except KeyboardInterrupt:
        if failures:
            raise undelivered(len(failures), sent) from None
        raise
    if failures:
        if delivered:
            click.echo(f"{delivered} records were sent before and beside the failure", err=True)
        raise KafkaException(failures[0])
    return {"records": sent}


class NewTopicNotice:
    """Warns once if the first record created its topic, because the name may be misspelt."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._was_missing = False

    def look_before(self) -> None:
        """Checks whether the topic exists, before the first record makes the broker create it."""
        from felice.client import KafkaError, KafkaException

        # If no broker answers, sending the record reports that.
        with suppress(KafkaException):
            found = self._producer.list_topics(self._topic, timeout=_LOOK_S).topics[self._topic]
            self._was_missing = found.error == KafkaError.UNKNOWN_TOPIC_OR_PART

    def tell(self) -> None:
        """Prints the warning; called after a record was delivered."""
        from felice.client import KafkaException

        if not self._was_missing:
            return
        self._was_missing = False
        # An error here must not fail the command, because the record is delivered.
        with suppress(KafkaException):
            found = self._producer.list_topics(self._topic, timeout=_LOOK_S).topics[self._topic]
            partitions = f"{len(found.partitions)} partition{'s' * (len(found.partitions) != 1)}"
            click.echo(
                f"warning: there was no topic {self._topic}; it was created with {partitions}", err=True
            )


@contextmanager
def brief_parting(producer: Producer) -> Iterator[None]:
    """On an interrupt, waits a moment for records in flight and purges the rest; their delivery reports say so."""
    try:
        yield
    except KeyboardInterrupt:
        try:
            producer.flush(_PARTING_S)
        finally:
            producer.purge()
        raise


def undelivered(count: int, sent: int) -> Fault:
    """The error of an interrupted producer."""
    return Fault(f"interrupted: {count} of {sent} records were not delivered")


def send_when_room(producer: Producer, topic: str, **record: Unpack[ProducedRecord]) -> None:
    """Produces one record; waits while the producer's queue is full."""
    while True:
        try:
            producer.produce(topic, **record)
            return
        except BufferError:
            producer.poll(0.1)


def prompting(stream: BinaryIO) -> Iterable[bytes]:
    """The lines of standard input. On a terminal each has a prompt, as in Kafka's tool."""
    if not stream.isatty():
        yield from stream
        return
    while True:
        click.echo(">", nl=False)
        sys.stdout.flush()
        line = stream.readline()
        if not line:
            return
        yield line


@click.command()
@click.argument("topic")
@connection_options
@click.option(
    "--property",
    "-p",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="How lines become records: parse.key, key.separator, …",
)
@click.option("--key-separator", help="Separator between key and value in each line.")
@click.option(
    "--partition", type=int, default=-1, help="Send all records to this partition; -1: let the key decide."
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all", "-1"]),
    help="Replicas that must have a record before it is acknowledged.  [default: all]",
)
@click.option("--compression", type=CODECS, help="Codec for batches.  [default: none]")
@click.option(
    "--config", "-X", "extra", multiple=True, metavar="KEY=VALUE", help="A producer option; may be repeated."
)
@json_option
def produce(
    topic: str,
    bootstrap: str,
    command_config: Path | None,
    properties: tuple[str, ...],
    key_separator: str | None,
    partition: int,
    acks: str | None,
    compression: str | None,
    extra: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send lines of standard input to a topic.

    \b
    echo hello | felice produce flights
    echo UA:delayed | felice produce flights --key-separator :
    """
    found = key_values(properties)
    if key_separator is not None:
        found.update({"parse.key": "true", "key.separator": key_separator})
    chosen = (f"{key}={value}" for key, value in (("acks", acks), ("compression.type", compression)) if value)
    config = client_config(bootstrap, command_config, [*extra, *chosen])
    result = produce_lines(
        config, topic, prompting(sys.stdin.buffer), LineFormat.parse(found), partition=partition
    )
    if as_json:
        show_json({"topic": topic, **result})
