"""Writes rows to topics: the sink of batch and streaming queries.

Keeps true: what a task wrote is acknowledged before the task succeeds: at least once.
            A task that runs again writes its rows again. The rows of one key keep
            their order within a task and go to the partition Java's producer chooses.
Columns as in Spark's own Kafka sink: key, value, topic, partition, headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from felice.pipelines.spark.mistakes import OptionError, QueryError, told_plainly
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.producing import TopicWriter
from felice.pipelines.spark.schema import HEADERS


class SchemaError(QueryError, ValueError):
    """The rows cannot be records: which column, what it is, what it must be."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @told_plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_rows(iterator, self._options))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @told_plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_rows(iterator, self._options))


def write_rows(rows: Iterator[pa.RecordBatch], options: SinkOptions) -> int:
    writer = TopicWriter(options)
    for batch in rows:
        writer.add(batch)
    writer.flush()
    return writer.rows_written


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Refuse, before anything is written, rows that are no records or say not where they go."""
    types = {field.name: field.dataType for field in schema.fields}
    for name, column_type in types.items():
        if name not in _ACCEPTED:
            raise SchemaError(f"column {name!r} is no part of a record; a record has {', '.join(_ACCEPTED)}")
        accepted, said = _ACCEPTED[name]
        if not accepted(column_type):
            raise SchemaError(f"column {name!r} is {column_type.simpleString()}, but must be {said}")
    if "value" not in types:
        raise SchemaError("there is no column 'value'; without one there is nothing to write")
    if "topic" not in types and options.topic is None:
        raise OptionError("topic", "is required where the rows have no column 'topic'")


def _text_or_bytes(given: DataType) -> bool:
    return isinstance(given, StringType | BinaryType)


_ACCEPTED: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "key": (_text_or_bytes, "string or binary"),
    "value": (_text_or_bytes, "string or binary"),
    "topic": (lambda given: isinstance(given, StringType), "string"),
    "partition": (lambda given: isinstance(given, IntegerType), "int"),
    "headers": (lambda given: _same_shape(given), HEADERS.simpleString()),
}


def _same_shape(given: DataType) -> bool:
    # Whether something may be null is no part of the shape.
    return given.simpleString() == HEADERS.simpleString()
