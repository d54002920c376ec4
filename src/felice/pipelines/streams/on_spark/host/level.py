"""The tasks of all Apps of a host in a Spark worker: those without state at the source, the others stage by stage.

Keeps true: a task of an App works as it does in a query of its own: the same records in the same order, and the state
            after the batch before. An error names the App whose code was running.
How:        A *mark* reaches each place of each stage with the rows of a batch: the batch's plan, and the Apps that are
            left out. Stage k runs all parts that have k parts with state before them. The parts of all Apps have
            different numbers (`HostPlan.bases`). The stores of all Apps of a stage and a place share one file for each
            batch, so a batch does not write more files with more Apps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext, cloudpickle

from felice.client.blocking import BlockingConfig
from felice.dataclass import dataclass
from felice.pipelines.spark.properties import BATCH_ID
from felice.pipelines.streams.on_spark.application import INNER, Application, partition_of
from felice.pipelines.streams.on_spark.directory import below
from felice.pipelines.streams.on_spark.held_task import HeldTask
from felice.pipelines.streams.on_spark.host.failing import named
from felice.pipelines.streams.on_spark.host.left_out import counts_of, counts_of_tasks
from felice.pipelines.streams.on_spark.host.plans import Entry, HostPlan, PlanFiles
from felice.pipelines.streams.on_spark.host.positions import Spans
from felice.pipelines.streams.on_spark.modules import SentModule, install
from felice.pipelines.streams.on_spark.packs import (
    MARK,
    PACKS,
    marked,
    packed,
)
from felice.pipelines.streams.on_spark.places import place_at
from felice.pipelines.streams.on_spark.rows import OUT, SCHEMA, Rows
from felice.pipelines.streams.on_spark.stage import (
    MOST_GROUP,
    TICK,
    address,
    garbage_left,
    in_turn,
    passed_on,
    run_rows,
)
from felice.pipelines.streams.on_spark.state import NOTHING, StateFiles
from felice.pipelines.streams.stores import Store
from felice.pipelines.streams.task import Task, TopicRecord

CACHED_PLANS = 3
LIMIT_S = 120.0
"""The time limit of an App's code: for up to `MOST_GROUP` records at the source, and for the App's records of one batch
in one place of a stage. All other Apps wait while this code runs.
"""
_PART, _PLACE = (SCHEMA.get_field_index(name) for name in ("part", "place"))


@dataclass(frozen=True, slots=True)
class Hosting:
    """What the processes of a host must know."""

    files: PlanFiles
    state: str
    """The path or the address of the files of state."""
    places: int
    client: BlockingConfig | None = None
    modules: tuple[SentModule, ...] = ()
    limit_s: float = LIMIT_S

    def plan(self, number: int) -> LoadedPlan:
        """A plan in this process."""
        return _loaded(self, number)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a batch says to each place of each stage."""

    batch: int
    plan: int
    levels: tuple[int, ...]
    """`Positions.levels`."""
    left_out: tuple[str, ...] = ()
    """The Apps that do not take part, by incarnation."""

    def text(self) -> str:
        """The mark as it is in a pack."""
        return json.dumps([self.batch, self.plan, self.levels, self.left_out])

    @staticmethod
    def of(text: str) -> Mark:
        """The inverse of `text`."""
        batch, plan, levels, left_out = json.loads(text)
        return Mark(batch, plan, tuple(levels), tuple(left_out))


class LoadedPlan:
    """A plan with its Apps, which are unpickled when they are first needed."""

    def __init__(self, hosting: Hosting, plan: HostPlan) -> None:
        self._hosting, self.plan = hosting, plan

    def application(self, entry: Entry) -> Application:
        """The App. Plans that have it in the same version share it."""
        return _application(self._hosting, entry.digest)

    def base(self, entry: Entry) -> int:
        """What is added to the numbers of its parts."""
        return self.plan.bases[entry.incarnation]


@lru_cache(maxsize=CACHED_PLANS)
def _loaded(hosting: Hosting, number: int) -> LoadedPlan:
    install(hosting.modules)
    plan = hosting.files.plan(number)
    _forget_others(hosting, plan)
    return LoadedPlan(hosting, plan)


_applications: dict[tuple[PlanFiles, str], Application] = {}


def _application(hosting: Hosting, digest: str) -> Application:
    key = hosting.files, digest
    if key not in _applications:
        _applications[key] = Application(cloudpickle.loads(hosting.files.app(digest)), hosting.client)
    return _applications[key]


def _forget_others(hosting: Hosting, plan: HostPlan) -> None:
    used = {one.digest for one in plan.entries}
    for key in list(_applications):
        if key[0] != hosting.files or key[1] not in used:
            del _applications[key]


