from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import VariantVal

from felice.pipelines.spark.filter_values import take_any_value
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


NULL_OR_NUMBER = st.none() | numbers


@given(st.lists(NULL_OR_NUMBER, max_size=4), st.sampled_from(["partition", "offset"]))
def test_a_null_in_a_list_lets_no_other_record_pass_and_holds_none_back(
    among: list[int | None], column: str
) -> None:
    assert narrowed([In((column,), tuple(among))]) == narrowed(
        [In((column,), tuple(value for value in among if value is not None))]
    )


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual])
@pytest.mark.parametrize("years", [0.0001, 1, 70, 1969])
def test_a_bound_before_1970_narrows_nothing(kind: Any, years: float) -> None:
    before = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) - datetime.timedelta(days=365 * years)
    assert narrowed([kind(("timestamp",), before)]) == Narrowed()


def test_the_earliest_time_of_a_list_is_the_bound() -> None:
    later = NOON + datetime.timedelta(days=1)
    assert narrowed([In(("timestamp",), (later, None, NOON))]).from_timestamp_ms == NOON_MS
    assert narrowed([In(("timestamp",), (None,))]) == Narrowed()


@pytest.mark.parametrize("column", ["topic", "partition", "offset", "timestamp"])
@pytest.mark.parametrize("kind", [EqualTo, EqualNullSafe, GreaterThan, LessThanOrEqual, In])
@pytest.mark.parametrize("value", [None, 2.5, b"x", datetime.date(2026, 5, 1), datetime.datetime.min])
def test_a_value_of_another_kind_narrows_nothing(column: str, kind: Any, value: Any) -> None:
    assert narrowed([kind((column,), value)]) == Narrowed()
    if kind is In and value is not None:
        assert narrowed([kind((column,), (value,))]) == Narrowed()


@pytest.mark.parametrize(
    "microseconds", [253_402_300_800_000_000, -62_200_000_000_000_000, 2**63 - 1, -(2**63)]
)
def test_a_time_that_python_does_not_have_reaches_the_reader_as_none(
    microseconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.worker import data_source_pushdown_filters as worker

    monkeypatch.setattr(worker, "VariantVal", VariantVal)
    take_any_value()
    # A variant's header for a timestamp, and its metadata without names.
    value = base64.b64encode(bytes([12 << 2]) + microseconds.to_bytes(8, "little", signed=True)).decode()
    document = {
        "name": "GreaterThan",
        "columnPath": ["timestamp"],
        "value": {"value": value, "metadata": base64.b64encode(bytes([1, 0, 0])).decode()},
        "isNegated": False,
    }
    found = worker.deserializeFilter(document)
    assert found == GreaterThan(("timestamp",), None)
    assert narrowed([found]) == Narrowed()
