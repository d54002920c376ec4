"""The data source of applications: its reader yields packs of records for the tasks, and its writer takes packs.

Keeps true: offsets, groups, transactions and their checkpoint are those of `format("felice")`, so limits of a batch
            count records.
How:        The reader knows the application, so it runs the parts without state and chooses the place of each record.
            So records pass through one Python process before the shuffle.
"""

from __future__ import annotations

import base64
import json
import pickle
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from felice.pipelines.spark.mistakes import plain_errors, plain_errors_while_read
from felice.pipelines.spark.offsets import Checkpoint, Offsets, from_checkpoint, to_checkpoint
from felice.pipelines.spark.options import Earliest, SinkOptions, SourceOptions
from felice.pipelines.spark.reader import StreamReader
from felice.pipelines.spark.source import FeliceDataSource
from felice.pipelines.spark.writer import StreamWriter, Written
from felice.pipelines.streams.on_spark import packs
from felice.pipelines.streams.on_spark.checkpoint_copy import CheckpointCopy
from felice.pipelines.streams.on_spark.cut_by_time import TimeCut
from felice.pipelines.streams.on_spark.lease import valid_epoch
from felice.pipelines.streams.on_spark.places import PlaceError
from felice.pipelines.streams.on_spark.stage import Plan, packed_source

PLAN = "plan.secret"
"""The plan holds what formats need to log in to a registry. Spark shows the options of a source in its plans and its
interface, but not the value of one with this word in its name (`spark.redaction.regex`).
"""
COPY = "checkpoint.copy"
MAX_IDLE_MS = "max.task.idle.ms"
STARTS = "starts"
_AGAIN_AFTER_S = 0.5
NO_STARTS: Offsets = {}
NAME = "felice-streams"


def written_plan(plan: Plan) -> str:
    """The plan as the value of the option `PLAN`."""
    return base64.b64encode(pickle.dumps(plan)).decode()


class StreamsDataSource(FeliceDataSource):
    """The data source that Spark instantiates for each application."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return NAME

    def schema(self) -> str:  # type: ignore[override]
        """The columns of packs."""
        return packs.SPARK_SCHEMA

    def make_stream_reader(self, schema: StructType) -> PackReader:
        """The reader of the application's topics. Raises `QueryError` if the options are wrong."""
        own = (PLAN, MAX_IDLE_MS, STARTS)
        options = {name: value for name, value in self.options.items() if name not in own}
        plan = pickle.loads(base64.b64decode(self.options[PLAN]))
        max_idle_ms = int(self.options.get(MAX_IDLE_MS, 0))
        starts = from_checkpoint(json.loads(self.options.get(STARTS, "{}")))
        return PackReader(SourceOptions.parse(options), self.cores_of_session(), plan, max_idle_ms, starts)

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> PackWriter:
        """The writer of the application's results."""
        # Spark asks for a writer in the driver, after it has logged the offsets of a batch and before its tasks run.
        if (copy := _copy_in(self.options)) is not None:
            _push(copy)
        return PackWriter(
            SinkOptions.parse({name: value for name, value in self.options.items() if name != COPY})
        )


def _copy_in(options: Mapping[str, str]) -> CheckpointCopy | None:
    if (given := options.get(COPY)) is None:
        return None
    directory, address, application = json.loads(given)
    return CheckpointCopy(Path(directory), address, application)


@plain_errors
def _push(copy: CheckpointCopy) -> None:
    """Write the copy, again while it fails, as long as this machine holds the lease."""
    while True:
        epoch = valid_epoch(copy.directory)
        try:
            copy.push(epoch)
        except (PlaceError, OSError):
            time.sleep(_AGAIN_AFTER_S)
            continue
        # A write that took long may have ended after another machine has taken over.
        valid_epoch(copy.directory)
        return


class PackReader(StreamReader):
    """Reads the topics of an application."""

    def __init__(
        self,
        options: SourceOptions,
        cores: int,
        plan: Plan,
        max_idle_ms: int = 0,
        starts: Offsets = NO_STARTS,
    ) -> None:
        super().__init__(options, cores)
        self._plan, self._max_idle_ms = plan, max_idle_ms
        self._cut = TimeCut()
        self._starts = starts
        """The first offsets of topics that do not begin at their start."""
        self._waits_since: float | None = None
        """Since when some partitions have records and others have none."""

    def latestOffset(self, start: Checkpoint, limit: ReadLimit) -> Checkpoint:
        """Called by Spark: where the batch that begins at `start` ends."""
        return super().latestOffset(self._begun(start), limit)

    def partitions(self, start: Checkpoint, end: Checkpoint) -> list[InputPartition]:
        """Called by Spark in the driver: divides the records between both offsets into tasks."""
        until = self._without_left(end)
        # The batch may have been planned by a version of the program that did not read a topic.
        begun = {topic: at for topic, at in self._begun(start).items() if topic in until}
        return super().partitions(begun, until)

    def _first_offsets(self) -> Offsets:
        found = super()._first_offsets()
        # `felice streams reset` may have said where all topics begin.
        is_reset = self._options.starting != Earliest()
        return found if is_reset else found | {key: at for key, at in self._starts.items() if key in found}

    def _limited(self, most: int, begin: Offsets, end: Offsets) -> Offsets:
        """Batches take a backlog in the order of time across topics and partitions."""

        def first_since(timestamp_ms: int) -> Offsets:
            return self._cluster().first_since(dict.fromkeys(end, timestamp_ms))

        return self._cut.end(most, begin, end, first_since)

    def _too_few(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """Whether to wait for records of partitions that have none now, as `max.task.idle.ms` of Kafka Streams does."""
        new = [end[key] > begin.get(key, end[key]) for key in end]
        if self._target is None and any(new) and not all(new):
            now = time.monotonic()
            self._waits_since = self._waits_since or now
            if (now - self._waits_since) * 1000 < self._max_idle_ms:
                return True
        self._waits_since = None
        return super()._too_few(begin, end, limit)

    def _begun(self, start: Checkpoint) -> Checkpoint:
        """The start of a batch, with that of topics which an earlier version of the program has not read."""
        later = {key: at for key, at in self._starts.items() if key[0] not in start}
        return self._without_left(start) | to_checkpoint(later)

    def _without_left(self, offsets: Checkpoint) -> Checkpoint:
        """The offsets without topics that only an earlier version of the program has read."""
        reads = self._options.subscription.matches
        return {topic: kept for topic, kept in offsets.items() if reads(topic)}

    @plain_errors_while_read
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called by Spark in a worker: yields the packs of one task."""
        yield from packed_source(super().read(partition), self._plan)


class PackWriter(StreamWriter):
    """Writes the results of an application."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Called by Spark in a worker: writes the records of one task."""
        return super().write(packs.results(iterator))
