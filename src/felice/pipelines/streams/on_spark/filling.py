"""Fills the new store of a table from its topic, up to where the application has read the topic already.

Without this, rows that the application has passed by before it had the store would be missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from felice.dataclass import dataclass
from felice.pipelines.spark.cluster import open_view
from felice.pipelines.spark.fetching import read_task
from felice.pipelines.spark.offsets import Offsets, from_checkpoint
from felice.pipelines.spark.options import SourceOptions
from felice.pipelines.spark.planning import OffsetRange
from felice.pipelines.streams.lineage import owners_of
from felice.pipelines.streams.on_spark.columns import milliseconds_of
from felice.pipelines.streams.on_spark.spark_logs import SparkLogs
from felice.pipelines.streams.record import Group
from felice.pipelines.streams.stores import Store
from felice.pipelines.streams.task import Task
from felice.pipelines.streams.topology import SubTopology, TopicFormats, Topology
from felice.records.kernels import murmur2

MOST_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class TableTopics:
    """Fills tables from topics of these brokers, for the application with this checkpoint."""

    checkpoint: Path
    connected: Mapping[str, str]
    """The options that the source connects with."""

    def __call__(self, topology: Topology, store: str, topic: TopicFormats, partitions: int) -> list[Store]:
        """The store in each partition."""
        table = owners_of(topology, store)[0]
        # The table alone, without the operators behind it.
        part = SubTopology(0, [*table.parents, table])
        tasks = [Task(topology, part) for _ in range(partitions)]
        options = SourceOptions.parse(
            {
                **self.connected,
                "subscribe": topic.topic,
                "includeHeaders": "true",
                "kafka.isolation.level": "read_committed",
            }
        )
        for records in _records(options, self._read_so_far(topic.topic)):
            for task, group in _dealt_out(records, tasks, topic.is_global):
                task.process_group(topic.name, group)
        return [task.stores[store] for task in tasks]

    def _read_so_far(self, topic: str) -> Offsets:
        found = SparkLogs(self.checkpoint).last_done_offsets(0)
        offsets = from_checkpoint(json.loads(found)) if found is not None else {}
        return {key: offset for key, offset in offsets.items() if key[0] == topic}


def _records(options: SourceOptions, until: Offsets) -> Iterator[pa.RecordBatch]:
    view = open_view(options)
    try:
        # A topic that was created again may hold less than the application has read.
        latest = view.latest()
        until = {key: min(end, latest[key]) for key, end in until.items() if key in latest}
        earliest = view.earliest(until.keys())
    finally:
        view.close()
    ranges = tuple(
        OffsetRange(*key, earliest[key], end) for key, end in sorted(until.items()) if end > earliest[key]
    )
    for batch in read_task(ranges, options):
        for start in range(0, len(batch), MOST_RECORDS):
            yield batch.slice(start, MOST_RECORDS)


def _dealt_out(records: pa.RecordBatch, tasks: list[Task], is_global: bool) -> Iterable[tuple[Task, Group]]:
    keys, values = (records.column(name).to_pylist() for name in ("key", "value"))
    times = milliseconds_of(records).tolist()
    places: list[list[int]] = [[] for _ in tasks]
    for number, key in enumerate(keys):
        if is_global:
            for numbers in places:
                numbers.append(number)
        elif key is not None:
            places[murmur2(key) % len(tasks)].append(number)
    for task, numbers in zip(tasks, places, strict=True):
        if numbers:
            mine = [[column[number] for number in numbers] for column in (keys, values, times)]
            yield task, Group(mine[0], mine[1], mine[2], [()] * len(numbers))
