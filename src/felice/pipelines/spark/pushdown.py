"""Filters of a batch query that narrow what is fetched: by topic, partition, offset, and the earliest timestamp.

Keeps true: a record that passes the filters is in what remains. Spark applies all filters again, so a filter that is
            not understood here is left alone.
PURE. A latest timestamp does not narrow anything: records need not be in the order of their timestamps, while every
record before the first one of a timestamp is older.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from felice.pipelines.spark.offsets import Partition

_HIGHEST = (1 << 63) - 1
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `low` to `high`, both included, and where `among` is given, of those only."""

    low: int = 0
    high: int = _HIGHEST
    among: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high and (self.among is None or number in self.among)

    def __and__(self, other: Interval) -> Interval:
        both = [given for given in (self.among, other.among) if given is not None]
        among = frozenset.intersection(*both) if both else None
        return Interval(max(self.low, other.low), min(self.high, other.high), among)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What the filters of a query leave."""

    topics: frozenset[str] | None = None
    partitions: Interval = Interval()
    offsets: Interval = Interval()
    from_timestamp_ms: int | None = None

    def has(self, key: Partition) -> bool:
        return (self.topics is None or key[0] in self.topics) and key[1] in self.partitions

    def clip(self, start: int, end: int) -> tuple[int, int]:
        among = self.offsets.among
        low = max(self.offsets.low, min(among, default=end) if among is not None else 0)
        high = min(self.offsets.high, max(among, default=-1) if among is not None else _HIGHEST)
        return max(start, low), min(end, high + 1)


def narrowed(filters: Iterable[Filter]) -> Narrowed:
    """All filters hold together."""
    found = Narrowed()
    for given in filters:
        found = _narrow(found, given)
    return found


def _narrow(found: Narrowed, given: Filter) -> Narrowed:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    value = getattr(given, "value", None)
    if value is None or len(attribute) != 1:
        return found
    match attribute[0]:
        case "topic" if isinstance(given, EqualTo | In):
            topics = frozenset(value if isinstance(given, In) else [value])
            return replace(found, topics=topics if found.topics is None else found.topics & topics)
        case "partition" if (interval := _interval(given, value)) is not None:
            return replace(found, partitions=found.partitions & interval)
        case "offset" if (interval := _interval(given, value)) is not None:
            return replace(found, offsets=found.offsets & interval)
        case "timestamp" if isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual):
            if (first_ms := _milliseconds(value)) is not None:
                return replace(found, from_timestamp_ms=max(first_ms, found.from_timestamp_ms or 0))
    return found


def _interval(given: Filter, value: Any) -> Interval | None:
    match given:
        case EqualTo():
            return Interval(value, value)
        case GreaterThan():
            return Interval(low=value + 1)
        case GreaterThanOrEqual():
            return Interval(low=value)
        case LessThan():
            return Interval(high=value - 1)
        case LessThanOrEqual():
            return Interval(high=value)
        case In():
            return Interval(among=frozenset(value))
    return None


def _milliseconds(value: Any) -> int | None:
    """At or before the moment; records have whole milliseconds."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    return max(0, (value - _EPOCH) // datetime.timedelta(milliseconds=1))
