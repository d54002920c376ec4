"""Runs: many records that are alike, kept as columns. Records are made when a run is used as a sequence of them.

The framework, and a connector that wants to be fast, uses the columns instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from felice.pipelines.connect.model.record import ConnectRecord, Header, SinkRecord, SourceRecord
from felice.pipelines.connect.model.schema import Schema

if TYPE_CHECKING:
    from felice.client.model import Message

R = TypeVar("R", bound=ConnectRecord)

_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
"""By the numbers of `Message.timestamp`."""


class _Run(Sequence[R]):
    """A sequence of records. They are made together and kept, so each is the same object whenever it is asked for."""

    values: Sequence[Any]
    _records: list[R] | None = None

    def _made(self) -> list[R]:
        raise NotImplementedError

    @property
    def records(self) -> list[R]:
        """The records."""
        if self._records is None:
            self._records = self._made()
        return self._records

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[R]:
        return iter(self.records)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> list[R]: ...
    def __getitem__(self, index: int | slice) -> R | list[R]:
        return self.records[index]


class SourceRun(_Run[SourceRecord]):
    """Records of one partition of a source, for one topic, with one schema, and with neither headers nor keys.

    `SourceTask.poll` may return a run instead of a list.
    """

    def __init__(
        self,
        topic: str,
        value_schema: Schema | None,
        values: Sequence[Any],
        source_partition: Mapping[str, Any],
        offset_after: Callable[[int], Mapping[str, Any]],
    ) -> None:
        """`offset_after` gives the offset after the record with an index. Mostly only the last one is asked for."""
        self.topic = topic
        self.value_schema, self.values = value_schema, values
        self.source_partition, self.offset_after = source_partition, offset_after

    @property
    def last(self) -> SourceRecord:
        """The last record."""
        return self._record(len(self.values) - 1)

    def _made(self) -> list[SourceRecord]:
        return [self._record(index) for index in range(len(self.values))]

    def _record(self, index: int) -> SourceRecord:
        return SourceRecord(
            self.topic,
            None,
            None,
            None,
            self.value_schema,
            self.values[index],
            source_partition=self.source_partition,
            source_offset=self.offset_after(index),
        )


class SinkRun(_Run[SinkRecord]):
    """Records of one partition without headers: the messages, and what their keys and values stand for."""

    def __init__(
        self,
        topic: str,
        partition: int,
        messages: Sequence[Message],
        keys: tuple[Sequence[Schema | None], Sequence[Any]],
        values: tuple[Sequence[Schema | None], Sequence[Any]],
    ) -> None:
        """`keys` and `values` have a schema and a value for each message."""
        self.topic, self.partition, self.messages = topic, partition, messages
        self.key_schemas, self.keys = keys
        self.value_schemas, self.values = values
        assert len(messages) == len(self.keys) == len(self.values), (
            "a run has a key and a value for each message"
        )

    def _made(self) -> list[SinkRecord]:
        topic, partition = self.topic, self.partition
        columns = zip(
            self.messages, self.key_schemas, self.keys, self.value_schemas, self.values, strict=True
        )
        return [
            sink_record(topic, partition, message, (key_schema, key), (schema, value))
            for message, key_schema, key, schema, value in columns
        ]


def sink_record(
    topic: str,
    partition: int,
    message: Message,
    key: tuple[Schema | None, Any],
    value: tuple[Schema | None, Any],
    headers: tuple[Header, ...] = (),
) -> SinkRecord:
    """The record of a message, whose key and value are given with their schemas."""
    kind, timestamp = message.timestamp()
    return SinkRecord(
        topic,
        partition,
        *key,
        *value,
        timestamp if kind else None,
        headers,
        message.offset() or 0,
        _TIMESTAMP_TYPES[kind],
        topic,
        partition,
        message,
    )


def values_of(records: Sequence[SinkRecord]) -> Sequence[Any]:
    """The values of records; those of a run are not made into records for it."""
    return records.values if isinstance(records, SinkRun) else [record.value for record in records]
