"""The values that operators exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, compress, repeat
from typing import Any, NamedTuple, Protocol, runtime_checkable

from felice.dataclass import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record of a stream. In a table's changelog, the value is a `Change`."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Records by column. Groups share columns, so a column is never changed.

    `numbers` has, for each record, the position of its source record in the group that the task received.
    """

    keys: list[Any]
    values: list[Any]
    timestamps: list[int]
    headers: list[Headers]
    numbers: list[int]

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Group:
        """The group of these records, as a task receives it."""
        columns = [list(column) for column in zip(*records, strict=True)]
        return cls.given(*columns) if columns else cls.given([], [], [], [])

    @classmethod
    def given(
        cls, keys: list[Any], values: list[Any], timestamps: list[int], headers: list[Headers]
    ) -> Group:
        """The group of these columns, as a task receives it."""
        return cls(keys, values, timestamps, headers, list(range(len(keys))))

    def records(self) -> Iterator[Record]:
        """The records one by one."""
        return map(Record, self.keys, self.values, self.timestamps, self.headers)

    def each(self, process: Callable[[Record], Iterable[Record]]) -> Group:
        """What `process` returns for each record in turn."""
        found = [list(process(record)) for record in self.records()]
        made = Group.of(chain.from_iterable(found))
        return replace(made, numbers=_repeated(self.numbers, map(len, found)))

    def repeated(self, times: Sequence[int]) -> Group:
        """Each record as often as the number at its position says."""
        return Group(*(_repeated(column, times) for column in self._columns()))

    def with_keys(self, keys: list[Any]) -> Group:
        """The same records with other keys."""
        return replace(self, keys=keys)

    def with_values(self, values: list[Any]) -> Group:
        """The same records with other values."""
        return replace(self, values=values)

    def where(self, kept: list[bool]) -> Group:
        """The records for which `kept` is true."""
        if all(kept):
            return self
        return Group(*(list(compress(column, kept)) for column in self._columns()))

    def _columns(self) -> tuple[list[Any], ...]:
        return self.keys, self.values, self.timestamps, self.headers, self.numbers


def _repeated(column: list[Any], times: Iterable[int]) -> list[Any]:
    return list(chain.from_iterable(map(repeat, column, times)))


class Change(NamedTuple):
    """A table's new value of a key; None deletes the row. `old` is None unless an operator downstream needs old values.

    In a versioned table a change may be older than the key's row; `is_latest` is false then.
    """

    new: Any
    old: Any = None
    is_latest: bool = True


def changes_of(new: Iterable[Any], old: Iterable[Any] = repeat(None)) -> list[Change]:
    """A change of each pair of values, as `Change` makes them but in half the time."""
    return list(map(Change._make, zip(new, old, repeat(True))))  # `repeat` has no end.


class Window(NamedTuple):
    """A span of time. The end of a time window is exclusive, that of a session or sliding window inclusive."""

    start: int
    end: int


class Windowed(NamedTuple):
    """The key of a windowed table."""

    key: Any
    window: Window


class Timestamped(NamedTuple):
    """A table's row: the value and the time of the last record that changed it."""

    value: Any
    timestamp: int


class Operator(Protocol):
    """Takes records in order, and returns the results of each. It is deterministic, and all its state is in stores."""

    def process(self, record: Record) -> Iterable[Record]:
        """Returns the results of this record, in order."""


@runtime_checkable
class GroupOperator(Operator, Protocol):
    """An operator that also has a faster way through many records."""

    def process_all(self, group: Group) -> Group:
        """Returns what `process` returns for each record in turn."""


STREAM_TIME, WALL_CLOCK = "stream", "wall"


@runtime_checkable
class TimedOperator(Protocol):
    """An operator that also acts when time passes."""

    def clocks(self) -> frozenset[str]:
        """The clocks that it follows: STREAM_TIME, the task's, and WALL_CLOCK."""

    def on_time(self, clock: str, time: int) -> Iterable[Record]:
        """Returns the results of a clock's new time."""


Getter = Callable[[Any], Timestamped | None]
"""Looks a key up in a table."""
GetterAt = Callable[[Any, int], Timestamped | None]
"""Looks a key up in a versioned table, as it was at a time."""
