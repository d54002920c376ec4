"""The values that operators exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, runtime_checkable

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record of a stream. In a table's changelog, the value is a `Change`."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()


class Change(NamedTuple):
    """A table's new value of a key; None deletes. `old` is None unless an operator downstream needs old values.

    Of a versioned table, a change may be older than the key's row: then it is not the latest.
    """

    new: Any
    old: Any = None
    is_latest: bool = True


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
    """Takes records in order, and returns what each changes. Deterministic; all its state is in stores."""

    def process(self, record: Record) -> Iterable[Record]:
        """Returns the records that follow from this one, in order."""


STREAM_TIME, WALL_CLOCK = "stream", "wall"


@runtime_checkable
class TimedOperator(Protocol):
    """An operator that also acts when time passes."""

    def clocks(self) -> frozenset[str]:
        """The clocks that it follows: STREAM_TIME, the task's, and WALL_CLOCK."""

    def on_time(self, clock: str, time: int) -> Iterable[Record]:
        """Returns the records that follow from a clock's time."""


Getter = Callable[[Any], Timestamped | None]
"""Looks a key up in a table."""
GetterAt = Callable[[Any, int], Timestamped | None]
"""Looks a key up in a versioned table, as it was at a time."""
