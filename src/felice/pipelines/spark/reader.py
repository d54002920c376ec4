"""Reads topics into Spark: a batch between two offsets, or a stream of such batches.

Keeps true: a batch that is read again after a failure is the same batch: Spark keeps its offsets, and the log does not
            change. The next batch of a stream begins where the last one ended. With `availableNow` a query reads
            nothing that is added after its start.
How:        the driver's process plans (`cluster`, `planning`), and workers read (`fetching`). Spark pickles a reader in
            the driver and unpickles it in the workers, so a reader opens connections only when they are used.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from felice.pipelines.spark.cluster import ClusterView, open_view, report_losses
from felice.pipelines.spark.fetching import read_task
from felice.pipelines.spark.lag import Announcement, GroupOffsets, open_group
from felice.pipelines.spark.mistakes import QueryError, plain_errors, plain_errors_while_read
from felice.pipelines.spark.offsets import Checkpoint, Offsets, from_checkpoint, to_checkpoint
from felice.pipelines.spark.options import SourceOptions
from felice.pipelines.spark.planning import (
    OffsetRange,
    Task,
    behind_their_ends,
    count_new,
    plan_batch,
    plan_tasks,
    recreation_loss,
    share_limit,
)
from felice.pipelines.spark.properties import QUERY_ID
from felice.pipelines.spark.pushdown import Narrowed, narrowed

# An idle query asks for its latest offset about 90 times a second. Each result without new records is delayed a little
# longer, up to this time.
IDLE_PAUSE_MIN_S = 0.01
IDLE_PAUSE_MAX_S = 0.1
REPORT_EVERY_S = 1.0
MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000


class TaskPartition(InputPartition):
    """The ranges that one Spark task reads, and what it commits to the query's group, if anything."""

    def __init__(self, task: Task, announcement: Announcement | None = None) -> None:
        super().__init__(task)
        self.task = task
        self.announcement = announcement


