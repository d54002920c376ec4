"""Writes rows to topics: the sink of batch and streaming queries.

Keeps true: what a task wrote is acknowledged before the task succeeds. Exactly once, the default of a stream:
            `commit` decides what is visible. At least once: a task that runs again writes its rows again.
            The rows of one key keep their order within a task and go to the partition Java's producer chooses.
Columns as in Spark's own Kafka sink: key, value, topic, partition, headers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from felice.client.blocking.coordinators import BlockingCoordinators
from felice.client.error import KafkaException
from felice.pipelines.spark.commit import Prepared, abort_batch, commit_batch
from felice.pipelines.spark.connections import client_of
from felice.pipelines.spark.identity import TaskIdentity
from felice.pipelines.spark.ledger import BrokerLedger
from felice.pipelines.spark.mistakes import OptionError, QueryError, plain_errors
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.producing import PlainOutput, TopicWriter
from felice.pipelines.spark.properties import BATCH_ID, QUERY_ID
from felice.pipelines.spark.schema import HEADERS
from felice.pipelines.spark.topic_limits import topic_limits
from felice.pipelines.spark.transactional import TransactionalOutput

log = logging.getLogger(__name__)


class SchemaError(QueryError, ValueError):
    """The rows cannot be written as records. The text names the column, its type and the types that it may have."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The commit message of one task. `identity` is None if its rows were written without a transaction."""

    rows: int
    identity: TaskIdentity | None = None
    prepared: Prepared | None = None
    topics: frozenset[str] = frozenset()


Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query, exactly once if its options identify the write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._exactly_once = options.for_batch()

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Called by Spark in a worker: writes the rows of one task."""
        if not self._exactly_once or self._options.identified is None:
            return write_rows(iterator, self._options)
        application, version = self._options.identified
        task = TaskContext.get()
        assert task is not None, "Spark writes in tasks"
        identity = TaskIdentity(application, version, task.partitionId(), task.attemptNumber())
        return write_part(iterator, self._options, identity)

    @plain_errors
    def commit(self, messages: Messages) -> None:
        """Called by Spark in the driver when all tasks have succeeded."""
        if self._exactly_once:
            commit_parts(messages, self._options)

    def abort(self, messages: Messages) -> None:
        """Called by Spark in the driver when the query has failed."""
        if self._exactly_once:
            abort_parts(messages, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, exactly once unless its options ask for less."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._exactly_once = options.for_stream()

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Called by Spark in a worker: writes the rows of one task."""
        if not self._exactly_once:
            return write_rows(iterator, self._options)
        return write_part(iterator, self._options, _identity_in_stream())

    @plain_errors
    def commit(self, messages: Messages, batchId: int) -> None:
        """Called by Spark in the driver when all tasks of the batch have succeeded."""
        if self._exactly_once:
            commit_parts(messages, self._options)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Called by Spark in the driver when the batch has failed."""
        if self._exactly_once:
            abort_parts(messages, self._options)


def _identity_in_stream() -> TaskIdentity:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks"
    query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query_id is None or batch_id is None:
        raise QueryError("exactly once needs a streaming query; this task belongs to none")
    return TaskIdentity(query_id, int(batch_id), task.partitionId(), task.attemptNumber())


def write_rows(rows: Iterator[pa.RecordBatch], options: SinkOptions) -> Written:
    """Writes the rows of a task at least once, without a transaction."""
    client = client_of(options.client)
    writer = TopicWriter(options, client, PlainOutput(client, options), partial(topic_limits, options.client))
    _write_all(rows, writer)
    return Written(writer.rows_written)


def write_part(rows: Iterator[pa.RecordBatch], options: SinkOptions, identity: TaskIdentity) -> Written:
    """Writes the rows of a task in a transaction that stays open. Aborts it if writing fails."""
    client = client_of(options.client)
    output = TransactionalOutput(client, options, identity)
    writer = TopicWriter(options, client, output, partial(topic_limits, options.client))
    try:
        _write_all(rows, writer)
    except BaseException:
        output.give_up()
        raise
    return Written(writer.rows_written, identity, output.prepare(), output.topics)


def _write_all(rows: Iterator[pa.RecordBatch], writer: TopicWriter) -> None:
    for batch in rows:
        writer.add(batch)
    writer.flush()


def commit_parts(messages: Messages, options: SinkOptions) -> None:
    """Commits the transactions of all tasks of a batch. Also aborts transactions that failed attempts left."""
    written = [message for message in messages if isinstance(message, Written)]
    if (identity := _identity_of(written)) is None:
        return
    commit_batch(_ledger(identity.query_id, written, options), identity.batch_id, _prepared(written))


def abort_parts(messages: Messages, options: SinkOptions) -> None:
    """Abort the transactions of a failed batch. The next run aborts those that stay open, or they time out."""
    written = [message for message in messages if isinstance(message, Written)]
    if (identity := _identity_of(written)) is None:
        return
    try:
        abort_batch(_ledger(identity.query_id, written, options), identity.batch_id, _prepared(written))
    except (QueryError, KafkaException) as error:
        log.warning("batch %d could not be aborted yet: %s", identity.batch_id, error)


def _ledger(query_id: str, written: Iterable[Written], options: SinkOptions) -> BrokerLedger:
    topics = {topic for message in written for topic in message.topics}
    return BrokerLedger(BlockingCoordinators(client_of(options.client)), query_id, topics)


def _identity_of(written: Iterable[Written]) -> TaskIdentity | None:
    return next((message.identity for message in written if message.identity is not None), None)


def _prepared(written: Iterable[Written]) -> list[Prepared]:
    return [message.prepared for message in written if message.prepared is not None]


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Refuse columns that records cannot have, and rows without a topic.

    Spark calls this before anything is written.
    """
    check_columns(schema, tuple(_ACCEPTED))
    if "topic" not in schema.names and options.topic is None:
        raise OptionError("topic", "is required where the rows have no column 'topic'")


def check_columns(schema: StructType, names: Sequence[str]) -> None:
    """Refuse other columns than these, wrong types, and rows without a value."""
    types = {field.name: field.dataType for field in schema.fields}
    for name, column_type in types.items():
        if name not in names:
            raise SchemaError(f"column {name!r} is no part of a record; a record has {', '.join(names)}")
        accepted, said = _ACCEPTED[name]
        if not accepted(column_type):
            raise SchemaError(f"column {name!r} is {column_type.simpleString()}, but must be {said}")
    if "value" not in types:
        raise SchemaError("there is no column 'value'; without one there is nothing to write")


def _text_or_bytes(given: DataType) -> bool:
    return isinstance(given, StringType | BinaryType)


_ACCEPTED: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "key": (_text_or_bytes, "string or binary"),
    "value": (_text_or_bytes, "string or binary"),
    "topic": (lambda given: isinstance(given, StringType), "string"),
    "partition": (lambda given: isinstance(given, IntegerType), "int"),
    "timestamp": (lambda given: isinstance(given, TimestampType), "timestamp"),
    "headers": (lambda given: _same_shape(given), HEADERS.simpleString()),
}


def _same_shape(given: DataType) -> bool:
    # Two types may differ in whether their values can be null.
    return given.simpleString() == HEADERS.simpleString()
