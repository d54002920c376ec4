"""Filters of a batch query that narrow what is fetched: by topic, partition, offset, and the earliest timestamp.

Keeps true: every record that passes the filters is still fetched. Spark applies all filters again, so a filter that is
            not understood here is left alone.
            A lower bound of the timestamp is used, because every record before the first one with this timestamp is
            older. An upper bound is not used: records need not be in the order of their timestamps. Nor is a lower
            bound before 1970, because brokers find no records by such a time.
Pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
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

T = TypeVar("T")

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
    match getattr(given, "attribute", None):
        case ("topic",) if (topics := _among(given, str)) is not None:
            return replace(found, topics=topics if found.topics is None else found.topics & topics)
        case ("partition",) if (interval := _interval(given)) is not None:
            return replace(found, partitions=found.partitions & interval)
        case ("offset",) if (interval := _interval(given)) is not None:
            return replace(found, offsets=found.offsets & interval)
        case ("timestamp",) if (first_ms := _first_millisecond(given)) is not None:
            return replace(found, from_timestamp_ms=max(first_ms, found.from_timestamp_ms or 0))
    return found


def _interval(given: Filter) -> Interval | None:
    if (among := _among(given, int)) is not None:
        return Interval(among=among)
    match given:
        case GreaterThan(value=int(bound)):
            return Interval(low=bound + 1)
        case GreaterThanOrEqual(value=int(bound)):
            return Interval(low=bound)
        case LessThan(value=int(bound)):
            return Interval(high=bound - 1)
        case LessThanOrEqual(value=int(bound)):
            return Interval(high=bound)
    return None


def _among(given: Filter, kind: type[T]) -> frozenset[T] | None:
    """The values of which a row must have one; None if the filter says no such values, or others than of this kind."""
    match given:
        case In(value=list() | tuple()):
            # No row equals null, so a null in the list lets no other row pass.
            values = [value for value in given.value if value is not None]
        case EqualTo() | EqualNullSafe():
            values = [given.value]
        case _:
            return None
    return frozenset(values) if all(isinstance(value, kind) for value in values) else None


def _first_millisecond(given: Filter) -> int | None:
    """The lower bound in milliseconds, rounded down as timestamps of records are; None if none is from 1970 on."""
    match given:
        case GreaterThan() | GreaterThanOrEqual():
            first = given.value
        case _ if times := _among(given, datetime.datetime):
            first = min(times)
        case _:
            return None
    if not isinstance(first, datetime.datetime) or first.tzinfo is None or first < _EPOCH:
        return None
    return (first - _EPOCH) // datetime.timedelta(milliseconds=1)
