"""Reads the stores of an application from its checkpoint, while it runs or after it has stopped.

Keeps true: all partitions are read as they were after one batch that Spark has finished. The results of this batch
            and of earlier batches are in the topics, and no later batch has changed the stores.
How:        Spark's commit log names the last finished batch. The files of a version are removed only some batches
            later. A reader that was too slow for that begins again, with the last finished batch of that moment.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from felice.pipelines.streams.app import App
from felice.pipelines.streams.on_spark.changes import planned
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError, Description
from felice.pipelines.streams.on_spark.large_state import STATE_MEMORY_MB
from felice.pipelines.streams.on_spark.state import StateError, files_of_task
from felice.pipelines.streams.on_spark.stored_task import ReadersMemory, StoredTask
from felice.pipelines.streams.stores import Store
from felice.pipelines.streams.topology import SubTopology, TopologyError
from felice.pipelines.streams.views import StoreView


class StoredState:
    """The stores of an application, read from its checkpoint. The application may be running or stopped.

    The first call of `store` reads the whole state of its sub-topology; later calls read only the changes since then.
    If the rows of a task need more than the task's share of `state_memory_mb`, they are kept on disk, in a temporary
    directory below `local_state`.
    """

    def __init__(
        self,
        app: App,
        checkpoint: str | Path,
        *,
        state_memory_mb: int = STATE_MEMORY_MB,
        local_state: str | Path | None = None,
    ) -> None:
        self._app, self._checkpoint = app, Checkpoint(Path(checkpoint).absolute())
        self._description: Description | None = None
        self._memory_of = partial(
            ReadersMemory,
            state_memory_mb=state_memory_mb,
            local_state=None if local_state is None else Path(local_state),
        )
        self._memory = self._memory_of(1)  # Raises an error for a wrong `state_memory_mb`.
        self._tasks: dict[tuple[int, int], StoredTask] = {}

    @property
    def last_batch(self) -> int:
        """The last batch that is finished; -1 before the first."""
        return self._checkpoint.last_batches()[1]

    def store(self, name: str) -> StoreView:
        """The store as it is after the last finished batch. Call again to see later batches."""
        part = self._part(name)
        while True:
            description, batch, held = self._checked(), self.last_batch, dict(self._tasks)
            try:
                places = [self._stores(part, place, batch) for place in range(description.partitions)]
            except StateError:
                # Either the application has processed more batches and removed these files, or the files are lost.
                is_old = (
                    bool(held) or batch != self.last_batch or self._checkpoint.description() != description
                )
                self._forget()
                if not is_old:
                    raise
                continue
            return StoreView(name, [stores[name] for stores in places], batch)

    def _part(self, name: str) -> SubTopology:
        for part in self._app.topology.parts():
            if name in part.stores:
                return part
        raise TopologyError(f"{self._app.name} has no store {name!r}")

    def _checked(self) -> Description:
        found = self._checkpoint.description()
        if found is None or found.application != self._app.name:
            raise CheckpointError(f"{self._checkpoint.path} is no checkpoint of {self._app.name}")
        if found != self._description:
            change = planned(self._app, self._checkpoint)
            if change is not None and change.is_needed:
                raise CheckpointError(
                    f"{self._checkpoint.path} has the state of another version of {self._app.name}, with other stores"
                )
            self._forget()  # Another number of partitions, or other directories.
            self._description = found
            parts = sum(part.is_placed for part in self._app.topology.parts())
            self._memory = self._memory_of(found.partitions * parts)
        return found

    def _forget(self) -> None:
        for task in self._tasks.values():
            task.close()
        self._tasks.clear()

    def _stores(self, part: SubTopology, place: int, batch: int) -> dict[str, Store]:
        assert self._description is not None, "checked before"
        task = self._tasks.get((part.number, place))
        if task is None:
            task = StoredTask(
                lambda: self._app.topology.made_stores(part),
                files_of_task(self._checkpoint, self._description, part.number, place),
                self._memory,
            )
            self._tasks[part.number, place] = task
        return task.at(batch)
