"""PRINT: the records of a topic as text, in formats that are guessed from their bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime

from felice.client.error import KafkaException
from felice.pipelines.sql.server.cluster import Cluster, is_record, record_of
from felice.pipelines.sql.server.failures import StatementFailed, reason_of
from felice.pipelines.sql.server.rows import MOST_AT_ONCE, POLL_S
from felice.pipelines.sql.syntax.tree import PrintTopic

_SHOWN_BYTES = 10_000
"""Of each key and value."""


def _json(data: bytes) -> str | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return data.decode() if isinstance(found, dict | list) else None


def _number(size: int) -> Callable[[bytes], str | None]:
    return lambda data: str(int.from_bytes(data, "big", signed=True)) if len(data) == size else None


def _text(data: bytes) -> str | None:
    try:
        found = data.decode()
    except UnicodeDecodeError:
        return None
    return found if found.isprintable() or "\n" in found or "\t" in found else None


_GUESSES: tuple[tuple[str, Callable[[bytes], str | None]], ...] = (
    ("JSON", _json),
    ("KAFKA_STRING", _text),
    ("KAFKA_BIGINT or KAFKA_DOUBLE", _number(8)),
    ("KAFKA_INT", _number(4)),
)


def guessed(data: bytes | None) -> tuple[str | None, str]:
    """The format that bytes seem to have, and their text in it."""
    if data is None:
        return None, "<null>"
    # Eight bytes are rather a BIGINT than a schema's id and three bytes.
    if data[:1] == b"\0" and len(data) > 5 and len(data) != 8:
        return (
            "AVRO, PROTOBUF or JSON_SR",
            f"schema {int.from_bytes(data[1:5], 'big')}, {data[5:_SHOWN_BYTES].hex()}",
        )
    for name, text in _GUESSES:
        found = text(data)
        if found is not None:
            return name, found[:_SHOWN_BYTES]
    return "BYTES", data[:_SHOWN_BYTES].hex()


class Printed:
    """The lines of one PRINT."""

    def __init__(self, given: PrintTopic) -> None:
        self._given = given
        self._formats: dict[str, str] = {}

    async def lines(self, cluster: Cluster) -> AsyncGenerator[list[str], None]:
        """Lines, some at a time; an empty list when no record came for a moment. Raises `StatementFailed`."""
        given, topic = self._given, self._given.topic
        try:
            if topic not in await cluster.topics([topic]):
                raise StatementFailed(
                    f"Could not find topic '{topic}', or the KSQL user does not have permissions to list the topic. "
                    "Topic names are case-sensitive.",
                    f"PRINT {topic};",
                )
            seen = shown = 0
            async with cluster.reading([topic], from_beginning=given.from_beginning) as (consumer, _):
                while given.limit is None or shown < given.limit:
                    messages = await consumer.consume(MOST_AT_ONCE, POLL_S)
                    lines = list[str]()
                    for one in messages:
                        if not is_record(one) or (given.limit is not None and shown >= given.limit):
                            continue
                        seen += 1
                        if (seen - 1) % (given.interval or 1):
                            continue
                        shown += 1
                        record = record_of(one)
                        lines += self._lines(record.key, record.value, record.timestamp, one.partition())
                    yield lines
        except KafkaException as error:
            raise StatementFailed(reason_of(error), f"PRINT {topic};") from None

    def _lines(
        self, key: bytes | None, value: bytes | None, timestamp: int, partition: int | None
    ) -> Sequence[str]:
        texts, told = list[str](), list[str]()
        for part, data in (("Key", key), ("Value", value)):
            name, text = guessed(data)
            texts.append(text)
            if name is not None and self._formats.get(part) != name:
                self._formats[part] = name
                told.append(f"{part} format: {name}")
        return [
            *told,
            f"rowtime: {_moment(timestamp)}, key: {texts[0]}, value: {texts[1]}, partition: {partition}",
        ]


def _moment(timestamp: int) -> str:
    try:
        found = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return f"{found:%Y/%m/%d %H:%M:%S}.{timestamp % 1000:03d} Z"
