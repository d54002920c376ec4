"""From the bytes of a topic to records of Connect and back, through transformations, with each step's errors.

Keeps true:  a record comes out whole or not at all: `Tolerated` is raised for one that was set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from felice.client.model import Message
from felice.dataclass import dataclass
from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.converters.headers import HeaderConverter
from felice.pipelines.connect.model.record import ConnectRecord, Header, SinkRecord, SourceRecord
from felice.pipelines.connect.model.runs import SinkRun, SourceRun, sink_record
from felice.pipelines.connect.model.schema import Schema
from felice.pipelines.connect.task.tolerance import Stage, Tolerance
from felice.pipelines.connect.transforms.predicates import Predicate
from felice.pipelines.connect.transforms.transformation import Transformation

if TYPE_CHECKING:
    import pyarrow as pa

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


@dataclass(frozen=True, slots=True)
class Columns:
    """What records of one topic are there, as a table for `Producer.produce_arrow`."""

    topic: str
    table: pa.Table


Parts: TypeAlias = tuple[tuple[Schema | None, Any], tuple[Schema | None, Any], tuple[Header, ...]]
"""Schema and value of a record's key, the same of its value, and its headers."""


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

    def of_messages(self, topic: str, partition: int, messages: Sequence[Message]) -> SinkRun | None:
        """The records of messages of one partition, or None if they must be converted one by one.

        That is so with transformations or headers, or if one cannot be converted.
        """
        if self._steps or any(message.headers() for message in messages):
            return None
        try:
            keys = self._key.from_column(topic, [message.key() for message in messages])
            values = self._value.from_column(topic, [message.value() for message in messages])
        except Exception:
            return None  # the message that cannot be converted is found, and its error told, one by one
        return SinkRun(topic, partition, messages, keys, values)

    def of_message(self, message: Message) -> SinkRecord | None:
        """The record of a message, or None if a transformation dropped it. Raises `Tolerated`."""
        topic, partition = message.topic() or "", message.partition() or 0
        parts = None if message.headers() else self._read_at_once(topic, message)
        key, value, headers = parts or self._read_in_steps(topic, message)
        record = sink_record(topic, partition, message, key, value, headers)
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

    def of_sources(self, records: Sequence[SourceRecord]) -> Columns | None:
        """What many records of a source are in their topic, or None if they must be converted one by one.

        That is so if they differ in topic or schemas, have headers or transformations, or if one cannot be converted.
        """
        if self._steps:
            return None
        try:
            return self._of_run(records) if isinstance(records, SourceRun) else self._of_list(records)
        except Exception:
            return None  # the record that cannot be converted is found, and its error told, one by one

    def _of_run(self, run: SourceRun) -> Columns:
        import pyarrow as pa

        return Columns(
            run.topic, pa.table({"value": self._value.to_column(run.topic, run.value_schema, run.values)})
        )

    def _of_list(self, records: Sequence[SourceRecord]) -> Columns | None:
        first = records[0]
        topic, key_schema, value_schema = first.topic, first.key_schema, first.value_schema
        schemas = {(id(one.key_schema), id(one.value_schema)) for one in records}
        if len(schemas) > 1 or any(one.headers or one.topic != topic for one in records):
            return None
        columns = {
            "key": self._key.to_column(topic, key_schema, [one.key for one in records]),
            "value": self._value.to_column(topic, value_schema, [one.value for one in records]),
        }
        return Columns(topic, _table(columns, records))

    def _read_at_once(self, topic: str, message: Message) -> Parts | None:
        """Key and value of a message without headers, or None if an error shall be handled, step by step."""
        try:
            key = self._key.from_bytes(topic, message.key())
            return key, self._value.from_bytes(topic, message.value()), ()
        except Exception:
            return None

    def _read_in_steps(self, topic: str, message: Message) -> Parts:
        raw = [Header(name, None, data) for name, data in message.headers() or ()]
        run, key, value = self._tolerance.run, self._key, self._value
        given = message.key(), raw
        read_key = run(Stage.KEY_CONVERTER, key, key.from_bytes, topic, *given, message=message)
        given = message.value(), raw
        read = run(Stage.VALUE_CONVERTER, value, value.from_bytes, topic, *given, message=message)
        headers: tuple[Header, ...] = ()
        if raw:
            headers = run(
                Stage.HEADER_CONVERTER, self._headers, self._read_headers, topic, raw, message=message
            )
        return read_key, read, headers

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


def _table(columns: dict[str, pa.Array], records: Sequence[SourceRecord]) -> pa.Table:
    import pyarrow as pa

    if any(one.partition is not None for one in records):
        columns["partition"] = pa.array([one.partition for one in records], pa.int32())
    if any(one.timestamp for one in records):
        columns["timestamp"] = pa.array([one.timestamp or None for one in records], pa.timestamp("ms"))
    return pa.table(columns)
