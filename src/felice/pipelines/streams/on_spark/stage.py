"""Runs tasks on the rows of one batch in a Spark worker, and addresses the tasks' results.

Keeps true: a task takes the records of its topics in the order of Kafka Streams: of each topic partition by offset,
            among them the one with the smallest timestamp, of equal ones a table's first. So a batch that runs again,
            with its rows in another order, gives the same results.
            The task starts with its state after the previous batch, even if this process ran other tasks meanwhile.
How:        A row says which sub-topology it is for (`part`), and which of its partitions (`place`); OUT are results.
            `origin` and `seq` order the rows. Between stages rows are packed (`packs`).
            Each stage runs one sub-topology, and passes the packs of others on.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from itertools import count, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext, cloudpickle

from felice.client.blocking import BlockingConfig
from felice.dataclass import dataclass
from felice.pipelines.limits import TopicLimits
from felice.pipelines.spark.properties import BATCH_ID
from felice.pipelines.spark.topic_limits import topic_limits
from felice.pipelines.streams.on_spark.columns import address_columns, milliseconds_of, runs_of_partitions
from felice.pipelines.streams.on_spark.directory import below
from felice.pipelines.streams.on_spark.held_task import HeldTask
from felice.pipelines.streams.on_spark.identity import check_query
from felice.pipelines.streams.on_spark.large_state import ALL_IN_MEMORY, LargeStates
from felice.pipelines.streams.on_spark.modules import SentModule, install
from felice.pipelines.streams.on_spark.packs import (
    PACKS,
    READ,
    SKIPPED,
    counted,
    counted_drops,
    packed,
    unpacked,
)
from felice.pipelines.streams.on_spark.places import place_at
from felice.pipelines.streams.on_spark.rows import OUT, SCHEMA, SUB_BITS, Results, Rows
from felice.pipelines.streams.on_spark.state import StateFiles
from felice.pipelines.streams.record import Group, Headers, RecordMetadata
from felice.pipelines.streams.stores import Store
from felice.pipelines.streams.task import StreamsError, Task, TopicRecord, event_times, with_event_time
from felice.pipelines.streams.topology import TopicFormats, Topology
from felice.records.kernels import murmur2

CACHED_TASKS = 64
MOST_GROUP = 10_000
"""A task takes so many records at once: their values and results are in memory as Python's objects."""
TICK = "(wall clock)"
"""The topic of rows that say what time it is. No topic of Kafka can have this name."""
# Between a sub-topology's number and its partition. No topic's name contains it.
INNER = "/"


@dataclass(frozen=True, slots=True)
class Plan:
    """An application in the form that is sent to the workers. Equal plans share tasks in a worker."""

    pickled: bytes
    places: int
    directories: tuple[str, ...]
    """Of each part: where the state of its tasks is."""
    client: BlockingConfig | None = None
    """How workers ask for the limits of topics; None: the limits are Kafka's defaults."""
    checkpoint: str | None = None
    """The checkpoint that a query of the caller must have: the state has the numbers of its batches."""
    modules: tuple[SentModule, ...] = ()
    """The user's modules that workers cannot import."""
    large: LargeStates = ALL_IN_MEMORY
    """Which tasks keep their state on the machine's disk, and where."""

    def application(self) -> Application:
        """The topology and its parts, unpickled once in each process."""
        return _application(self.pickled, self.client, self.modules)


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
        return found or [self.timed(*record).timestamp for record in _source_records(rows)]

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
        return (_place(record.key, places, otherwise),)

    def metadata(self, topic: str, rows: pa.Table, number: int) -> RecordMetadata | None:
        """Where the record of a row was read; None behind a repartition."""
        if topic in self._inner:
            return None
        origin, offset = (rows[name][number].as_py() for name in ("origin", "seq"))
        return RecordMetadata(origin.rpartition("-")[0], _partition_of(origin), offset)

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
def _application(
    pickled: bytes, client: BlockingConfig | None, modules: tuple[SentModule, ...]
) -> Application:
    install(modules)
    return Application(cloudpickle.loads(pickled), client)


def _headers(column: pa.Array | pa.ChunkedArray) -> list[Headers]:
    if not pc.any(pc.greater(pc.list_value_length(column), 0)).as_py():
        return [()] * len(column)
    return [tuple((one["key"], one["value"]) for one in headers or ()) for headers in column.to_pylist()]


