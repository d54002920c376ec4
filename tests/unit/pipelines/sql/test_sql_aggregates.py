"""Aggregate functions: their values, and what they keep true for all rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal as Number
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.pipelines.sql.expressions.calls import chosen, result_type
from felice.pipelines.sql.expressions.code import Code
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.counting import MOST_HASHES, CountRows, CountValues
from felice.pipelines.sql.functions.table import AGGREGATE, AggregateError
from felice.pipelines.sql.syntax.errors import BEGIN, SqlError
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

NAN = math.nan
MONEY = Decimal(4, 2)
CONSTANTS: Mapping[type, SqlType] = {int: INTEGER, bool: BOOLEAN, type(None): INTEGER}
TABLES_TOO = {
    "ATTR",
    "AVG",
    "COLLECT_LIST",
    "CORRELATION",
    "COUNT",
    "HISTOGRAM",
    "STDDEV_SAMP",
    "STDDEV_SAMPLE",
    "SUM",
    "SUM_LIST",
}


class Made(NamedTuple):
    """An aggregate function of these types, with the type of its result."""

    aggregate: Any
    is_ordered: bool
    result: SqlType


def made(name: str, types: Sequence[SqlType], *constants: Any, **given: str) -> Made:
    all_types = [*types, *(CONSTANTS[type(one)] for one in constants)]
    function, bound = chosen(built_in(), name, all_types, BEGIN)
    codes = [Code("", one) for one in types] + [
        Code("", CONSTANTS[type(one)], constant=one, is_literal=True) for one in constants
    ]
    found = result_type(function, bound, all_types, codes)
    names = {f"ksql.functions.{key}.limit": value for key, value in given.items()}
    return Made(function.implementation(all_types, constants, names), function.is_ordered, found)


def folded(one: Made, rows: Sequence[tuple[Any, ...]], numbers: Sequence[int] | None = None) -> Any:
    """The state after rows."""
    state = one.aggregate.initial()
    for number, row in zip(numbers or range(len(rows)), rows, strict=True):
        state = one.aggregate.add(state, *((number, *row) if one.is_ordered else row))
    return state


def column(*values: Any) -> list[tuple[Any, ...]]:
    return [(one,) for one in values]


@pytest.mark.parametrize(
    ("name", "types", "constants", "rows", "expected"),
    [
        ("COUNT", [], (), [(), ()], 2),
        ("COUNT", [STRING], (), column("a", None, "a"), 2),
        ("COUNT_DISTINCT", [INTEGER], (), column(1, None, 2, 1), 2),
        ("COUNT_DISTINCT", [Map(STRING, INTEGER)], (), column({"a": 1, "b": 2}, {"b": 2, "a": 1}), 1),
        ("COUNT_DISTINCT", [DOUBLE], (), column(NAN, float("nan"), 0.0, -0.0), 3),
        ("SUM", [INTEGER], (), column(2**31 - 1, None, 1), -(2**31)),
        ("SUM", [BIGINT], (), column(2**63 - 1, 1), -(2**63)),
        ("SUM", [DOUBLE], (), column(0.5, None, 0.25), 0.75),
        ("SUM", [MONEY], (), column(Number("12.30"), None, Number("0.05")), Number("12.35")),
        ("SUM_LIST", [Array(INTEGER)], (), column([1, None, 2], None, [], [2**31 - 1]), -(2**31) + 2),
        ("SUM_LIST", [Array(DOUBLE)], (), column([0.5], [0.25]), 0.75),
        ("AVG", [INTEGER], (), column(1, None, 2), 1.5),
        ("AVG", [INTEGER], (), column(2**31 - 1, 1), -(2.0**30)),
        ("AVG", [BIGINT], (), [], 0.0),
        ("AVG", [DOUBLE], (), column(0.5, 1.0), 0.75),
        ("MAX", [STRING], (), column("b", None, "c", "a"), "c"),
        ("MAX", [DOUBLE], (), column(1.0, NAN, math.inf), NAN),
        ("MAX", [BYTES], (), column(b"\x7f", b"\x80"), b"\x7f"),
        ("MAX", [INTEGER], (), column(None), None),
        ("MIN", [MONEY], (), column(Number("1.50"), Number("-1.00")), Number("-1.00")),
        ("MIN", [DOUBLE], (), column(0.0, -0.0), -0.0),
        ("MIN", [TIMESTAMP], (), column(5, 3, None), 3),
        ("TOPK", [INTEGER], (3,), column(0, 100, None, 99, 7, 100), [100, 100, 99]),
        ("TOPK", [STRING], (2,), column("a", "b"), ["b", "a"]),
        (
            "TOPK",
            [INTEGER, STRING],
            (3,),
            [(0, "zero"), (100, "one"), (None, "none"), (99, "two"), (100, "four"), (99, None)],
            [(100, "one"), (100, "four"), (99, "two")],
        ),
        ("TOPK", [DOUBLE, INTEGER, STRING], (1,), [(0.5, 1, "a"), (0.5, 2, "b")], [(0.5, 1, "a")]),
        ("TOPKDISTINCT", [INTEGER], (2,), column(3, 9, 9, None, 5, 3), [9, 5]),
        ("EARLIEST_BY_OFFSET", [INTEGER], (), column(None, 4, 5), 4),
        ("EARLIEST_BY_OFFSET", [INTEGER], (False,), column(None, 4, 5), None),
        ("EARLIEST_BY_OFFSET", [INTEGER], (2,), column(None, 4, 5, 6), [4, 5]),
        ("EARLIEST_BY_OFFSET", [INTEGER], (2, False), column(None, 4, 5), [None, 4]),
        ("LATEST_BY_OFFSET", [Array(INTEGER)], (), column([1], [2], None), [2]),
        ("LATEST_BY_OFFSET", [INTEGER], (False,), column(1, None), None),
        ("LATEST_BY_OFFSET", [INTEGER], (True,), column(1, None), 1),
        ("LATEST_BY_OFFSET", [INTEGER], (2,), column(1, 2, None, 3), [2, 3]),
        ("LATEST_BY_OFFSET", [INTEGER], (2, False), column(1, 2, None), [2, None]),
        ("LATEST_BY_OFFSET", [INTEGER], (), [], None),
        ("COLLECT_LIST", [INTEGER], (), column(3, None, 3), [3, None, 3]),
        ("COLLECT_SET", [Array(INTEGER)], (), column([3], None, [1], [3], None), [[3], None, [1]]),
        ("HISTOGRAM", [STRING], (), column("a", "b", None, "a"), {"a": 2, "b": 1, "null": 1}),
        ("ATTR", [STRING], (), column("a", "a"), "a"),
        ("ATTR", [STRING], (), column("a", None), None),
        ("ATTR", [STRING], (), [], None),
        # As ksqlDB's tests expect: STDDEV_SAMP is the variance.
        ("STDDEV_SAMP", [INTEGER], (), column(0, 10, None, 7, 6), 17.583333333333332),
        ("STDDEV_SAMPLE", [INTEGER], (), column(50, 10, 3), 25.357444666211933),
        ("STDDEV_SAMPLE", [DOUBLE], (), column(-1.8, 2.3, 100.2), 57.74256084841869),
        ("STDDEV_SAMPLE", [BIGINT], (), column(2**31), 0.0),
        ("CORRELATION", [DOUBLE, DOUBLE], (), [(1.0, 2.0), (None, 1.0), (2.0, 4.0), (3.0, None)], 1.0),
        ("CORRELATION", [DOUBLE, DOUBLE], (), [(1.0, 3.0), (2.0, 2.0), (4.0, 0.0)], -1.0),
        ("CORRELATION", [DOUBLE, DOUBLE], (), [(1.0, 2.0)], NAN),
        ("CORRELATION", [DOUBLE, DOUBLE], (), [], NAN),
    ],
)
def test_values(
    name: str, types: list[SqlType], constants: tuple[Any, ...], rows: list[tuple[Any, ...]], expected: Any
) -> None:
    one = made(name, types, *constants)
    found = one.aggregate.result(folded(one, rows))
    assert repr(found) == repr(expected)
    assert holds(one.result, found)


@pytest.mark.parametrize(
    ("name", "types", "constants", "type_"),
    [
        ("SUM", [MONEY], (), MONEY),
        ("SUM_LIST", [Array(BIGINT)], (), BIGINT),
        ("MAX", [MONEY], (), MONEY),
        ("MIN", [DATE], (), DATE),
        ("COLLECT_SET", [TIME], (), Array(TIME)),
        (
            "TOPK",
            [INTEGER, STRING, MONEY],
            (1,),
            Array(Struct((("sort_col", INTEGER), ("col0", STRING), ("col1", MONEY)))),
        ),
    ],
)
def test_types(name: str, types: list[SqlType], constants: tuple[Any, ...], type_: SqlType) -> None:
    assert made(name, types, *constants).result == type_


@pytest.mark.parametrize(
    ("name", "types", "constants", "reason"),
    [
        ("MAX", [BOOLEAN, INTEGER], (), r"function 'MAX' does not accept parameters \(BOOLEAN, INTEGER\)"),
        ("MAX", [Array(INTEGER)], (), "values of ARRAY<INTEGER> have no order"),
        ("TOPK", [INTEGER], (0,), "expected a number of values of at least 1, and got 0"),
        ("TOPK", [Map(STRING, STRING), INTEGER], (1,), "values of MAP<STRING, STRING> have no order"),
        ("TOPKDISTINCT", [INTEGER], (-1,), "expected a number of values of at least 1"),
        ("TOPK", [INTEGER], (None,), "expected a number of values of at least 1, and got NULL"),
        ("EARLIEST_BY_OFFSET", [INTEGER], (0, True), "expected a number of values"),
        (
            "LATEST_BY_OFFSET",
            [INTEGER],
            (0,),
            "expected a number of values of at least 1, and got 0",
        ),
        ("HISTOGRAM", [INTEGER], (), r"function 'HISTOGRAM' does not accept parameters \(INTEGER\)"),
    ],
)
def test_refusals(name: str, types: list[SqlType], constants: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(SqlError, match=reason):
        made(name, types, *constants)


def test_only_some_functions_work_over_tables() -> None:
    for function in built_in():
        if function.kind == AGGREGATE and function.name not in TABLES_TOO:
            assert not hasattr(function.implementation, "undo"), function.name
        elif function.kind == AGGREGATE:
            assert hasattr(function.implementation, "undo"), function.name


@pytest.mark.parametrize(("name", "rows"), [("COLLECT_LIST", [1, 1, 2, 3]), ("COLLECT_SET", [1, 2, 3, 4])])
@pytest.mark.parametrize(("limit", "count"), [("0", 0), ("2", 2), ("-1", 4)])
def test_limits_are_settings(name: str, rows: list[int], limit: str, count: int) -> None:
    one = made(name, [INTEGER], **{name.lower(): limit}).aggregate
    state = one.initial()
    for value in rows:
        state = one.add(state, value)
    assert one.result(state) == one.result(one.merge(one.initial(), state)) == rows[:count]
    assert len(one.merge(one.add(one.initial(), 0), state)) == min(count + 1, int(limit) % 2**31)


def test_limits_without_settings() -> None:
    for name in ("COLLECT_LIST", "COLLECT_SET"):
        one = made(name, [INTEGER])
        assert folded(one, column(*range(1001))) == list(range(1000))
    with pytest.raises(SqlError, match=r"collect_set\.limit: expected a whole number, and got 'x'"):
        made("COLLECT_SET", [INTEGER], collect_set="x")
    one = made("HISTOGRAM", [STRING])
    full = folded(one, column(*map(str, range(1001)), "0"))
    assert len(full) == 1000 and full["0"] == 2
    assert one.aggregate.undo(full, "1000") == full


def test_a_decimal_sum_that_does_not_fit_stops_the_query() -> None:
    one = made("SUM", [MONEY]).aggregate
    state = one.add(one.initial(), Number("99.99"))
    with pytest.raises(
        AggregateError, match=r"the sum 100\.00 does not fit DECIMAL\(4, 2\); CAST the column"
    ):
        one.add(state, Number("0.01"))
    with pytest.raises(AggregateError):
        one.merge(state, state)
    with pytest.raises(AggregateError):
        one.undo(one.undo(one.initial(), Number("99.99")), Number("0.01"))


def test_undo_of_a_list_removes_the_last_equal_value() -> None:
    one = made("COLLECT_LIST", [DOUBLE]).aggregate
    assert repr(one.undo([NAN, 1.0, NAN, 0.0], float("nan"))) == repr([NAN, 1.0, 0.0])
    assert one.undo([1.0], 2.0) == [1.0]


def test_sessions_are_put_in_the_order_of_rows() -> None:
    for name, expected in (("EARLIEST_BY_OFFSET", 1), ("LATEST_BY_OFFSET", 4)):
        one = made(name, [INTEGER])
        outer, inner = folded(one, column(1, 4), [1, 4]), folded(one, column(2, 3), [2, 3])
        assert one.aggregate.result(one.aggregate.merge(outer, inner)) == expected
        assert one.aggregate.result(one.aggregate.merge(inner, outer)) == expected
        assert one.aggregate.merge(None, None) is None


def test_many_values_are_counted_approximately_in_a_bounded_state() -> None:
    one = made("COUNT_DISTINCT", [STRING]).aggregate
    halves = [one.initial(), one.initial()]
    for number in range(60_000):
        halves[number % 2] = one.add(halves[number % 2], f"name {number}")
        if number == 2 * MOST_HASHES - 1:
            assert [one.result(half) for half in halves] == [MOST_HASHES, MOST_HASHES]
    whole = one.merge(*halves)
    assert one.result(whole) == pytest.approx(60_000, rel=0.02)
    assert one.result(one.merge(whole, one.add(one.initial(), "name 1"))) == one.result(whole)
    assert len(whole) == 16_384
    few = one.add(one.initial(), "a")
    assert len(one.merge(few, one.add(few, "b"))) == len(one.add(few, "b")) < 20
    assert one.result(one.merge(halves[0], few)) == pytest.approx(30_000, rel=0.02)


def test_hashes_are_the_same_in_each_process() -> None:
    """States are stored, and read by processes that iterate over sets in another order."""
    one = made("COUNT_DISTINCT", [Map(STRING, Array(INTEGER))]).aggregate
    state = one.add(one.initial(), {letter: [number, None] for number, letter in enumerate("abcdefgh")})
    assert state.hex() == "bed300314b6b79b7"


def holds(kind: SqlType, value: Any) -> bool:
    """Whether a value is one of a type: then it can be stored."""
    if value is None:
        return True
    match kind:
        case Array(element):
            return isinstance(value, list) and all(holds(element, one) for one in value)
        case Map(key, of):
            return isinstance(value, dict) and all(holds(key, one) and holds(of, value[one]) for one in value)
        case Struct(fields):
            return isinstance(value, tuple) and all(
                holds(one, part) for (_, one), part in zip(fields, value, strict=True)
            )
        case Decimal(_, scale):
            return isinstance(value, Number) and value.as_tuple().exponent == -scale
    return type(value) is {BOOLEAN: bool, DOUBLE: float, STRING: str, BYTES: bytes}.get(kind, int)


INTEGERS = st.none() | st.integers(-3, 3) | st.sampled_from([2**31 - 1, -(2**31)])
DOUBLES = st.none() | st.integers(-8, 8).map(lambda value: value / 4)
WORDS = st.none() | st.sampled_from(["a", "b", "\U0001f600", ""])
MONEYS = st.none() | st.integers(-200, 200).map(lambda value: Number(value).scaleb(-2))
AGGREGATES: dict[str, tuple[str, list[SqlType], tuple[Any, ...], list[st.SearchStrategy[Any]]]] = {
    "count": ("COUNT", [INTEGER], (), [INTEGERS]),
    "count rows": ("COUNT", [], (), []),
    "count distinct": ("COUNT_DISTINCT", [STRING], (), [WORDS]),
    "sum of integers": ("SUM", [INTEGER], (), [INTEGERS]),
    "sum of doubles": ("SUM", [DOUBLE], (), [DOUBLES]),
    "sum of decimals": ("SUM", [Decimal(9, 2)], (), [MONEYS]),
    "sum of lists": ("SUM_LIST", [Array(INTEGER)], (), [st.none() | st.lists(INTEGERS, max_size=3)]),
    "average": ("AVG", [INTEGER], (), [INTEGERS]),
    "average of doubles": ("AVG", [DOUBLE], (), [DOUBLES]),
    "greatest": ("MAX", [STRING], (), [WORDS]),
    "least": ("MIN", [DOUBLE], (), [DOUBLES]),
    "top": ("TOPK", [STRING], (2,), [WORDS]),
    "top distinct": ("TOPKDISTINCT", [STRING], (2,), [WORDS]),
    "earliest": ("EARLIEST_BY_OFFSET", [STRING], (), [WORDS]),
    "earliest with nulls": ("EARLIEST_BY_OFFSET", [STRING], (False,), [WORDS]),
    "earliest of several": ("EARLIEST_BY_OFFSET", [STRING], (2, False), [WORDS]),
    "latest": ("LATEST_BY_OFFSET", [STRING], (), [WORDS]),
    "latest with nulls": ("LATEST_BY_OFFSET", [STRING], (False,), [WORDS]),
    "latest of several": ("LATEST_BY_OFFSET", [STRING], (2,), [WORDS]),
    "list": ("COLLECT_LIST", [STRING], (), [WORDS]),
    "set": ("COLLECT_SET", [Array(STRING)], (), [st.lists(WORDS, max_size=2)]),
    "histogram": ("HISTOGRAM", [STRING], (), [WORDS]),
    "attribute": ("ATTR", [STRING], (), [WORDS]),
    "variance": ("STDDEV_SAMP", [INTEGER], (), [st.none() | st.integers(-100, 100)]),
    "deviation": ("STDDEV_SAMPLE", [DOUBLE], (), [DOUBLES]),
    "correlation": ("CORRELATION", [DOUBLE, DOUBLE], (), [DOUBLES, DOUBLES]),
}
UNDOING = [name for name, (function, *_) in AGGREGATES.items() if function in TABLES_TOO]


def same(name: str, one: Any, other: Any) -> bool:
    """Whether results are equal but for the order that a function does not promise, and for errors of rounding."""
    if name in ("list", "set"):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, float):
        return bool(one == pytest.approx(other, rel=1e-6, abs=1e-6, nan_ok=True))
    return bool(one == other)


@pytest.mark.parametrize("name", AGGREGATES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_two_halves_are_the_whole(name: str, data: st.DataObject) -> None:
    function, types, constants, values = AGGREGATES[name]
    one = made(function, types, *constants)
    rows = data.draw(st.lists(st.tuples(st.booleans(), st.tuples(*values)), max_size=8))
    states = [
        folded(
            one,
            [row for half, row in rows if half is which],
            [number for number, (half, _) in enumerate(rows) if half is which],
        )
        for which in (False, True)
    ]
    before = copy.deepcopy(states)
    merged = one.aggregate.merge(*states)
    whole = folded(one, [row for _, row in rows])
    assert same(name, one.aggregate.result(merged), one.aggregate.result(whole))
    assert states == before, "states are not changed"
    assert all(holds(one.aggregate.state_type, state) for state in (*states, merged, whole))


@pytest.mark.parametrize("name", UNDOING)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_undo_gives_the_aggregate_of_the_rest(name: str, data: st.DataObject) -> None:
    function, types, constants, values = AGGREGATES[name]
    one = made(function, types, *constants)
    rows = data.draw(st.lists(st.tuples(st.booleans(), st.tuples(*values)), max_size=8))
    state = folded(one, [row for _, row in rows])
    for is_undone, row in rows:
        if is_undone:
            before = copy.deepcopy(state)
            after = one.aggregate.undo(state, *row)
            assert state == before, "states are not changed"
            assert holds(one.aggregate.state_type, after)
            state = after
    rest = one.aggregate.result(folded(one, [row for is_undone, row in rows if not is_undone]))
    assert same(name, one.aggregate.result(state), rest)


@pytest.mark.parametrize("aggregate", [CountRows, CountValues])
@pytest.mark.parametrize("values", [[None], ["a"]])
def test_the_texts_of_an_aggregate_do_what_its_methods_do(aggregate: Any, values: list[Any]) -> None:
    made = aggregate((), (), {})
    given = values if aggregate is CountValues else []
    for method, text in aggregate.texts.items():
        expression = text.format(*(f"given[{place}]" for place in range(len(given))), state="state")
        assert eval(expression, {"state": 7, "given": given}) == getattr(made, method)(7, *given)
