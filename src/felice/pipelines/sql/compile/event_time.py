"""The time of a record, from a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from felice.pipelines.java.date_formats import date_format
from felice.pipelines.java.zones import fixed
from felice.pipelines.sql.catalogue import KEY, EventTime, SourceInfo

TimeOf = Callable[[Any], int | None]


def time_function(event_time: EventTime) -> TimeOf:
    """The function from a column's value to milliseconds since 1970; None drops the record. It raises ValueError for a
    text that does not fit the pattern.
    """
    read = None if event_time.pattern is None else _reader(event_time.pattern)

    def time(value: Any) -> int | None:
        if value is None:
            return None
        found: int = value if read is None else read(value)
        return found if found >= 0 else None

    return time


def _reader(pattern: str) -> Callable[[str], int]:
    made, utc = date_format(pattern), fixed(0)

    def read(text: str) -> int:
        found = made.read(text)
        return (found.zone or utc).ms(found.days(), found.ns())

    return read


def record_time(
    source: SourceInfo, event_time: EventTime, value_places: Sequence[int] | None = None
) -> Callable[[Any, Any], int]:
    """The function from a record's key and value to its time. It raises ValueError for a record without one.
    `value_places` are the value columns that values have; None: all.
    """
    column = next(one for one in source.columns if one.name == event_time.column)
    place = source.of_role(column.role).index(column)
    function, is_key = time_function(event_time), column.role == KEY
    if not is_key and value_places is not None:
        place = value_places.index(place)

    def time(key: Any, value: Any) -> int:
        row = (key.key if source.window is not None else key) if is_key else value
        found = None if row is None else function(row[place])
        if found is None:
            raise ValueError(f"column {column.name} has no time")
        return found

    return time
