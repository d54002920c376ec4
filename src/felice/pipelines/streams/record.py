"""The values that operators exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record of a stream. In a table's changelog, the value is a `Change`."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()


class RecordMetadata(NamedTuple):
    """Where a record was read."""

    topic: str
    partition: int
    offset: int


class Group(NamedTuple):
    """Records by column."""

    keys: list[Any]
    values: list[Any]
    timestamps: list[int]
    headers: list[Headers]
    metadata_of: Callable[[int], RecordMetadata | None] = lambda number: None
    """Where the record at a position was read; None behind a repartition."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> Group:
        """The group of these records."""
        columns = [list(column) for column in zip(*records, strict=True)] or [[], [], [], []]
        keys, values, timestamps, headers = columns
        return cls(keys, values, timestamps, headers)

    def records(self) -> Iterator[Record]:
        """The records one by one."""
        return map(Record, self.keys, self.values, self.timestamps, self.headers)

    def record(self, number: int) -> Record:
        """One record."""
        return Record(self.keys[number], self.values[number], self.timestamps[number], self.headers[number])


class Change(NamedTuple):
    """A table's new value of a key; None deletes the row. `old` is None unless an operator downstream needs old values.

    In a versioned table a change may be older than the key's row; `is_latest` is false then.
    """

    new: Any
    old: Any = None
    is_latest: bool = True


made = tuple.__new__
"""`made(Window, (start, end))` is `Window(start, end)` in half the time."""


def change_of(new: Any, old: Any = None) -> Change:
    """The latest change of a row, as `Change` makes it but in half the time."""
    return made(Change, (new, old, True))


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


LATEST_MS = ((1 << 63) - 1) // 1000
"""The greatest timestamp: Spark counts microseconds in 64 bits."""

LATE, NULL, TIME = "late", "null", "time"


class Dropped(Exception):
    """Raised by an operator for a record that it leaves out: one that came too `LATE`, one with a `NULL` key or value
    that it cannot use, or a result without a valid `TIME`. None of them is an error of the record; all are counted.
    """

    def __init__(self, reason: str, timestamp: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.timestamp = reason, timestamp


Push = Callable[[Any, Any, int, Headers], None]
"""Takes a record: key, value, timestamp and headers. It raises no error but one that `Failed` has answered."""
Failed = Callable[[BaseException, Any, Any], None]
"""Answers an error of a node, which has this key and value: drops the record at this node, or raises an error that
stops the application."""


@runtime_checkable
class Operator(Protocol):
    """Takes records in order, and returns the results of each. It is deterministic, and all its state is in stores."""

    def process(self, record: Record) -> Iterable[Record]:
        """Returns the results of this record, in order. Each is passed on before the next is asked for."""


class Step(NamedTuple):
    """What an operator does with a record, as a statement about `key`, `value`, `timestamp` and `headers`.

    The operator's functions are in braces: `value = {function}(key, value)`. `fusing` makes functions of steps.
    """

    statement: str = ""
    names: Mapping[str, Any] = MappingProxyType({})
    only_if: str = ""
    """A condition: other records are dropped."""
    drops: Dropped | None = None
    """Counts the records that a condition drops. Those that belong to others, such as another branch, do not count."""
    then: str = ""
    """The statement around what follows: `if passes`, or `for value in found`."""
    results_if: str = ""
    """A condition for each result, with `drops`: others are dropped."""
    loop: str = ""
    """Instead of `statement`: `for value in {function}(key, value)`. The function may be a generator, which goes on
    when what follows has ended. The step answers its errors.
    """
    topic: str | None = None
    """Sends `key_bytes` and `value_bytes` to this topic: adds them to `sent`."""
    sent: Any = None
    may_skip: bool = False
    """Whether the statement sends nothing for some records."""
    targets: str = ""
    """The names that the statement sets; without it, those before the first `=` of the statement."""

    def sets(self, name: str) -> bool:
        """Whether what follows has another `timestamp`, or other `headers`."""
        loops = (one.partition(" in ")[0] for one in (self.then, self.loop))
        return any(name in targets for targets in (self.targets or self.statement.partition("=")[0], *loops))


class SteppedOperator(Protocol):
    """An operator in a form that takes less time: without a call, and without a `Record` for each record."""

    def step(self) -> Step:
        """What it does with a record. Its names are used by one task only."""


AnyOperator = Operator | SteppedOperator

STREAM_TIME, WALL_CLOCK = "stream", "wall"


@runtime_checkable
class TimedOperator(Protocol):
    """An operator that also acts when time passes."""

    def clocks(self) -> frozenset[str]:
        """The clocks that it follows: STREAM_TIME, the task's, and WALL_CLOCK."""

    def on_time(self, clock: str, time: int) -> Iterable[Record]:
        """Returns the results of a clock's new time."""


@runtime_checkable
class BatchedOperator(Protocol):
    """An operator that keeps something for one batch only."""

    def begin_batch(self) -> None:
        """The next record is of another batch."""


@runtime_checkable
class EndingOperator(BatchedOperator, Protocol):
    """An operator that also acts at the end of a batch."""

    def end_batch(self) -> Iterable[Record]:
        """Returns the results of the batch."""


class RunningTask(Protocol):
    """What an operator may ask its task."""

    def record_metadata(self) -> RecordMetadata | None:
        """Where the current record was read; None in timers, and behind a repartition."""

    def wall_clock_ms(self) -> int:
        """Milliseconds since 1970."""


@runtime_checkable
class AskingOperator(Protocol):
    """An operator that asks its task."""

    def in_task(self, task: RunningTask) -> None:
        """Called once, before the first record."""


Getter = Callable[[Any], Timestamped | None]
"""Looks a key up in a table."""
GetterAt = Callable[[Any, int], Timestamped | None]
"""Looks a key up in a versioned table, as it was at a time."""
