"""Writes a task's rows in a Spark worker: encodes Arrow as record batches, and sends them to the brokers.

Keeps true: a row with a partition goes to it. Otherwise the key chooses the partition as in Java's producer (murmur2),
            so the rows of one key stay in order. Rows with neither are spread in runs over the partitions that have a
            leader. `flush` returns when all rows are acknowledged, or raises. At most about FLUSH_AT_BYTES of rows are
            held. A batch is not larger than its topic allows, unless it is a single row.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from felice.client.blocking import BlockingClient
from felice.client.error import KafkaError, KafkaException
from felice.client.model import Partition
from felice.pipelines.limits import TopicLimits
from felice.pipelines.spark.mistakes import ClusterError, QueryError
from felice.pipelines.spark.options import SinkOptions
from felice.records.arrow import arrow_to_batches, has_nameless_header, key_hashes

FLUSH_AT_BYTES = 16 * 1024 * 1024
# Number of rows without key and partition that go to one partition before the next: this makes larger batches.
RUN_ROWS = 5_000
TOPIC_WAIT_S = 0.1

RECORD_COLUMNS = ("key", "value", "headers", "timestamp")


class RowError(QueryError, ValueError):
    """A row cannot be written. The text has the reason."""


class Output(Protocol):
    """The destination of rows whose partition is chosen."""

    def encode(
        self, partition: Partition, rows: pa.Table, timestamp_ms: int, target_bytes: int
    ) -> Iterator[bytearray]:
        """Encodes the rows as record batches for one partition, each of up to `target_bytes` or of one row."""

    def send(self, batches: list[tuple[str, int, bytearray]]) -> None:
        """Sends (topic, partition, batch) and waits for the acknowledgements. Raises `KafkaException`."""


class PlainOutput:
    """An output without transactions: rows are visible at once, and a repeated task writes them again."""

    def __init__(self, client: BlockingClient, options: SinkOptions) -> None:
        self._client = client
        self._options = options

    def encode(
        self, partition: Partition, rows: pa.Table, timestamp_ms: int, target_bytes: int
    ) -> Iterator[bytearray]:
        """Yields batches without producer id: a task that runs again writes its rows again."""
        return arrow_to_batches(
            rows,
            timestamp_ms=timestamp_ms,
            codec=self._options.codec,
            level=self._options.compression_level,
            target_bytes=target_bytes,
        )

    def send(self, batches: list[tuple[str, int, bytearray]]) -> None:
        """Sends the batches with the acks of the query."""
        self._client.produce(batches, self._options.acks)


NUMBER = "number"
"""The name of a column of numbers. A row goes to partition (number modulo partitions of the topic); null: as usual."""


class TopicWriter:
    """Collects rows and writes them in large pieces."""

    def __init__(
        self,
        options: SinkOptions,
        client: BlockingClient,
        output: Output,
        limits_of: Callable[[str], TopicLimits] = lambda topic: TopicLimits(),
    ) -> None:
        self._options = options
        self._client = client
        self._output = output
        self._limits_of = limits_of
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        # The number of partitions of a topic, and those with a leader (all if none has one).
        self._partitions: dict[str, tuple[int, np.ndarray]] = {}
        # Tasks start at different partitions, so that small ones do not all fill the same.
        self._turn = random.randrange(1 << 16)
        self.rows_written = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Holds the rows, and flushes when FLUSH_AT_BYTES are held. Raises `RowError` for what no record can have."""
        _check(rows)
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= FLUSH_AT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the held rows, and returns when the brokers have acknowledged them."""
        held, self._held, self._held_bytes = self._held, [], 0
        if not held:
            return
        now_ms = time.time_ns() // 1_000_000
        batches = [
            (topic, partition, batch)
            for topic, rows in self._by_topic(pa.Table.from_batches(held).combine_chunks())
            for partition, part in self._by_partition(topic, rows)
            for batch in self._encode(topic, partition, part, now_ms)
        ]
        self._send(batches)
        self.rows_written += sum(len(rows) for rows in held)

    def _encode(self, topic: str, partition: int, rows: pa.Table, now_ms: int) -> Iterator[bytearray]:
        return self._output.encode((topic, partition), rows, now_ms, self._target_bytes(topic))

    def _target_bytes(self, topic: str) -> int:
        return min(self._options.batch_bytes, self._limits_of(topic).max_message_bytes)

    def _send(self, batches: list[tuple[str, int, bytearray]]) -> None:
        try:
            self._output.send(batches)
        except KafkaException as error:
            if error.code != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            raise RowError(self._why_too_large(batches)) from None

    def _why_too_large(self, batches: list[tuple[str, int, bytearray]]) -> str:
        # Only a batch with a single row is larger than its target, so a batch above its topic's limit has one row.
        for topic, _, batch in batches:
            if len(batch) > self._limits_of(topic).max_message_bytes:
                return f"a row of {len(batch)} bytes is too large for topic {topic}: its max.message.bytes is lower"
        # The topic's limit is lower than the one known here: the user lacks DescribeConfigs of the topic, so Kafka's
        # default was taken, or the limit was lowered within the last minute.
        topics = ", ".join(sorted({topic for topic, _, _ in batches}))
        return (
            f"batches of {self._options.batch_bytes} bytes are too large for a topic of {topics}: set "
            "'kafka.batch.size' to less than its max.message.bytes"
        )

    def _by_topic(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        # As in Spark's Kafka sink, the option takes precedence over the column.
        if self._options.topic is not None:
            yield self._options.topic, rows
            return
        topics = rows["topic"]
        if topics.null_count:
            raise RowError("a row has null for its topic, and there is no option 'topic' to fall back on")
        for topic in sorted(topics.unique().to_pylist()):
            yield topic, rows.filter(pc.equal(topics, topic))

    def _by_partition(self, topic: str, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        count, led = self._partitions_of(topic)
        records = rows.select([name for name in RECORD_COLUMNS if name in rows.column_names])
        if count == 1 and "partition" not in rows.column_names:
            yield 0, records
            return
        chosen = self._choose(topic, rows, count, led)
        order = np.argsort(chosen, kind="stable")
        records = records.take(pa.array(order))
        edges = np.searchsorted(chosen[order], np.arange(count + 1))
        for partition, (start, end) in enumerate(itertools.pairwise(edges)):
            if start < end:
                yield partition, records.slice(start, end - start)

    def _choose(self, topic: str, rows: pa.Table, count: int, led: np.ndarray) -> np.ndarray:
        """Returns the partition of each row."""
        chosen: np.ndarray = led[self._runs(len(rows), len(led))]
        if "key" in rows.column_names and len(rows):
            hashes = key_hashes(_one_chunk(rows["key"]))
            keyed = hashes.is_valid().to_numpy(zero_copy_only=False)
            chosen = np.where(keyed, hashes.fill_null(0).to_numpy(zero_copy_only=False) % count, chosen)
        if "partition" in rows.column_names:
            given = _one_chunk(rows["partition"])
            asked = given.is_valid().to_numpy(zero_copy_only=False)
            chosen = np.where(asked, given.fill_null(0).to_numpy(zero_copy_only=False), chosen)
            if len(chosen) and not 0 <= chosen.min() <= chosen.max() < count:
                wrong = chosen[(chosen < 0) | (chosen >= count)][0]
                raise RowError(f"a row asks for partition {wrong} of topic {topic}, which has {count}")
        if NUMBER in rows.column_names:
            numbers = _one_chunk(rows[NUMBER])
            numbered = numbers.is_valid().to_numpy(zero_copy_only=False)
            chosen = np.where(numbered, numbers.fill_null(0).to_numpy(zero_copy_only=False) % count, chosen)
        return chosen

    def _runs(self, rows: int, count: int) -> np.ndarray:
        runs = np.arange(rows) // RUN_ROWS + self._turn
        self._turn += -(-rows // RUN_ROWS)
        return runs % count

    def _partitions_of(self, topic: str) -> tuple[int, np.ndarray]:
        if topic not in self._partitions:
            self._partitions[topic] = self._ask_partitions(topic)
        return self._partitions[topic]

    def _ask_partitions(self, topic: str) -> tuple[int, np.ndarray]:
        """Returns the number of partitions, and those with a leader.

        The request creates a missing topic, if the brokers allow that.
        """
        began, limit_s = time.monotonic(), self._options.client.retry_timeout_ms / 1000
        while True:
            described = self._client.metadata([topic], allow_auto_create=True).topics[topic]
            error, waited_s = described.error, time.monotonic() - began
            if error is None and described.partitions:
                count = len(described.partitions)
                led = [number for number, row in described.partitions.items() if row.leader >= 0]
                return count, np.array(sorted(led) or range(count))
            is_missing = error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if (
                (error is not None and not error.retriable())
                or waited_s > limit_s
                or (is_missing and waited_s > self._options.missing_topic_s)
            ):
                why = error.str() if error is not None else "it has no partitions"
                raise ClusterError(f"topic {topic} cannot be written: {why}")
            time.sleep(TOPIC_WAIT_S)


def _check(rows: pa.RecordBatch) -> None:
    """Refuses what Java's producer refuses, before anything of the batch is sent."""
    names = rows.schema.names
    if "timestamp" in names:
        earliest = pc.min(rows["timestamp"])
        if earliest.is_valid and earliest.cast(pa.int64()).as_py() < 0:
            raise RowError(
                f"a row has the timestamp {_as_text(earliest)}; records cannot have one before 1970"
            )
    if "headers" in names and has_nameless_header(rows["headers"]):
        raise RowError("a row has a header whose key is null; headers need a name")


def _as_text(timestamp: pa.Scalar) -> str:
    # Arrow's own conversion to Python fails for years before 1.
    return str(timestamp.cast(pa.string()).as_py())


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
