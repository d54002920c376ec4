"""Rows that a SELECT shows, while they are computed in this process: push queries, and reads of a whole stream.

A push query runs its application by the code of `TestDriver`, over a consumer: without a checkpoint, and without Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from felice.client.model import Message
from felice.dataclass import dataclass
from felice.pipelines.errors import FormatError
from felice.pipelines.sql.analysis.plan import QueryPlan
from felice.pipelines.sql.analysis.properties import START
from felice.pipelines.sql.compile.functions import Tools, shown_format
from felice.pipelines.sql.compile.topology import Compilation, key_format_of, value_format_of
from felice.pipelines.sql.rows.plain import plain_of
from felice.pipelines.sql.server.cluster import Cluster, is_end, is_record, record_of
from felice.pipelines.streams.driver import TestDriver
from felice.pipelines.streams.record import RecordMetadata
from felice.pipelines.streams.task import StreamsError, TopicRecord
from felice.pipelines.streams.topology import EARLIEST

MOST_AT_ONCE = 500
"""Records that are processed between two looks at the connection."""
POLL_S = 0.2
MOST_STATE_ROWS = 1_000_000
"""A push query whose groups, windows and tables have more rows ends: it is in the memory of the server."""
_SHOWN = "shown-rows"


class Row(NamedTuple):
    """Values as JSON has them; None for a row of a table that was deleted."""

    values: list[Any] | None


class Read(NamedTuple):
    """A record, and where it was read."""

    record: TopicRecord
    at: RecordMetadata


@dataclass(slots=True)
class Shown:
    """Turns results into rows of JSON."""

    plan: QueryPlan

    def row(self, values: Sequence[Any] | None) -> Row:
        """One row."""
        if values is None:
            return Row(None)
        outputs = self.plan.outputs
        return Row([plain_of(one.type, value) for one, value in zip(outputs, values, strict=True)])


class PushRows:
    """The rows of one push query, from the time at which it begins."""

    def __init__(self, id: str, plan: QueryPlan, tools: Tools) -> None:
        self._app = Compilation(id, plan, tools).shown(_SHOWN)
        self._driver = TestDriver(self._app)
        self._format = shown_format(plan)
        self._shown = Shown(plan)
        self.topics = sorted({side.source.topic for side in plan.sides})
        self._from_beginning = tools.settings.get(START, "latest") == EARLIEST

    async def follow(self, cluster: Cluster) -> AsyncIterator[list[Row]]:
        """Rows as they come; an empty list when none came for a moment. Raises `KafkaException` and `StreamsError`."""
        async with cluster.reading(self.topics, from_beginning=self._from_beginning) as (consumer, _):
            yield []
            while True:
                messages = await consumer.consume(MOST_AT_ONCE, POLL_S)
                reads = [_read(one) for one in messages if is_record(one)]
                yield await asyncio.to_thread(self._rows, reads) if reads else []

    def _rows(self, reads: Sequence[Read]) -> list[Row]:
        driver = self._driver
        with driver.batch():
            for (topic, key, value, timestamp, headers), at in reads:
                driver.send_bytes(topic, key, value, timestamp, headers, read_at=at)
        if driver.state_rows > MOST_STATE_ROWS:
            raise StreamsError(
                f"the query has more than {MOST_STATE_ROWS:,} rows of state, which a push query keeps in memory; "
                "make it a persistent query with CREATE TABLE or CREATE STREAM, and SELECT from that"
            )
        return [self._shown.row(self._format.decode(one.value)) for one in driver.read_bytes(_SHOWN)]


class StreamRows:
    """The rows of a SELECT without EMIT over a stream: all records that its topic has now."""

    def __init__(self, plan: QueryPlan, tools: Tools) -> None:
        self._source = plan.sides[0].source
        self._at: RecordMetadata | None = None
        self._function = Compilation("pull", plan, tools).row_function(lambda: self._at)
        self._formats = (
            key_format_of(self._source, tools.registry),
            value_format_of(self._source, tools.registry),
        )
        self._shown = Shown(plan)

    async def read(self, cluster: Cluster) -> AsyncIterator[list[Row]]:
        """Rows until the end that the topic has now. Raises `KafkaException`."""
        async with cluster.reading([self._source.topic], from_beginning=True) as (consumer, ends):
            waiting = {place for place, end in ends.items() if end > 0}
            while waiting:
                messages = await consumer.consume(MOST_AT_ONCE, POLL_S)
                waiting -= {(str(one.topic()), int(one.partition() or 0)) for one in messages if is_end(one)}
                reads = [_read(one) for one in messages if is_record(one)]
                yield await asyncio.to_thread(
                    self._rows, [one for one in reads if one.at.offset < ends[one.at.topic, one.at.partition]]
                )

    def _rows(self, reads: Iterable[Read]) -> list[Row]:
        return list(self._shown_rows(reads))

    def _shown_rows(self, reads: Iterable[Read]) -> Iterator[Row]:
        key_format, value_format = self._formats
        for read in reads:
            record, self._at = read
            try:
                key, value = key_format.decode(record.key), value_format.decode(record.value)
            except FormatError:
                continue  # As persistent queries do.
            for _, row, _ in self._function(key, value, record.timestamp, record.headers):
                yield self._shown.row(row)


def _read(message: Message) -> Read:
    record = record_of(message)
    return Read(record, RecordMetadata(record.topic, message.partition() or 0, message.offset() or 0))