class BatchReader(DataSourceReader):
    """Reads the topics once, between the offsets of the options."""

    def __init__(self, options: SourceOptions, cores: int) -> None:
        self._options = options
        self._cores = cores
        self._positions = options.for_batch()
        self._narrowed = Narrowed()

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        """Called by Spark in the driver: resolves both offsets, and divides the ranges into tasks."""
        starting, ending = self._positions
        view = open_view(self._options)
        try:
            start, end = view.start(starting), view.end(ending)
            if behind := behind_their_ends(start, end):
                raise QueryError(f"{'; '.join(behind)}: the start of a query must not be behind its end")
            start = {key: offset for key, offset in start.items() if self._narrowed.has(key)}
            start = self._from_timestamp(view, start, end)
        finally:
            view.close()
        spans = {key: self._narrowed.clip(start[key], end[key]) for key in sorted(start)}
        ranges = [OffsetRange(*key, first, max(first, until)) for key, (first, until) in spans.items()]
        return list(_tasks(ranges, self._options, self._cores))

    def _from_timestamp(self, view: ClusterView, start: Offsets, end: Offsets) -> Offsets:
        timestamp_ms = self._narrowed.from_timestamp_ms
        if timestamp_ms is None:
            return start
        first = view.first_since(dict.fromkeys(start, timestamp_ms))
        return {key: max(offset, first.get(key, end[key])) for key, offset in start.items()}

    @plain_errors_while_read
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called by Spark in a worker: yields the rows of one task."""
        # For a plan without partitions Spark makes one that holds None.
        if isinstance(partition, TaskPartition):
            yield from read_task(partition.task, self._options)


class NarrowingBatchReader(BatchReader):
    """A batch reader that takes filters. Spark refuses such a reader unless the session allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Called by Spark before `partitions`. Returns all filters, so Spark applies them, too."""
        self._narrowed = narrowed(filters)
        # Spark checks each row anyway.
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of a streaming query."""

    def __init__(self, options: SourceOptions, cores: int) -> None:
        self._options = options
        self._cores = cores
        self._starting = options.for_stream()
        self._initial: Checkpoint | None = None
        self._view: ClusterView | None = None
        self._ends: LatestOffsets | None = None
        self._group: GroupOffsets | None = None
        self._read_again_until: Offsets | None = None
        self._mark = secrets.token_hex(8)
        self._target: Offsets | None = None
        self._last_batch_at = time.monotonic()

    @plain_errors
    def initialOffset(self) -> Checkpoint:
        """Called by Spark for a new query: where its first batch starts."""
        # Spark calls this twice for a new query and must get the same result, although the end has moved.
        if self._initial is None:
            self._initial = to_checkpoint(self._first_offsets())
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Called by Spark: the limit that it passes to `latestOffset`, from the options."""
        if (ceiling := self._options.max_offsets_per_trigger) is not None:
            return ReadMaxRows(ceiling)
        if (floor := self._options.min_offsets_per_trigger) is not None:
            return ReadMinRows(floor)
        return ReadAllAvailable()

    @plain_errors
    def latestOffset(self, start: Checkpoint, limit: ReadLimit) -> Checkpoint:
        """Called by Spark: where the batch that begins at `start` ends; `start` if there is no batch now.

        Raises `DataLoss` if a topic was deleted and created again, unless `failOnDataLoss` is false.
        """
        begin = from_checkpoint(start)
        # Spark calls this when the batch that ends at `start` is done.
        self._told_group().done(begin)
        end = self._target if self._target is not None else self._latest().newer_than(begin)
        view = self._cluster()
        if begin == self._read_again_until:
            view.forget_recreated()
        report_losses(map(recreation_loss, sorted(view.recreated)), self._options.fail_on_data_loss)
        if end == begin:
            return start
        begin = {key: offset for key, offset in begin.items() if key[0] not in view.recreated}
        begin |= view.earliest(end.keys() - begin.keys())
        if self._too_few(begin, end, limit):
            # Delay the result, as for an idle query: Spark would call again at once.
            time.sleep(IDLE_PAUSE_MAX_S)
            return start
        if isinstance(limit, ReadMaxRows):
            end = self._limited(limit.max_rows, begin, end)
        self._last_batch_at = time.monotonic()
        return to_checkpoint(end)

    @plain_errors
    def reportLatestOffset(self) -> Checkpoint | None:
        """Called by Spark for its progress report: the newest end offsets, which may be beyond the batch."""
        # With availableNow no batch asks for the end offsets, which grow meanwhile.
        known = self._latest().known if self._target is None else self._latest().recent(self._target)
        return None if known is None else to_checkpoint(known)

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Called by Spark: the batches from now on end at the present end of the topics."""
        self._target = self._cluster().latest()

    @plain_errors
    def partitions(self, start: Checkpoint, end: Checkpoint) -> list[InputPartition]:
        """Called by Spark in the driver: divides the records between both offsets into tasks."""
        begin, until = from_checkpoint(start), from_checkpoint(end)
        view = self._cluster()
        again = frozenset(view.recreated)
        self._read_again_until = until if again else None
        new = {key for key in until if key not in begin or key[0] in again}
        batch = plan_batch(begin, until, view.earliest(new), again, self._options.subscription.matches)
        report_losses(batch.losses, self._options.fail_on_data_loss)
        tasks = _tasks(batch.ranges, self._options, self._cores)
        if tasks and self._options.group_id is None and not self._told_group().is_known:
            first = tasks[0].task[0]
            tasks[0].announcement = Announcement(self._mark, (first.topic, first.partition), first.start)
        return list(tasks)

    @plain_errors_while_read
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called by Spark in a worker: yields the rows of one task."""
        if not isinstance(partition, TaskPartition):
            return
        if partition.announcement is not None and (query_id := _query_id()) is not None:
            partition.announcement.make(self._options, query_id)
        yield from read_task(partition.task, self._options)

    def stop(self) -> None:
        """Called by Spark at the end of the query: closes the connections to the brokers."""
        for opened in (self._view, self._group):
            if opened is not None:
                opened.close()
        self._view = self._ends = self._group = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_view": None, "_ends": None, "_group": None}

    def _first_offsets(self) -> Offsets:
        """Where the first batch starts."""
        return self._cluster().start(self._starting)

    def _limited(self, most: int, begin: Offsets, end: Offsets) -> Offsets:
        """Where a batch of about `most` records ends."""
        return share_limit(most, begin, end)

    def _too_few(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """A batch below minOffsetsPerTrigger waits, but no longer than maxTriggerDelay."""
        floor = self._options.min_offsets_per_trigger
        if floor is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        waited_ms = (time.monotonic() - self._last_batch_at) * 1000
        longest_ms = self._options.max_trigger_delay_ms
        if longest_ms is None:
            longest_ms = MAX_TRIGGER_DELAY_MS
        return count_new(begin, end) < floor and waited_ms < longest_ms

    def _cluster(self) -> ClusterView:
        if self._view is None:
            self._view = open_view(self._options)
        return self._view

    def _told_group(self) -> GroupOffsets:
        if self._group is None:
            self._group = open_group(self._options, self._mark)
        return self._group

    def _latest(self) -> LatestOffsets:
        if self._ends is None:
            self._ends = LatestOffsets(self._cluster().latest_from)
        return self._ends


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream with wrong options: every call raises the error.

    `streamReader` cannot raise it, because Spark hides errors of `streamReader` below an error of its own.
    """

    def __init__(self, error: QueryError) -> None:
        self._error = error

    def initialOffset(self) -> Checkpoint:
        """Raises the error."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raises the error."""
        raise self._error

    def latestOffset(self, start: Checkpoint, limit: ReadLimit) -> Checkpoint:
        """Raises the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        """Raises the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises the error."""
        raise self._error


class LatestOffsets:
    """The end offsets of all partitions. While no records arrive, the brokers are asked less and less often."""

    def __init__(
        self,
        ask: Callable[[Offsets], Offsets],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._sleep = sleep
        self._next_ask_at = monotonic()
        self._pause_s = IDLE_PAUSE_MIN_S
        self._asked_at = float("-inf")
        self.known: Offsets | None = None

    def recent(self, start: Offsets) -> Offsets:
        """Returns the end offsets, at most REPORT_EVERY_S seconds old."""
        if self.known is None or self._monotonic() - self._asked_at >= REPORT_EVERY_S:
            self.known = self._ask(start)
            self._asked_at = self._monotonic()
        return self.known

    def newer_than(self, start: Offsets) -> Offsets:
        """Returns the present end offsets. If they were still at `start`, it first waits for up to IDLE_PAUSE_MAX_S."""
        if self.known == start and (wait_s := self._next_ask_at - self._monotonic()) > 0:
            self._sleep(wait_s)
        self.known = self._ask(start)
        self._asked_at = self._monotonic()
        idle = self.known == start
        self._pause_s = min(self._pause_s * 2, IDLE_PAUSE_MAX_S) if idle else IDLE_PAUSE_MIN_S
        self._next_ask_at = self._monotonic() + self._pause_s
        return self.known


def _query_id() -> str | None:
    task = TaskContext.get()
    return None if task is None else task.getLocalProperty(QUERY_ID)


def _tasks(ranges: Iterable[OffsetRange], options: SourceOptions, cores: int) -> list[TaskPartition]:
    tasks = plan_tasks(
        ranges,
        cores=cores,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [TaskPartition(task) for task in tasks]
