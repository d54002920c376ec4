"""An operator that gives records to a generated function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Headers, RecordMetadata, RunningTask, Step

RowFunction = Callable[[Any, Any, int, Headers], Iterable[tuple[Any, Any, int]]]
"""Takes a record, and returns keys, values and timestamps of its results."""
MetadataOf = Callable[[], RecordMetadata | None]


@dataclass(slots=True)
class Rows:
    """Replaces each record by the results of a function. `make` gets a function that says where the record was read."""

    make: Callable[[MetadataOf], RowFunction]
    _task: RunningTask | None = None

    def in_task(self, task: RunningTask) -> None:
        """The task that knows where records were read."""
        self._task = task

    def step(self) -> Step:
        """The results, in order."""
        return Step(
            "found = {run}(key, value, timestamp, headers)",
            {"run": self.make(self._metadata)},
            then="for key, value, timestamp in found",
        )

    def _metadata(self) -> RecordMetadata | None:
        return None if self._task is None else self._task.record_metadata()
