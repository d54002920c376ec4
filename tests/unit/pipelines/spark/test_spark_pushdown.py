from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from felice.pipelines.spark.pushdown import Narrowed, narrowed

KINDS: dict[Any, Any] = {
    EqualTo: lambda number, value: number == value,
    GreaterThan: lambda number, value: number > value,
    GreaterThanOrEqual: lambda number, value: number >= value,
    LessThan: lambda number, value: number < value,
    LessThanOrEqual: lambda number, value: number <= value,
}
numbers = st.integers(-2, 12)
conditions = st.lists(st.tuples(st.sampled_from(sorted(KINDS, key=str)), numbers), max_size=4)


@given(conditions, conditions, st.none() | st.frozensets(numbers, max_size=4))
def test_no_record_that_passes_the_filters_is_left_out(
    on_partition: list[Any], on_offset: list[Any], among: frozenset[int] | None
) -> None:
    filters = [kind(("partition",), value) for kind, value in on_partition]
    filters += [kind(("offset",), value) for kind, value in on_offset]
    if among is not None:
        filters.append(In(("offset",), tuple(among)))
    left = narrowed(filters)
    for partition in range(11):
        passes = all(KINDS[kind](partition, value) for kind, value in on_partition)
        assert left.has(("t", partition)) == passes
    start, end = left.clip(0, 10)
    passing = [
        offset
        for offset in range(10)
        if all(KINDS[kind](offset, value) for kind, value in on_offset) and (among is None or offset in among)
    ]
    if passing:
        assert start <= passing[0] and passing[-1] < end
    if among is None:
        assert passing == list(range(start, end))


def test_topics_are_chosen() -> None:
    left = narrowed([In(("topic",), ("a", "b")), EqualTo(("topic",), "b")])
    assert [left.has((topic, 0)) for topic in ("a", "b", "c")] == [False, True, False]


NOON = datetime.datetime(2026, 5, 1, 12, 0, 0, 1500, tzinfo=datetime.UTC)
NOON_MS = 1777636800001


def test_the_earliest_timestamp_is_rounded_down_to_milliseconds() -> None:
    assert narrowed([GreaterThan(("timestamp",), NOON)]).from_timestamp_ms == NOON_MS
    earlier = NOON - datetime.timedelta(hours=1)
    both = [GreaterThanOrEqual(("timestamp",), NOON), EqualTo(("timestamp",), earlier)]
    assert narrowed(both).from_timestamp_ms == NOON_MS


@pytest.mark.parametrize(
    "given_filter",
    [
        LessThan(("timestamp",), NOON),
        GreaterThan(("timestamp",), NOON.replace(tzinfo=None)),
        Not(EqualTo(("offset",), 3)),
        IsNotNull(("offset",)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("offset",), None),
    ],
)
def test_what_cannot_narrow_is_left_to_spark(given_filter: Any) -> None:
    assert narrowed([given_filter]) == Narrowed()
