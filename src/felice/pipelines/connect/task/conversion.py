"""From the bytes of a topic to records of Connect and back, through transformations, with each step's errors.

Keeps true:  a record comes out whole or not at all: `Tolerated` is raised for one that was set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from felice.client.model import Message
from felice.dataclass import dataclass
from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.converters.headers import HeaderConverter
from felice.pipelines.connect.model.record import ConnectRecord, Header, SinkRecord, SourceRecord
from felice.pipelines.connect.task.tolerance import Stage, Tolerance
from felice.pipelines.connect.transforms.predicates import Predicate
from felice.pipelines.connect.transforms.transformation import Transformation

R = TypeVar("R", bound=ConnectRecord)


@dataclass(frozen=True, slots=True)
class Step:
    """A transformation, and for which records: all, those of a predicate, or with `negate` all others."""

    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def apply(self, record: R) -> R | None:
        """The changed record, or None if it is dropped."""
        if self.predicate is not None and self.predicate.test(record) == self.negate:
            return record
        return self.transformation.apply(record)


@dataclass(frozen=True, slots=True)
class Produced:
    """What a source record is in its topic."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: tuple[tuple[str, bytes | None], ...]


_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
"""By the numbers of `Message.timestamp`."""


class Conversion:
    """The converters and transformations of one task."""

    def __init__(
        self,
        key: Converter,
        value: Converter,
        headers: HeaderConverter,
        steps: Sequence[Step],
        tolerance: Tolerance,
    ) -> None:
        self._key, self._value, self._headers = key, value, headers
        self._steps = steps
        self._tolerance = tolerance

    def of_message(self, message: Message) -> SinkRecord | None:
        """The record of a message, or None if a transformation dropped it. Raises `Tolerated`."""
        topic, partition = message.topic() or "", message.partition() or 0
        raw = [Header(name, None, data) for name, data in message.headers() or ()]
        run, key, value = self._tolerance.run, self._key, self._value
        given = message.key(), raw
        key_schema, read_key = run(Stage.KEY_CONVERTER, key, key.from_bytes, topic, *given, message=message)
        given = message.value(), raw
        schema, read = run(Stage.VALUE_CONVERTER, value, value.from_bytes, topic, *given, message=message)
        headers: tuple[Header, ...] = ()
        if raw:
            headers = run(
                Stage.HEADER_CONVERTER, self._headers, self._read_headers, topic, raw, message=message
            )
        kind, timestamp = message.timestamp()
        record = SinkRecord(
            topic,
            partition,
            key_schema,
            read_key,
            schema,
            read,
            timestamp if kind else None,
            headers,
            offset=message.offset() or 0,
            timestamp_type=_TIMESTAMP_TYPES[kind],
            original_topic=topic,
            original_partition=partition,
        )
        return self._transformed(record, message=message) if self._steps else record

    def of_source(self, record: SourceRecord) -> Produced | None:
        """What a source's record is in its topic, or None if a transformation dropped it. Raises `Tolerated`."""
        made = self._transformed(record, source_record=record) if self._steps else record
        if made is None:
            return None
        run, about = self._tolerance.run, {"source_record": record}
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if made.headers:
            headers = run(Stage.HEADER_CONVERTER, self._headers, self._written_headers, made.headers, **about)
        given = made.topic, made.key_schema, made.key, made.headers
        key = run(Stage.KEY_CONVERTER, self._key, self._key.to_bytes, *given, **about)
        given = made.topic, made.value_schema, made.value, made.headers
        value = run(Stage.VALUE_CONVERTER, self._value, self._value.to_bytes, *given, **about)
        return Produced(made.topic, made.partition, key, value, made.timestamp, headers)

    def _read_headers(self, topic: str, raw: Sequence[Header]) -> tuple[Header, ...]:
        read = self._headers.from_header
        return tuple(Header(one.name, *read(topic, one.name, one.value)) for one in raw)

    def _written_headers(self, headers: Sequence[Header]) -> tuple[tuple[str, bytes | None], ...]:
        write = self._headers.to_header
        return tuple((one.name, write(one.name, one.schema, one.value)) for one in headers)

    def _transformed(self, record: R, **about: Any) -> R | None:
        made: R | None = record
        for step in self._steps:
            made = self._tolerance.run(Stage.TRANSFORMATION, step.transformation, step.apply, made, **about)
            if made is None:
                return None
        return made

    def close(self) -> None:
        """Gives up what the transformations hold."""
        for step in self._steps:
            step.transformation.close()
