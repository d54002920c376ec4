"""Filters of a batch query that narrow what is fetched: by topic, partition, offset, and the earliest timestamp.

Keeps true: every record that passes the filters is still fetched. Spark applies all filters again, so a filter that is
            not understood here is left alone.
            A lower bound of the timestamp is used, because every record before the first one with this timestamp is
            older. An upper bound is not used: records need not be in the order of their timestamps.
Pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from felice.dataclass import dataclass
from felice.pipelines.spark.offsets import Partition

_HIGHEST = (1 << 63) - 1
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `low` to `high`, both inclusive; with `among`, only those in it."""

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
    """The topics, partitions, offsets and times that can pass the filters of a query."""

    topics: frozenset[str] | None = None
    partitions: Interval = Interval()
    offsets: Interval = Interval()
    from_timestamp_ms: int | None = None

    def has(self, key: Partition) -> bool:
        """Whether a record of this partition can pass the filters on topic and partition."""
        return (self.topics is None or key[0] in self.topics) and key[1] in self.partitions

    def clip(self, start: int, end: int) -> tuple[int, int]:
        """Returns the part of `start`..`end` (exclusive) that can pass the filters on the offset; empty if none can."""
        among = self.offsets.among
        low = max(self.offsets.low, min(among, default=end) if among is not None else 0)
        high = min(self.offsets.high, max(among, default=-1) if among is not None else _HIGHEST)
        return max(start, low), min(end, high + 1)


def narrowed(filters: Iterable[Filter]) -> Narrowed:
    """Returns the part of the topics in which a record can pass all of the filters."""
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
        case "partition" if (interval := _interval(given)) is not None:
            return replace(found, partitions=found.partitions & interval)
        case "offset" if (interval := _interval(given)) is not None:
            return replace(found, offsets=found.offsets & interval)
        case "timestamp" if isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual):
            if (first_ms := _milliseconds(value)) is not None:
                return replace(found, from_timestamp_ms=max(first_ms, found.from_timestamp_ms or 0))
    return found


def _interval(given: Filter) -> Interval | None:
    match given:
        case EqualTo():
            return Interval(given.value, given.value)
        case GreaterThan():
            return Interval(low=given.value + 1)
        case GreaterThanOrEqual():
            return Interval(low=given.value)
        case LessThan():
            return Interval(high=given.value - 1)
        case LessThanOrEqual():
            return Interval(high=given.value)
        case In():
            return Interval(among=frozenset(given.value))
    return None


def _milliseconds(value: object) -> int | None:
    """Rounds down to milliseconds, as timestamps of records are; None if `value` is no time with a zone."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    return max(0, (value - _EPOCH) // datetime.timedelta(milliseconds=1))
