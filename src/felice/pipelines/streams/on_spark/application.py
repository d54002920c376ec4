"""An App in a worker: which part reads a topic, where records go, and how an error names a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from felice.client.blocking import BlockingConfig
from felice.pipelines.limits import TopicLimits
from felice.pipelines.spark.topic_limits import topic_limits
from felice.pipelines.streams.on_spark.columns import milliseconds_of
from felice.pipelines.streams.on_spark.modules import SentModule, install
from felice.pipelines.streams.on_spark.rows import OUT, SUB_BITS
from felice.pipelines.streams.record import Headers, RecordMetadata
from felice.pipelines.streams.stores import Store
from felice.pipelines.streams.task import (
    StreamsError,
    Task,
    TopicRecord,
    event_times,
    take_partition,
    with_event_time,
)
from felice.pipelines.streams.topology import TopicFormats, Topology
from felice.records.kernels import murmur2

# Between a sub-topology's number and its partition. No topic's name contains it.
INNER = "/"


class Application:
    """A topology in a worker."""

    def __init__(self, topology: Topology, client: BlockingConfig | None) -> None:
        self.topology, self._client = topology, client
        self.parts = topology.parts()
        sources = [(one, part.number) for part in self.parts for one in part.sources]
        self.reads: dict[str, list[int]] = {}
        """The parts that have an input."""
        for one, number in sources:
            self.reads.setdefault(one.name, []).append(number)
        self.last_placed = max((part.number for part in self.parts if part.is_placed), default=None)
        self._formats = {one.name: one for one, _ in sources}
        self._again: dict[str, list[str]] = {}
        """Of topics with several inputs: those after the first one, in the order in which they were made."""
        for name in sorted(self._formats, key=lambda name: self._formats[name].number):
            if self._formats[name].number:
                self._again.setdefault(self._formats[name].topic, []).append(name)
        self._patterns = [one for one, _ in sources if one.pattern is not None]
        self._named: dict[str, str] = {}
        """The names by which the parts know topics that match a pattern."""
        self._inner = {one.topic: number for one, number in sources if one.is_repartition}

    @cached_property
    def _examples(self) -> list[Task]:
        """A task of each part, to see what its operators do. It processes nothing."""
        return [self.task(part.number) for part in self.parts]

    @cached_property
    def clocked(self) -> list[int]:
        """The parts with timers of the wall clock. Timers are in a store, so these parts have state."""
        return [number for number, task in enumerate(self._examples) if task.follows_wall_clock]

    def drops(self) -> list[tuple[str, str]]:
        """The operators that may leave records out, with the reasons."""
        return sorted({one for task in self._examples for one in task.may_drop})

    def task(self, number: int, stores: dict[str, Store] | None = None) -> Task:
        """A new task of a part, with these stores or new ones."""
        return Task(self.topology, self.parts[number], self._limits_of, stores)

    def _limits_of(self, topic: str) -> TopicLimits:
        return TopicLimits() if self._client is None else topic_limits(self._client, topic)

    @cached_property
    def plain_topics(self) -> dict[str, int]:
        """The part of each topic whose records have one place each, known without calling a function."""
        placed = {part.number for part in self.parts if part.is_placed}
        return {
            topic: numbers[0]
            for topic, numbers in self.reads.items()
            if len(numbers) == 1
            and topic not in self._again
            and numbers[0] in placed
            and not self._formats[topic].is_global
        }

    def learn(self, topics: Iterable[str]) -> None:
        """Know these topics, which were read, by the patterns that they match."""
        for topic in topics:
            if topic not in self._formats and (found := self._pattern_of(topic)) is not None:
                self._named[topic], self._formats[topic] = found.topic, found
                self.reads[topic] = self.reads[found.topic]
                if found.topic in self.plain_topics:
                    self.plain_topics[topic] = self.plain_topics[found.topic]

    def _pattern_of(self, topic: str) -> TopicFormats | None:
        return next((one for one in self._patterns if one.reads(topic)), None)

    def inputs_of(self, topic: str) -> list[str]:
        """The names of the inputs that read a topic. The first is the topic's name, also if a pattern matched it."""
        return [topic, *self._again.get(topic, ())]

    def source_of(self, topic: str) -> str:
        """The name by which the parts know a topic."""
        return self._named.get(topic, topic)

    def named(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for parts, with the names by which these know their topics. Results keep theirs."""
        if not self._named:
            return rows
        topics = rows.column("topic").dictionary_encode()
        names = pa.array(map(self.source_of, topics.dictionary.to_pylist()), pa.string())
        is_result = pc.equal(rows.column("part"), pa.scalar(OUT, pa.int32()))
        known = pc.if_else(is_result, rows.column("topic"), names.take(topics.indices))
        return rows.set_column(rows.schema.get_field_index("topic"), rows.schema.field("topic"), known)

    def is_read_by(self, tasks: Mapping[int, Task], topic: str) -> bool:
        """Whether only these tasks read a topic, by one input."""
        return (
            topic in self.reads
            and topic not in self._again
            and self.reads[topic] == [number for number in self.reads[topic] if number in tasks]
        )

    def with_event_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a source with the timestamps that the only inputs of topics choose."""
        topics = batch.column("topic").dictionary_encode()
        codes, times = topics.indices.to_numpy(), None
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            if topic not in self._again and self._formats[topic].timestamp_of is not None:
                times = milliseconds_of(batch) if times is None else times
                rows = np.flatnonzero(codes == code)
                times[rows] = self._event_times(topic, batch.take(pa.array(rows)))
        if times is None:
            return batch
        at = batch.schema.get_field_index("timestamp")
        column = pa.array(times * 1000).cast(batch.schema.field(at).type)
        return batch.set_column(at, batch.schema.field(at), column)

    def _event_times(self, topic: str, rows: pa.RecordBatch) -> list[int]:
        keys, values = (rows.column(name).to_pylist() for name in ("key", "value"))
        found = event_times(self._formats[topic], keys, values)
        return found or [self.timed(*record).timestamp for record in source_records(rows)]

    def timed(self, record: TopicRecord, origin: str, offset: int) -> TopicRecord:
        """The record with the timestamp that its input chooses."""
        formats = self._formats[record.topic]
        if formats.timestamp_of is None:
            return record
        try:
            return with_event_time(record, formats)
        except StreamsError as error:
            raise error.at(self.where(record.topic, origin, offset)) from error

    def places(self, record: TopicRecord, places: int, otherwise: int) -> Iterable[int]:
        """The places that get a record of a source: every place for a record of a global table, otherwise one."""
        if self._formats[record.topic].is_global:
            return range(places)
        return (place_of_key(record.key, places, otherwise),)

    def addressed(
        self, sent: TopicRecord, places: int, origin: str, seq: int
    ) -> tuple[int, int, str, int, TopicRecord]:
        """A record that a part without state sent, as a row with the part that reads the record, and its place."""
        part, place = self.reader_of(sent.topic), place_of_key(sent.key, places, seq)
        if part != OUT:
            number, headers = take_partition(sent.headers)
            if number is not None:
                place, sent = number % places, sent._replace(headers=headers)
        return part, place, origin, seq, sent

    def metadata(self, topic: str, rows: pa.Table, number: int) -> RecordMetadata | None:
        """Where the record of a row was read; None behind a repartition."""
        if topic in self._inner:
            return None
        origin, offset = (rows[name][number].as_py() for name in ("origin", "seq"))
        return RecordMetadata(origin.rpartition("-")[0], partition_of(origin), offset)

    def where(self, topic: str, origin: str, seq: int) -> str:
        """The origin of a record, for error messages."""
        if topic not in self._inner:
            return f"at {self._place_of(origin, seq)}"
        if INNER in origin:
            number, place = origin.split(INNER)
            return f"sent by partition {place} of sub-topology {number}"
        return f"made of {self._place_of(origin, seq >> SUB_BITS)}"

    def _place_of(self, origin: str, offset: int) -> str:
        name, _, partition = origin.rpartition("-")
        if name in self._formats and self._formats[name].is_frame:
            return f"row {offset} of task {partition} of DataFrame {name!r}"
        return f"{origin}, offset {offset}"

    def reader_of(self, topic: str) -> int:
        """The part that a topic's records go to within the batch; OUT for results."""
        return self._inner.get(topic, OUT)


@lru_cache(maxsize=4)
def application_of(
    pickled: bytes, client: BlockingConfig | None, modules: tuple[SentModule, ...]
) -> Application:
    """The application with this topology, unpickled once in each process."""
    install(modules)
    return Application(cloudpickle.loads(pickled), client)


def headers_of(column: pa.Array | pa.ChunkedArray) -> list[Headers]:
    """The headers of each row."""
    if not pc.any(pc.greater(pc.list_value_length(column), 0)).as_py():
        return [()] * len(column)
    return [tuple((one["key"], one["value"]) for one in headers or ()) for headers in column.to_pylist()]


def partition_of(origin: str) -> int:
    """The partition of the topic partition that an origin names."""
    return int(origin.rpartition("-")[2])


def place_of_key(key: bytes | None, places: int, otherwise: int) -> int:
    """The partition of a key, chosen as `columns.places_of` does."""
    return (otherwise if key is None else murmur2(key)) % places


def source_records(batch: pa.RecordBatch) -> Iterator[tuple[TopicRecord, str, int]]:
    """The rows of a source's columns as records, each with its topic partition and its offset."""
    for topic, key, value, partition, offset, timestamp, headers in zip(*_source_columns(batch), strict=True):
        yield TopicRecord(topic, key, value, timestamp, headers), f"{topic}-{partition}", offset


def _source_columns(batch: pa.RecordBatch) -> list[list[Any]]:
    """Topics, keys, values, partitions, offsets, timestamps in milliseconds, and headers."""
    columns = [batch.column(name).to_pylist() for name in ("topic", "key", "value", "partition", "offset")]
    return [*columns, milliseconds_of(batch).tolist(), headers_of(batch.column("headers"))]