def packed_source(batches: Iterable[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    """The first stage: from a source's columns to packs. Parts without state run here."""
    application = plan.application()
    stateless = {
        part.number: application.task(part.number) for part in application.parts if not part.is_placed
    }
    places = _places_behind(None, plan)
    read = 0
    for batch in batches:
        read += len(batch)
        application.learn(batch.column("topic").unique().to_pylist())
        for start in range(0, len(batch), MOST_GROUP):
            for rows in address(batch.slice(start, MOST_GROUP), application, stateless, places):
                yield from packed(application.named(rows))
    yield from counted(READ, read)
    yield from counted(SKIPPED, sum(task.skipped for task in stateless.values()))
    for task in stateless.values():
        yield from counted_drops(task.take_dropped())


def packed_ticks(batches: Iterable[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    """From Spark's rows for each second (`timestamp`, `value`) to packs for the tasks with timers of the wall clock.

    The last tick counts for those before it, too: a timer that is late is called once.
    """
    application = plan.application()
    for batch in batches:
        if len(batch):
            rows, (number, time) = Rows(), max(_ticks(batch))
            for part in application.clocked:
                for place in range(plan.places):
                    rows.add(part, place, TICK, number, TopicRecord(TICK, None, None, time))
            yield from packed(rows.batch())


def _ticks(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    return zip(batch.column("value").to_pylist(), milliseconds_of(batch).tolist(), strict=True)


def address(
    batch: pa.RecordBatch, application: Application, stateless: Mapping[int, Task], places: int
) -> list[pa.RecordBatch]:
    """The addressed rows of a source's columns."""
    batch = application.with_event_times(batch)
    if (plainly := address_columns(batch, application.plain_topics, places, SCHEMA)) is not None:
        return [plainly]
    with garbage_left():
        runs = runs_of_partitions(batch)
        if runs is None:
            return [_address_each(application, stateless, batch, places)]
        return [one for run in runs for one in _address_run(application, stateless, run, places)]


def _address_run(
    application: Application, stateless: Mapping[int, Task], run: pa.RecordBatch, places: int
) -> list[pa.RecordBatch]:
    """The addressed rows of records of one partition."""
    topic = run.column("topic")[0].as_py() if len(run) else None
    if topic is None or not application.is_read_by(stateless, topic):
        return [_address_each(application, stateless, run, places)]
    keys, values, offsets = (run.column(name).to_pylist() for name in ("key", "value", "offset"))
    partition = run.column("partition")[0].as_py()
    origin = f"{topic}-{partition}"
    group = Group(
        keys,
        values,
        milliseconds_of(run).tolist(),
        _headers(run.column("headers")),
        lambda number: RecordMetadata(topic, partition, offsets[number]),
    )
    made = []
    for part in application.reads[topic]:
        results = Results()
        try:
            results.add(stateless[part].process_group(application.source_of(topic), group))
        except StreamsError as error:
            raise error.at(application.where(topic, origin, offsets[error.number])) from error
        made.append(results.batch(application.reader_of, places, origin, results.by_offset(offsets)))
    return made


def _address_each(
    application: Application, stateless: Mapping[int, Task], batch: pa.RecordBatch, places: int
) -> pa.RecordBatch:
    rows = Rows()
    for given, origin, offset in _source_records(batch):
        results = 0
        names = application.inputs_of(given.topic)
        for name in names:
            record = given
            if len(names) > 1:
                record = application.timed(given._replace(topic=name), origin, offset)
            for part in application.reads[name]:
                if part in stateless:
                    at = origin, offset, results
                    results = _run_stateless(application, stateless[part], record, at, places, rows)
                    continue
                for place in application.places(record, places, _partition_of(origin)):
                    rows.add(part, place, origin, offset, record)
    return rows.batch()


def _partition_of(origin: str) -> int:
    return int(origin.rpartition("-")[2])


def _run_stateless(
    application: Application,
    task: Task,
    record: TopicRecord,
    at: tuple[str, int, int],
    places: int,
    rows: Rows,
) -> int:
    """Adds what the record sends. `at` is its origin, its offset, and how many results it has already; returns how many
    it has now.
    """
    origin, offset, sub = at
    where = application.where(record.topic, origin, offset)
    metadata = RecordMetadata(origin.rpartition("-")[0], _partition_of(origin), offset)
    if (name := application.source_of(record.topic)) != record.topic:
        record = record._replace(topic=name)
    for result in _processed(task, record, metadata, where):
        # Several Spark tasks may share a topic partition: the offset orders what they send.
        seq = offset << SUB_BITS | sub
        rows.add(application.reader_of(result.topic), _place(result.key, places, seq), origin, seq, result)
        sub += 1
    return sub


def run_part(batches: Iterable[pa.RecordBatch], plan: Plan, number: int) -> Iterator[pa.RecordBatch]:
    """A later stage: run one part on one partition, with its state."""
    context = TaskContext.get()
    assert context is not None, "Spark runs stages in tasks"
    if plan.checkpoint is not None:
        check_query(plan.checkpoint)
    place, batch_id = context.partitionId(), int(str(context.getLocalProperty(BATCH_ID)))
    application, held = plan.application(), _held_task(plan, number, place)
    packs = pa.Table.from_batches(list(batches), PACKS)
    is_mine = pc.equal(packs["part"], number)
    yield from _passed_on(packs.filter(pc.invert(is_mine)), is_last=number == application.last_placed)
    mine = _in_turn(packs.filter(is_mine), place, application.parts[number].sources)
    del packs  # While the operators run, the records are in memory once.
    with garbage_left():
        results = _run_rows(application, mine, held.at(batch_id - 1))
        held.save(batch_id)
    places = _places_behind(number, plan)
    rows = results.batch(application.reader_of, places, f"{number}{INNER}{place}", results.in_order())
    yield from packed(rows)
    yield from counted(SKIPPED, results.skipped)
    yield from counted_drops(results.dropped)


def _places_behind(part: int | None, plan: Plan) -> int:
    """How many places the results of a part with state have; None: those of the source.

    Where no shuffle follows, a place means nothing, and records of one place keep their order.
    """
    return 1 if part == plan.application().last_placed else plan.places


def _passed_on(packs: pa.Table, is_last: bool) -> Iterator[pa.RecordBatch]:
    """The packs of other parts. Behind the last part is the sink, so its task puts the results in order.

    Results of one key may be from several tasks: of them the one with the smallest timestamp goes first.
    """
    is_unordered = pc.and_(pc.equal(packs["part"], OUT), is_last)
    yield from packs.filter(pc.invert(is_unordered)).to_batches()
    rows = unpacked(packs.filter(is_unordered))
    rows = rows.take(pa.array(_order(rows, ())))
    # Each origin would have packs of its own.
    rows = rows.set_column(SCHEMA.get_field_index("origin"), "origin", pa.repeat(pa.scalar(""), len(rows)))
    for batch in rows.combine_chunks().to_batches():
        yield from packed(batch)


def _in_turn(packs: pa.Table, place: int, sources: Sequence[TopicFormats]) -> pa.Table:
    assert pc.all(pc.equal(packs["place"], place)).as_py() is not False, f"packs of others came to {place}"
    rows = unpacked(packs)
    order = _order(rows, sources)
    # Often they are in order already, and a copy of all bytes takes longer than this check.
    return rows if np.array_equal(order, np.arange(len(rows))) else rows.take(pa.array(order))


def _run_rows(application: Application, rows: pa.Table, task: Task) -> Results:
    results, skipped_before = Results(), task.skipped
    task.begin_batch()
    keys, values, timestamps = (rows[name].to_pylist() for name in ("key", "value", "timestamp"))
    headers = _headers(rows["headers"])
    for topic, start, end in _runs(rows["topic"]):
        if topic == TICK:
            for timestamp in timestamps[start:end]:
                results.add_each(task.advance_wall_clock(timestamp))
            continue
        group = Group(
            keys[start:end],
            values[start:end],
            timestamps[start:end],
            headers[start:end],
            partial(application.metadata, topic, rows.slice(start)),
        )
        try:
            results.add(task.process_group(topic, group))
        except StreamsError as error:
            origin, seq = (rows[name][start + error.number].as_py() for name in ("origin", "seq"))
            raise error.at(application.where(topic, origin, seq)) from error
    results.add(task.end_batch())
    results.skipped, results.dropped = task.skipped - skipped_before, task.take_dropped()
    return results


def _runs(topics: pa.ChunkedArray) -> Iterator[tuple[str, int, int]]:
    """Each run of at most `MOST_GROUP` records of one topic, with its start and its end."""
    codes = topics.combine_chunks().dictionary_encode()
    if not len(codes):
        return
    names, indices = codes.dictionary.to_pylist(), codes.indices.to_numpy()
    for start, end in pairwise([0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(indices)]):
        for first in range(start, end, MOST_GROUP):
            yield names[indices[start]], first, min(first + MOST_GROUP, end)


@contextmanager
def garbage_left() -> Iterator[None]:
    """Switches Python's garbage collector for cycles off in this block.

    A batch creates many small objects and no cycles, and the collector took a quarter of the time. Objects that exist
    at the end of the block are left out of later collections, until every `BATCHES_PER_SEARCH` batches a full
    collection includes them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if next(_batches) % BATCHES_PER_SEARCH == 0:
            gc.unfreeze()
            gc.collect()
        gc.freeze()
        if was_enabled:
            gc.enable()


BATCHES_PER_SEARCH = 200
"""After so many batches the cycles are collected that functions of the application may have made."""
_batches = count(1)


def _processed(task: Task, record: TopicRecord, metadata: RecordMetadata, where: str) -> list[TopicRecord]:
    try:
        return task.process(record, metadata)
    except StreamsError as error:
        raise error.at(where) from error


@lru_cache(maxsize=CACHED_TASKS)
def _held_task(plan: Plan, number: int, place: int) -> HeldTask:
    location = below(plan.directories[number], str(place))
    files = StateFiles(place_at(location))
    application = plan.application()
    return HeldTask(
        lambda: application.topology.made_stores(application.parts[number]),
        lambda stores: application.task(number, stores),
        files,
        plan.large,
        location,
        has_own_query=plan.checkpoint is None,
    )


def _place(key: bytes | None, places: int, otherwise: int) -> int:
    return (otherwise if key is None else murmur2(key)) % places


def _source_records(batch: pa.RecordBatch) -> Iterator[tuple[TopicRecord, str, int]]:
    for topic, key, value, partition, offset, timestamp, headers in zip(*_source_columns(batch), strict=True):
        yield TopicRecord(topic, key, value, timestamp, headers), f"{topic}-{partition}", offset


def _source_columns(batch: pa.RecordBatch) -> list[list[Any]]:
    """Topics, keys, values, partitions, offsets, timestamps in milliseconds, and headers."""
    columns = [batch.column(name).to_pylist() for name in ("topic", "key", "value", "partition", "offset")]
    return [*columns, milliseconds_of(batch).tolist(), _headers(batch.column("headers"))]


def _order(table: pa.Table, sources: Sequence[TopicFormats]) -> np.ndarray[Any, Any]:
    """The order in which Kafka Streams' tasks take records.

    Among partitions the next record with the smallest timestamp goes first. That is the order of the greatest timestamp
    so far in each partition. Global tables and copies of tables go before all others, and the wall clock after them.
    A record that goes to several inputs is in its partition once for each, one after the other.
    """
    if not len(table):
        return np.array([], np.int64)
    origins = table["origin"].combine_chunks().dictionary_encode()
    ranks = np.argsort(np.argsort(np.array(origins.dictionary.to_pylist())))[origins.indices.to_numpy()]
    tick = len(sources) + 1
    # All inputs of a topic have the rank of the first of them.
    by_topic = {(one.topic, one.is_global): rank for rank, one in reversed(list(enumerate(sources)))}
    named = {one.name: by_topic[one.topic, one.is_global] for one in sources} | {TICK: tick}
    numbers = {one.name: one.number for one in sources}
    topics = table["topic"].combine_chunks().dictionary_encode()
    names = topics.dictionary.to_pylist()
    first, number = (
        np.array([known.get(name, otherwise) for name in names])[topics.indices.to_numpy()]
        for known, otherwise in ((named, len(sources)), (numbers, 0))
    )
    seq, times = table["seq"].to_numpy(), table["timestamp"].to_numpy()
    order = np.lexsort((number, seq, ranks, first))
    queues = np.stack([first[order], ranks[order]])
    starts = np.flatnonzero(np.any(np.diff(queues, axis=1), axis=0)) + 1
    reached = np.concatenate([np.maximum.accumulate(one) for one in np.split(times[order], starts)])
    tables = sum(one.is_global or one.is_copy for one in sources)
    turn = np.where(queues[0] < tables, 0, np.where(queues[0] == tick, 2, 1))
    turns = np.lexsort((np.arange(len(order)), queues[1], queues[0], reached, turn))
    ordered: np.ndarray[Any, Any] = order[turns]
    return ordered
