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
from functools import lru_cache, partial
from itertools import count, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from felice.client.blocking import BlockingConfig
from felice.dataclass import dataclass
from felice.pipelines.spark.properties import BATCH_ID
from felice.pipelines.streams.on_spark.application import (
    INNER,
    Application,
    application_of,
    headers_of,
    partition_of,
    source_records,
)
from felice.pipelines.streams.on_spark.columns import address_columns, milliseconds_of, runs_of_partitions
from felice.pipelines.streams.on_spark.directory import below
from felice.pipelines.streams.on_spark.held_task import HeldTask
from felice.pipelines.streams.on_spark.identity import check_query
from felice.pipelines.streams.on_spark.large_state import ALL_IN_MEMORY, LargeStates
from felice.pipelines.streams.on_spark.modules import SentModule
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
from felice.pipelines.streams.record import Group, RecordMetadata
from felice.pipelines.streams.task import StreamsError, Task, TopicRecord
from felice.pipelines.streams.topology import TopicFormats

CACHED_TASKS = 64
MOST_GROUP = 10_000
"""A task takes so many records at once: their values and results are in memory as Python's objects."""
TICK = "(wall clock)"
"""The topic of rows that say what time it is. No topic of Kafka can have this name."""


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
        return application_of(self.pickled, self.client, self.modules)


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
        headers_of(run.column("headers")),
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
    for given, origin, offset in source_records(batch):
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
                for place in application.places(record, places, partition_of(origin)):
                    rows.add(part, place, origin, offset, record)
    return rows.batch()


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
    metadata = RecordMetadata(origin.rpartition("-")[0], partition_of(origin), offset)
    if (name := application.source_of(record.topic)) != record.topic:
        record = record._replace(topic=name)
    for result in _processed(task, record, metadata, where):
        # Several Spark tasks may share a topic partition: the offset orders what they send.
        seq = offset << SUB_BITS | sub
        rows.add(*application.addressed(result, places, origin, seq))
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
    yield from passed_on(packs.filter(pc.invert(is_mine)), is_last=number == application.last_placed)
    mine = in_turn(packs.filter(is_mine), place, application.parts[number].sources)
    del packs  # While the operators run, the records are in memory once.
    with garbage_left():
        results = run_rows(application, mine, held.at(batch_id - 1))
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


def passed_on(packs: pa.Table, is_last: bool) -> Iterator[pa.RecordBatch]:
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


def in_turn(packs: pa.Table, place: int, sources: Sequence[TopicFormats]) -> pa.Table:
    """The rows of packs for one task, in the order in which it takes them."""
    assert pc.all(pc.equal(packs["place"], place)).as_py() is not False, f"packs of others came to {place}"
    rows = unpacked(packs)
    order = _order(rows, sources)
    # Often they are in order already, and a copy of all bytes takes longer than this check.
    return rows if np.array_equal(order, np.arange(len(rows))) else rows.take(pa.array(order))


def run_rows(application: Application, rows: pa.Table, task: Task) -> Results:
    """Run a batch of a task. Raises `StreamsError` that names the record."""
    results, skipped_before = Results(), task.skipped
    task.begin_batch()
    keys, values, timestamps = (rows[name].to_pylist() for name in ("key", "value", "timestamp"))
    headers = headers_of(rows["headers"])
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
def _held_task(plan: Plan, number: int, place: int) -> HeldTask[Task]:
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
