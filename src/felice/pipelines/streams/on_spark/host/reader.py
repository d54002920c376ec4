"""The data source of a host: its reader plans the batches of all Apps, and yields packs for their tasks.

Keeps true: a batch is a new plan, or has new records of a running App, or is due for timers of the wall clock.
            Otherwise there is none, and brokers are asked ten times a second at most.
How:        One view of the cluster has the topics of all Apps. Each App's part of a batch ends at one timestamp in all
            of its partitions, as in a query of its own. Ranges that several Apps read are read once.
"""

from __future__ import annotations

import base64
import logging
import pickle
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from felice.client.blocking import BlockingClient
from felice.client.blocking.coordinators import BlockingCoordinators
from felice.pipelines.spark.cluster import ClusterView, DataLoss, open_view
from felice.pipelines.spark.fetching import read_task
from felice.pipelines.spark.lag import PATIENCE_MS, GroupOffsets
from felice.pipelines.spark.mistakes import QueryError, plain_errors, plain_errors_while_read
from felice.pipelines.spark.offsets import Offsets, from_checkpoint, to_checkpoint
from felice.pipelines.spark.options import SinkOptions, SourceOptions, Subscription
from felice.pipelines.spark.planning import Task, plan_tasks
from felice.pipelines.spark.reader import LatestOffsets
from felice.pipelines.spark.writer import Written
from felice.pipelines.streams.on_spark.cut_by_time import TimeCut
from felice.pipelines.streams.on_spark.host.failing import HostedAppsFailed
from felice.pipelines.streams.on_spark.host.level import (
    Hosting,
    Mark,
    marks,
    packed_hosted,
    readers_of,
    ticks,
)
from felice.pipelines.streams.on_spark.host.plans import Entry, HostPlan, PlanFiles
from felice.pipelines.streams.on_spark.host.positions import (
    MissingTopics,
    Positions,
    Spans,
    ends_within,
    first_batches,
    lost,
    segments,
    spans,
)
from felice.pipelines.streams.on_spark.source import PackWriter, StreamsDataSource

HOSTING = "hosting.secret"
"""The option with what processes must know. Spark does not show the value of an option with this word in its name."""
MAX_RECORDS = "max.records"
NAME = "felice-host"
TICK_EVERY_MS = 1000
MISSING_TOPIC_S = 15.0
"""How long a batch, and so every App, waits for a deleted topic. A broker that has just started may need some seconds
to know its topics.
"""
COMMITTED_EVERY_S = 5.0
"""How often the positions are committed to the groups of Apps, which operators see."""
Document = dict[str, Any]
_TOPIC = re.compile(r"\btopic ([a-zA-Z0-9._-]*[a-zA-Z0-9_-])")

log = logging.getLogger(__name__)


def written_hosting(hosting: Hosting) -> str:
    """The value of the option `HOSTING`."""
    return base64.b64encode(pickle.dumps(hosting)).decode()


def hosting_in(value: str) -> Hosting:
    """The inverse of `written_hosting`."""
    hosting: Hosting = pickle.loads(base64.b64decode(value))
    return hosting


class HostDataSource(StreamsDataSource):
    """The data source that Spark instantiates for a host."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return NAME

    def make_stream_reader(self, schema: StructType) -> HostReader:  # type: ignore[override]
        """The reader of the topics of all Apps."""
        options = {name: value for name, value in self.options.items() if name not in (HOSTING, MAX_RECORDS)}
        hosting = hosting_in(self.options[HOSTING])
        return HostReader(options, hosting, int(self.options[MAX_RECORDS]), self.cores_of_session())

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> HostWriter:
        """The writer of the results of all Apps."""
        options = {name: value for name, value in self.options.items() if name != HOSTING}
        return HostWriter(SinkOptions.parse(options), hosting_in(self.options[HOSTING]).files)


class HostWriter(PackWriter):
    """Writes the results of all Apps. Where a topic cannot be written, those that write it have failed."""

    def __init__(self, options: SinkOptions, files: PlanFiles) -> None:
        super().__init__(replace(options, missing_topic_s=MISSING_TOPIC_S))
        self._files = files

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Called by Spark in a worker: writes the records of one task."""
        try:
            return super().write(iterator)
        except QueryError as error:
            plan = self._files.plan(self._files.latest_number())
            # The error is of a batch of many topics, and only its text names one.
            named = set(_TOPIC.findall(str(error)))
            writers = [one.incarnation for one in plan.entries if named & set(one.writes)]
            if not writers:
                raise
            raise HostedAppsFailed(writers, str(error)) from None


class HostPartition(InputPartition):
    """What one task of Spark reads, and which Apps read it."""

    def __init__(
        self, mark: Mark, task: Task, wanted: Mapping[str, Spans], time_ms: int | None, *, has_mark: bool
    ) -> None:
        super().__init__(task)
        self.mark, self.task, self.wanted = mark, task, dict(wanted)
        self.time_ms, self.has_mark = time_ms, has_mark


