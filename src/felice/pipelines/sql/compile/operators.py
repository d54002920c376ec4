"""An operator that gives records to a generated function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Headers, RecordMetadata, RunningTask, Step

RowFunction = Callable[[Any, Any, int, Headers], Any]
"""Takes a record, and returns its results in a `Shape`."""
RecordsFunction = Callable[[Any, Any, int, Headers], Iterable[tuple[Any, Any, int]]]
"""The same in the shape `RECORDS`: keys, values and timestamps."""
MetadataOf = Callable[[], RecordMetadata | None]


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of the results of a generated function. Forms with fewer parts are faster."""

    targets: str
    """The names that the results are assigned to."""
    then: str
    """The statement around what follows."""
    _result: str
    nothing: str
    """The text that stands for no result."""

    def result(self, key: str, value: str, timestamp: str = "timestamp") -> str:
        """The text of one result."""
        return self._result.format(key=key, value=value, timestamp=timestamp)


VALUE = Shape("value", "", "{value}", "")
"""Another value for each record."""
VALUE_IF = Shape("value, passes", "if passes", "{value}, True", "None, False")
"""Another value, or nothing."""
RECORD_IF = Shape("key, value, passes", "if passes", "{key}, {value}, True", "None, None, False")
"""Another key and value, or nothing."""
RECORDS = Shape("found", "for key, value, timestamp in found", "(({key}, {value}, {timestamp}),)", "()")
"""Any number of records."""


class RowCode(Protocol):
    """Makes a generated function. `metadata` returns where the current record was read."""

    def __call__(self, metadata: MetadataOf) -> RowFunction:
        """The function."""

    def statement(self, targets: str, metadata: MetadataOf) -> tuple[str, dict[str, Any]] | None:
        """The text that assigns the results to targets, and its names; None if the code must be a function."""


@dataclass(slots=True)
class Rows:
    """Replaces each record by the results of a function."""

    make: RowCode
    shape: Shape
    _task: RunningTask | None = None

    def in_task(self, task: RunningTask) -> None:
        """The task that knows where records were read."""
        self._task = task

    def step(self) -> Step:
        """The results, in order."""
        targets, then = self.shape.targets, self.shape.then
        inline = self.make.statement(targets, self._metadata)
        if inline is not None:
            statement, names = inline
            return Step(statement, names, then=then, targets=targets)
        call = f"{targets} = {{run}}(key, value, timestamp, headers)"
        return Step(call, {"run": self.make(self._metadata)}, then=then)

    def _metadata(self) -> RecordMetadata | None:
        return None if self._task is None else self._task.record_metadata()
