"""The tasks of an App in memory, without Spark: each record and what follows from it, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from felice.pipelines.streams.on_spark.directory import Checkpoint, Description
from felice.pipelines.streams.on_spark.state import files_of_task
from felice.pipelines.streams.stores import Store
from felice.pipelines.streams.task import Task, TopicRecord
from felice.records.kernels import murmur2
from felice.streams import App


def written(
    tasks_of: Callable[[TopicRecord], Iterable[Task]], row: tuple[str, str | None, str | None, int]
) -> list[TopicRecord]:
    """What tasks write for a record: its topic, key, value and timestamp. `tasks_of` has the tasks of its partition."""
    topic, key, value, timestamp = row
    out, texts = [], (None if one is None else one.encode() for one in (key, value))
    waiting = [TopicRecord(topic, *texts, timestamp)]
    while waiting:
        record = waiting.pop(0)
        reading = [task for task in tasks_of(record) if record.topic in task.topics]
        out += [] if reading else [record]
        waiting += [sent for task in reading for sent in task.process(record)]
    return out


class TasksInMemory:
    """The tasks of each partition, by partition and sub-topology."""

    def __init__(self, app: App, partitions: int) -> None:
        self.app, self.parts = app, app.topology.parts()
        self.tasks = [[Task(app.topology, part) for part in self.parts] for _ in range(partitions)]
        sources = [one for part in self.parts for one in part.sources]
        self._everywhere = {one.topic for one in sources if one.is_global}

    def run(self, rows: Iterable[tuple[str, str | None, str | None, int]]) -> list[TopicRecord]:
        """What the App writes for records: topic, key, value and timestamp."""
        return [sent for row in rows for sent in written(self._tasks_of, row)]

    def save(self, checkpoint: Checkpoint, description: Description, version: int) -> None:
        """Write the state."""
        for part, place, stores in self._stores():
            files_of_task(checkpoint, description, part, place).write_first(version, stores)

    def load(self, checkpoint: Checkpoint, version: int) -> None:
        """Read the state that the checkpoint describes."""
        description = checkpoint.description()
        assert description is not None
        for part, place, stores in self._stores():
            files_of_task(checkpoint, description, part, place).load(version, stores)

    def _tasks_of(self, record: TopicRecord) -> list[Task]:
        if record.topic in self._everywhere:
            return [task for tasks in self.tasks for task in tasks]
        return self.tasks[0 if record.key is None else murmur2(record.key) % len(self.tasks)]

    def _stores(self) -> Iterable[tuple[int, int, dict[str, Store]]]:
        for place, tasks in enumerate(self.tasks):
            for part, task in zip(self.parts, tasks, strict=True):
                if part.is_placed:
                    yield part.number, place, task.stores


def by_topic(records: Iterable[TopicRecord]) -> dict[str, list[Any]]:
    """The records of each topic."""
    found: dict[str, list[Any]] = {}
    for record in records:
        found.setdefault(record.topic, []).append(record)
    return found