def packed_hosted(
    batches: Iterable[pa.RecordBatch], hosting: Hosting, mark: Mark, wanted: Mapping[str, Spans]
) -> Iterator[pa.RecordBatch]:
    """The first stage: from a source's columns to packs. `wanted` is what each App reads of them."""
    plan = hosting.plan(mark.plan)
    readers = [
        _Reader(plan, entry, wanted[entry.incarnation], hosting)
        for entry in plan.plan.entries
        if entry.incarnation in wanted
    ]
    for batch in batches:
        for reader in readers:
            yield from reader.packs(batch)
    for reader in readers:
        yield from reader.counts()


class _Reader:
    """What one App makes of a source's rows."""

    def __init__(self, plan: LoadedPlan, entry: Entry, wanted: Spans, hosting: Hosting) -> None:
        self._entry, self._wanted = entry, wanted
        self._places, self._limit_s = hosting.places, hosting.limit_s
        self._base = plan.base(entry)
        with named(entry.incarnation):
            self._application = plan.application(entry)
            self._tasks = {
                part.number: self._application.task(part.number)
                for part in self._application.parts
                if not part.is_placed
            }

    def packs(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The packs of those rows that the App reads."""
        mine = within(batch, self._wanted)
        is_placed = self._application.last_placed is not None
        for start in range(0, len(mine), MOST_GROUP):
            with named(self._entry.incarnation, self._limit_s):
                self._application.learn(mine.column("topic").unique().to_pylist())
                some = mine.slice(start, MOST_GROUP)
                made = address(some, self._application, self._tasks, self._places if is_placed else 1)
            for rows in made:
                known = self._application.named(rows)
                # A shuffle follows, which must keep the order of the results of a partition.
                placed = known if is_placed else _by_partition(known, self._places)
                yield from packed(_shifted(placed, self._base))

    def counts(self) -> Iterator[pa.RecordBatch]:
        """The packs that report what was left out."""
        yield from counts_of_tasks(self._entry.incarnation, self._tasks.values())


def within(batch: pa.RecordBatch, wanted: Spans) -> pa.RecordBatch:
    """The rows of these partitions between these offsets."""
    topics = batch.column("topic").dictionary_encode()
    codes = {name: code for code, name in enumerate(topics.dictionary.to_pylist())}
    of_rows, partitions, offsets = (
        column.to_numpy() for column in (topics.indices, batch.column("partition"), batch.column("offset"))
    )
    kept = np.zeros(len(batch), np.bool_)
    for (topic, partition), (begin, until) in wanted.items():
        if (code := codes.get(topic)) is not None:
            is_mine = (of_rows == code) & (partitions == partition)
            kept |= is_mine & (offsets >= begin) & (offsets < until)
    return batch if kept.all() else batch.filter(pa.array(kept))


def marks(mark: Mark, places: int) -> Iterator[pa.RecordBatch]:
    """The packs that bring a mark to each place."""
    yield from marked(mark.text(), places)


def ticks(hosting: Hosting, mark: Mark, time_ms: int) -> Iterator[pa.RecordBatch]:
    """The packs that say what time it is, for Apps with timers of the wall clock."""
    plan, rows = hosting.plan(mark.plan), Rows()
    for entry in plan.plan.entries:
        if entry.is_clocked and entry.incarnation not in mark.left_out:
            for part in plan.application(entry).clocked:
                for place in range(hosting.places):
                    record = TopicRecord(TICK, None, None, time_ms)
                    rows.add(part + plan.base(entry), place, TICK, time_ms, record)
    yield from packed(rows.batch())


def run_level(
    batches: Iterable[pa.RecordBatch], hosting: Hosting, level: int, *, is_last: bool
) -> Iterator[pa.RecordBatch]:
    """A later stage: run the parts of a level in one place."""
    context = TaskContext.get()
    assert context is not None, "Spark runs stages in tasks"
    place, batch = context.partitionId(), int(str(context.getLocalProperty(BATCH_ID)))
    packs = pa.Table.from_batches(list(batches), PACKS)
    mark = _mark_in(packs)
    assert mark.batch == batch, f"the batch {mark.batch} of the host is batch {batch} of Spark"
    plan = hosting.plan(mark.plan)
    mine = {
        plan.base(entry) + number: (entry, number)
        for entry in plan.plan.entries
        if level < len(entry.levels)
        for number in entry.levels[level]
    }
    is_mine = pc.is_in(packs["part"], pa.array(mine, pa.int32()))
    yield from passed_on(packs.filter(pc.invert(is_mine)), is_last=is_last)
    if level >= len(mark.levels):
        return
    packs = packs.filter(is_mine)
    is_first = mark.levels[level] == batch
    held = _held_level(hosting, level, place)
    with garbage_left():
        tasks = held.at(plan, NOTHING if is_first else batch - 1)
        made = []
        for part in sorted(packs["part"].unique().to_pylist()):
            entry, number = mine[part]
            rows = packs.filter(pc.equal(packs["part"], part))
            made += _run(plan, entry, number, place, rows, tasks[part], hosting)
        held.save(batch, is_first=is_first)
    yield from made


def _run(
    plan: LoadedPlan, entry: Entry, number: int, place: int, packs: pa.Table, task: Task, hosting: Hosting
) -> list[pa.RecordBatch]:
    with named(entry.incarnation, hosting.limit_s):
        application = plan.application(entry)
        rows = in_turn(packs, place, application.parts[number].sources)
        results = run_rows(application, rows, task)
    is_last = number == application.last_placed
    origin = f"{number}{INNER}{place}"
    sent = results.batch(application.reader_of, 1 if is_last else hosting.places, origin, results.in_order())
    if is_last:  # Results stay in this place, so that they keep their order.
        sent = sent.set_column(
            _PLACE, SCHEMA.field(_PLACE), pa.repeat(pa.scalar(place, pa.int32()), len(sent))
        )
    return [
        *packed(_shifted(sent, plan.base(entry))),
        *counts_of(entry.incarnation, results.skipped, results.dropped),
    ]


def _mark_in(packs: pa.Table) -> Mark:
    found = packs.filter(pc.equal(packs["part"], MARK))
    assert len(found), "each place gets the mark of its batch"
    return Mark.of(found["topic"][0].as_py())


def _shifted(rows: pa.RecordBatch, base: int) -> pa.RecordBatch:
    """The rows with numbers of parts that are those of one App."""
    if not base:
        return rows
    parts = rows.column("part")
    is_result = pc.equal(parts, pa.scalar(OUT, pa.int32()))
    shifted = pc.if_else(is_result, parts, pc.add(parts, pa.scalar(base, pa.int32())))
    return rows.set_column(_PART, SCHEMA.field(_PART), shifted)


def _by_partition(rows: pa.RecordBatch, places: int) -> pa.RecordBatch:
    """The rows, all of a topic partition in one place."""
    origins = rows.column("origin").dictionary_encode()
    chosen = np.array([partition_of(one) % places for one in origins.dictionary.to_pylist()], np.int32)
    column = pa.array(chosen[origins.indices.to_numpy()], pa.int32())
    return rows.set_column(_PLACE, SCHEMA.field(_PLACE), column)


class HeldLevel:
    """The tasks of a stage in one place, of all Apps, with their state."""

    def __init__(self, files: StateFiles, level: int) -> None:
        self._level = level
        self._plan: LoadedPlan | None = None
        self._held: HeldTask[Mapping[int, Task]] = HeldTask(self._made_stores, self._made_tasks, files)

    def at(self, plan: LoadedPlan, version: int) -> Mapping[int, Task]:
        """The tasks of the Apps of a plan, by their numbers in the batch, with this version of the state."""
        before = self._plan
        if before is None or before.plan.number != plan.plan.number:
            self._plan = plan
            same = self._unchanged(before, plan)
            self._held.renew(lambda name: name.partition("|")[0] in same)
        return self._held.at(version)

    def save(self, batch: int, *, is_first: bool) -> None:
        """Write what the batch changed."""
        self._held.save(batch, is_first=is_first)

    def _unchanged(self, before: LoadedPlan | None, now: LoadedPlan) -> set[str]:
        """The Apps whose stores stay as they are."""
        known = {} if before is None else before.plan.by_incarnation
        return {
            name
            for name, entry in now.plan.by_incarnation.items()
            if name in known and known[name].digest == entry.digest
        }

    def _parts(self) -> Iterator[tuple[LoadedPlan, Entry, int]]:
        if self._plan is not None:
            for entry in self._plan.plan.entries:
                for number in entry.levels[self._level] if self._level < len(entry.levels) else ():
                    yield self._plan, entry, number

    def _made_stores(self) -> dict[str, Store]:
        found: dict[str, Store] = _OfThosePresent()
        for plan, entry, number in self._parts():
            with named(entry.incarnation):
                application = plan.application(entry)
                made = application.topology.made_stores(application.parts[number])
            found |= {entry.directory_of(number, name): store for name, store in made.items()}
        return found

    def _made_tasks(self, stores: dict[str, Store]) -> Mapping[int, Task]:
        found = {}
        for plan, entry, number in self._parts():
            prefix = entry.directory_of(number, "")
            mine = {
                name.removeprefix(prefix): store for name, store in stores.items() if name.startswith(prefix)
            }
            with named(entry.incarnation):
                found[plan.base(entry) + number] = plan.application(entry).task(number, mine)
        return found


class _OfThosePresent(dict[str, Store]):
    """Stores by name. Rows of an App that was dropped go nowhere."""

    def __missing__(self, name: str) -> Store:
        return Store(name)


@lru_cache(maxsize=64)
def _held_level(hosting: Hosting, level: int, place: int) -> HeldLevel:
    return HeldLevel(StateFiles(place_at(below(hosting.state, f"level-{level}", str(place)))), level)


def readers_of(ranges: Sequence[Any], wanted: Mapping[str, Spans]) -> dict[str, Spans]:
    """What each App reads of some ranges."""
    keys = {(one.topic, one.partition) for one in ranges}
    found = {
        name: {key: span for key, span in spans.items() if key in keys} for name, spans in wanted.items()
    }
    return {name: spans for name, spans in found.items() if spans}