class HostReader(DataSourceStreamReader):
    """Plans the batches of a host."""

    def __init__(self, options: Mapping[str, str], hosting: Hosting, most: int, cores: int) -> None:
        # Which topics are read, the plans say.
        self._options = SourceOptions.parse({**options, "subscribePattern": "."})
        self._hosting, self._most, self._cores = hosting, most, cores
        self._pattern = ""
        self._view: ClusterView | None = None
        self._ends: LatestOffsets | None = None
        self._cuts: dict[str, TimeCut] = {}
        self._groups: dict[str, GroupOffsets] = {}
        self._client: BlockingClient | None = None
        self._missing = MissingTopics(self._options.client.request_timeout_ms / 1000)
        self._committed_at = float("-inf")
        self._plans: dict[int, HostPlan] = {}

    def initialOffset(self) -> Document:
        """Called by Spark for a new query."""
        return Positions().document()

    @plain_errors
    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:
        """Called by Spark: where the batch that begins at `start` ends; `start` if there is no batch now."""
        files, given = self._hosting.files, Positions.of(start)
        failures = files.failures()
        reached = given.corrected(self._plan(given.plan), failures)
        plan = self._plan(files.latest_number())
        self._tell_groups(reached)
        self._follow(plan)
        running = plan.running(given.batch + 1, failures)
        begins, ends = self._begins_and_ends(plan, running, reached)
        ends = ends_within(self._most, begins, ends, self._cut)
        time_ms = self._time_of_ticks(running, given)
        has_new = any(ends[name] != begins[name] for name in ends)
        if not has_new and plan.number == given.plan and time_ms == given.time_ms:
            return start
        kept = {name: at for name, at in reached.apps.items() if name in plan.by_incarnation}
        levels = first_batches(given, plan.levels)
        return Positions(given.batch + 1, plan.number, time_ms, levels, {**kept, **ends}).document()

    @plain_errors
    def reportLatestOffset(self) -> Document | None:
        """Called by Spark for its progress report: the newest end offsets of all topics."""
        return None if self._ends is None or self._ends.known is None else to_checkpoint(self._ends.known)

    @plain_errors
    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """Called by Spark in the driver: divides the records between both positions into tasks."""
        failures = self._hosting.files.failures()
        given, until = Positions.of(start), Positions.of(end)
        begin = given.corrected(self._plan(given.plan), failures)
        plan = self._plan(until.plan)
        self._follow(plan)
        running = {one.incarnation: one for one in plan.running(until.batch, failures)}
        left_out = tuple(name for name in plan.by_incarnation if name not in running)
        wanted = {
            name: spans(
                begin.apps.get(name, {}), at, self._first(running[name], begin.apps.get(name, {}), at)
            )
            for name, at in until.apps.items()
            if name in running
        }
        mark = Mark(until.batch, until.plan, until.levels, left_out)
        tasks = plan_tasks(segments(list(wanted.values())), cores=self._cores) or [()]
        time_ms = until.time_ms if until.time_ms != given.time_ms else None
        return [
            HostPartition(
                mark, task, readers_of(task, wanted), None if number else time_ms, has_mark=not number
            )
            for number, task in enumerate(tasks)
        ]

    @plain_errors_while_read
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called by Spark in a worker: yields the packs of one task."""
        assert isinstance(partition, HostPartition)
        mark, hosting = partition.mark, self._hosting
        if partition.has_mark:
            yield from marks(mark, hosting.places)
        if partition.time_ms is not None:
            yield from ticks(hosting, mark, partition.time_ms)
        if partition.task:
            yield from packed_hosted(self._read(partition), hosting, mark, partition.wanted)

    def stop(self) -> None:
        """Called by Spark at the end of the query: closes the connections to the brokers."""
        for opened in (self._view, self._client):
            if opened is not None:
                opened.close()
        self._view = self._ends = self._client = None
        self._groups.clear()

    def __getstate__(self) -> dict[str, object]:
        closed: dict[str, object] = dict.fromkeys(("_view", "_ends", "_client"))
        return self.__dict__ | closed | {"_groups": {}, "_plans": {}, "_cuts": {}}

    def _read(self, partition: HostPartition) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_task(partition.task, self._options)
        except DataLoss as error:
            gone = self._readers_of_gone(partition)
            if not gone:
                raise
            raise HostedAppsFailed(gone, str(error)) from None

    def _readers_of_gone(self, partition: HostPartition) -> list[str]:
        """The Apps that would read records which the log no longer holds."""
        view = open_view(self._options)
        try:
            first = view.earliest({(one.topic, one.partition) for one in partition.task})
        finally:
            view.close()
        return [
            name
            for name, wanted in partition.wanted.items()
            if any(begin < first.get(key, begin) for key, (begin, _) in wanted.items())
        ]

    def _plan(self, number: int) -> HostPlan:
        if number not in self._plans:
            newest = sorted(self._plans)[-2:]
            self._plans = {one: self._plans[one] for one in newest}
            self._plans[number] = self._hosting.files.plan(number)
        return self._plans[number]

    def _follow(self, plan: HostPlan) -> None:
        """See the topics that the Apps of this plan read."""
        patterns = sorted({one.pattern for one in plan.entries if one.subscription[1]})
        pattern = "|".join(f"(?:{one})" for one in patterns)
        if pattern == self._pattern:
            return
        if self._view is not None:
            self._view.close()
        self._view = self._ends = None
        self._pattern = pattern
        self._options = replace(self._options, subscription=Subscription(pattern=pattern))

    def _begins_and_ends(
        self, plan: HostPlan, running: list[Entry], reached: Positions
    ) -> tuple[dict[str, Offsets], dict[str, Offsets]]:
        """Where each running App is, and where its topics end now."""
        if not running:
            time.sleep(0.1)  # As a reader that waits for records: Spark would call again at once.
            return {}, {}
        view = self._cluster()
        # A partition whose leader cannot be asked has the offset that the furthest App has reached.
        base = dict[tuple[str, int], int]()
        for offsets in reached.apps.values():
            base |= {key: max(at, base.get(key, 0)) for key, at in offsets.items()}
        latest = self._latest().newer_than(self._latest().known or base)
        if view.recreated:
            self._fail_readers(running, view.recreated)
        read = {key[0] for entry in running for key in reached.apps.get(entry.incarnation, ())}
        awaited = self._missing.awaited(read, {topic for topic, _ in latest}, time.monotonic())
        begins, ends = {}, {}
        for entry in running:
            at = reached.apps.get(entry.incarnation, {})
            own = {key: end for key, end in at.items() if key[0] in awaited}
            own |= {key: end for key, end in latest.items() if entry.reads(key[0])}
            begin = {key: offset for key, offset in at.items() if key in own}
            if wrong := lost(begin, own):
                raise HostedAppsFailed([entry.incarnation], "; ".join(wrong))
            begins[entry.incarnation] = begin | self._first(entry, begin, own)
            ends[entry.incarnation] = own
        return begins, ends

    def _fail_readers(self, running: list[Entry], recreated: set[str]) -> None:
        topics = sorted(recreated)
        readers = [one.incarnation for one in running if any(map(one.reads, topics))]
        if not readers:
            self._cluster().forget_recreated()
            return
        raise HostedAppsFailed(
            readers,
            f"topic {', '.join(topics)} was deleted and created again; what was not read of it is lost",
        )

    def _first(self, entry: Entry, begin: Offsets, end: Offsets) -> Offsets:
        """Where an App begins in partitions that are new to it."""
        new = end.keys() - begin.keys()
        starts = {key: at for key, at in from_checkpoint(entry.starts).items() if key in new}
        rest = new - starts.keys()
        return {**(self._cluster().earliest(rest) if rest else {}), **starts}

    def _cut(self, name: str, most: int, begin: Offsets, end: Offsets) -> Offsets:
        def first_since(timestamp_ms: int) -> Offsets:
            return self._cluster().first_since(dict.fromkeys(end, timestamp_ms))

        return self._cuts.setdefault(name, TimeCut()).end(most, begin, end, first_since)

    def _time_of_ticks(self, running: list[Entry], given: Positions) -> int:
        now_ms = time.time_ns() // 1_000_000
        is_due = any(one.is_clocked for one in running) and now_ms - given.time_ms >= TICK_EVERY_MS
        return now_ms if is_due else given.time_ms

    def _tell_groups(self, reached: Positions) -> None:
        """Commit the positions, because all records before them are processed."""
        now = time.monotonic()
        if now - self._committed_at < COMMITTED_EVERY_S:
            return
        self._committed_at = now
        plan = self._plan(reached.plan)
        for incarnation, offsets in reached.apps.items():
            if offsets and (entry := plan.by_incarnation.get(incarnation)) is not None:
                self._group_of(entry.name).done(offsets)

    def _group_of(self, name: str) -> GroupOffsets:
        if self._client is None:
            self._client = BlockingClient(self._options.client, retry_timeout_ms=PATIENCE_MS)
        if name not in self._groups:
            self._groups[name] = GroupOffsets(BlockingCoordinators(self._client), lambda: name)
        return self._groups[name]

    def _cluster(self) -> ClusterView:
        if self._view is None:
            self._view = open_view(self._options)
        return self._view

    def _latest(self) -> LatestOffsets:
        if self._ends is None:
            self._ends = LatestOffsets(self._cluster().latest_from)
        return self._ends
