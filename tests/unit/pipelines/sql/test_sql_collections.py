"""Functions of arrays, maps and lambdas, and table functions."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.ordering import equality_key
from felice.pipelines.sql.functions.table import SCALAR, TABLE, Function
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.types import (
    BIGINT,
    BYTES,
    DOUBLE,
    INTEGER,
    STRING,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)
from sql_values import value_of

NAN = math.nan
NO_ARRAY, NO_MAP = "CAST(NULL AS ARRAY<INT>)", "CAST(NULL AS MAP<STRING, INT>)"


@pytest.mark.parametrize(
    "function", [one for one in built_in() if one.examples], ids=lambda one: one.signature.text
)
def test_examples(function: Function) -> None:
    for call, expected in function.examples:
        if function.kind == SCALAR:
            assert value_of(call)[1] == value_of(expected)[1], call
        else:
            argument = call.partition("(")[2].removesuffix(")")
            assert function.implementation(value_of(argument)[1]) == value_of(expected)[1], call


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (f"ARRAY_CONCAT({NO_ARRAY}, ARRAY[1])", [1]),
        (f"ARRAY_CONCAT(ARRAY[1], {NO_ARRAY})", [1]),
        (f"ARRAY_CONCAT({NO_ARRAY}, {NO_ARRAY})", None),
        ("ARRAY_CONTAINS(ARRAY[1, NULL], NULL)", True),
        ("ARRAY_CONTAINS(ARRAY[1], NULL)", False),
        (f"ARRAY_CONTAINS({NO_ARRAY}, 1)", False),
        ("ARRAY_CONTAINS(ARRAY[ARRAY[1], ARRAY[2]], ARRAY[2])", True),
        ("ARRAY_CONTAINS(ARRAY[1.5, 2.5], 2.5)", True),
        ("ARRAY_DISTINCT(ARRAY[NULL, 1, NULL, 1])", [None, 1]),
        ("ARRAY_DISTINCT(ARRAY[MAP('a' := 1), MAP('a' := 1), MAP('b' := 1)])", [{"a": 1}, {"b": 1}]),
        ("ARRAY_DISTINCT(ARRAY[STRUCT(a := ARRAY[1]), STRUCT(a := ARRAY[1])])", [([1],)]),
        (f"ARRAY_DISTINCT({NO_ARRAY})", None),
        ("ARRAY_EXCEPT(ARRAY[1, NULL, 2, NULL], ARRAY[NULL, 1])", [2]),
        (f"ARRAY_EXCEPT(ARRAY[1], {NO_ARRAY})", None),
        ("ARRAY_EXCEPT(ARRAY[ARRAY[1], ARRAY[2]], ARRAY[ARRAY[1]])", [[2]]),
        ("ARRAY_INTERSECT(ARRAY[NULL, 1, 2], ARRAY[2, NULL])", [None, 2]),
        (f"ARRAY_INTERSECT(ARRAY[1], {NO_ARRAY})", None),
        ("ARRAY_UNION(ARRAY[2, NULL], ARRAY[NULL, 1, 2])", [2, None, 1]),
        (f"ARRAY_UNION({NO_ARRAY}, ARRAY[1])", None),
        ("ARRAY_UNION(ARRAY[1], ARRAY[2.5])", [1, 2.5]),
        ("ARRAY_REMOVE(ARRAY[1, NULL, 2], NULL)", [1, 2]),
        (f"ARRAY_REMOVE({NO_ARRAY}, 1)", None),
        ("ARRAY_REMOVE(ARRAY[ARRAY[1], NULL], ARRAY[1])", [None]),
        (f"ARRAY_LENGTH({NO_ARRAY})", None),
        ("ARRAY_JOIN(ARRAY[TRUE, FALSE])", "true,false"),
        ("ARRAY_JOIN(ARRAY[1E10, 0.5E0], NULL)", "1.0E100.5"),
        ("ARRAY_JOIN(ARRAY[1.50], '-')", "1.50"),
        (f"ARRAY_JOIN({NO_ARRAY})", None),
        ("ARRAY_MAX(ARRAY[CAST(NULL AS INT)])", None),
        (f"ARRAY_MAX({NO_ARRAY})", None),
        ("ARRAY_MIN(ARRAY[2, NULL, 1])", 1),
        ("ARRAY_SORT(ARRAY[2, NULL, 1], 'descending')", [2, 1, None]),
        ("ARRAY_SORT(ARRAY[2, 1], 'Ascending')", [1, 2]),
        ("ARRAY_SORT(ARRAY[2, 1], 'up')", None),
        ("ARRAY_SORT(ARRAY[2, 1], CAST(NULL AS STRING))", None),
        ("SLICE(ARRAY[1, 2, 3], NULL, 2)", [1, 2]),
        ("SLICE(ARRAY[1, 2, 3], 2, NULL)", [2, 3]),
        ("SLICE(ARRAY[1, 2, 3], 2, 1)", []),
        ("SLICE(ARRAY[1, 2, 3], 3, 1)", None),
        ("SLICE(ARRAY[1, 2, 3], 0, 1)", None),
        ("SLICE(ARRAY[1, 2, 3], 1, 4)", None),
        (f"SLICE({NO_ARRAY}, 1, 1)", None),
        ("ELT(0, 'a')", None),
        ("ELT(2, 'a')", None),
        ("ELT(2, 'a', NULL)", None),
        ("ELT(1, 'a', NULL)", "a"),
        ("ELT(CAST(NULL AS INT), 'a')", None),
        ("AS_MAP(ARRAY['a', 'a'], ARRAY[1, 2, 3])", {"a": 2}),
        ("AS_MAP(CAST(NULL AS ARRAY<STRING>), ARRAY[1])", None),
        ("ENTRIES(MAP('b' := 1, 'a' := NULL), FALSE)", [("b", 1), ("a", None)]),
        (f"ENTRIES({NO_MAP}, TRUE)", None),
        (f"MAP_KEYS({NO_MAP})", None),
        (f"MAP_VALUES({NO_MAP})", None),
        ("MAP_VALUES(MAP('a' := NULL, 'b' := 2))", [None, 2]),
        (f"MAP_UNION({NO_MAP}, MAP('a' := 1))", {"a": 1}),
        (f"MAP_UNION(MAP('a' := 1), {NO_MAP})", {"a": 1}),
        (f"MAP_UNION({NO_MAP}, {NO_MAP})", None),
        ("TRANSFORM(ARRAY[1, NULL], x => x IS NULL)", [False, True]),
        (f"TRANSFORM({NO_ARRAY}, x => x)", None),
        (f"TRANSFORM({NO_MAP}, (k, v) => k, (k, v) => v)", None),
        ("TRANSFORM(ARRAY[ARRAY[1, 2], ARRAY[3]], x => REDUCE(x, 0, (s, y) => s + y))", [3, 3]),
        ("FILTER(ARRAY[1, NULL, 3], x => x > 1)", [3]),
        (f"FILTER({NO_ARRAY}, x => TRUE)", None),
        (f"FILTER({NO_MAP}, (k, v) => TRUE)", None),
        ("FILTER(MAP('a' := 1, 'b' := NULL), (k, v) => k = 'a')", {"a": 1}),
        (f"REDUCE({NO_ARRAY}, 5, (s, x) => s + x)", 5),
        ("REDUCE(ARRAY[1], CAST(NULL AS INT), (s, x) => x)", None),
        ("REDUCE(ARRAY[1, NULL, 2], 0, (s, x) => CASE WHEN x IS NULL THEN s ELSE s + x END)", 3),
        (f"REDUCE({NO_MAP}, 5, (s, k, v) => s + v)", 5),
        ("REDUCE(MAP('a' := 1), CAST(NULL AS INT), (s, k, v) => v)", None),
    ],
)
def test_values(call: str, expected: Any) -> None:
    assert value_of(call)[1] == expected


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            "TRANSFORM(MAP('a' := 1, 'b' := 2), (k, v) => 'x', (k, v) => v)",
            "two entries of the new map have the key 'x'",
        ),
        (
            "TRANSFORM(MAP('a' := CAST(NULL AS INT)), (k, v) => k, (k, v) => v)",
            "a null value, of the key 'a'",
        ),
        ("FILTER(MAP('a' := CAST(NULL AS INT)), (k, v) => TRUE)", "FILTER: the new map has a null value"),
        ("FILTER(ARRAY[1], x => CAST(NULL AS BOOLEAN))", "the lambda must be true or false, and is null"),
    ],
)
def test_what_no_map_or_filter_can_hold_is_an_error(call: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        value_of(call)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("ARRAY_SORT(ARRAY[MAP('a' := 1)])", "values of MAP<STRING, INTEGER> have no order"),
        ("ARRAY_MAX(ARRAY[ARRAY[1]])", "values of ARRAY<INTEGER> have no order"),
        ("ARRAY_MIN(NULL)", "the type of NULL is not known here; use CAST"),
        ("ARRAY_JOIN(NULL, ',')", "the type of NULL is not known here"),
        ("ARRAY_JOIN(ARRAY[ARRAY[1]], ',')", "expected an array of numbers, texts or booleans"),
    ],
)
def test_types_that_do_not_fit_are_refused(call: str, reason: str) -> None:
    with pytest.raises(SqlError, match=reason):
        value_of(call)


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        ("ARRAY_MAX(ARRAY[1.50, 2.5])", Decimal(3, 2)),
        ("ARRAY_SORT(ARRAY['b', 'a'])", Array(STRING)),
        ("ENTRIES(MAP('a' := 1), TRUE)", Array(Struct((("K", STRING), ("V", INTEGER))))),
        ("TRANSFORM(MAP('a' := 1), (k, v) => v, (k, v) => k)", Map(INTEGER, STRING)),
        ("ARRAY_LENGTH(ARRAY[1])", INTEGER),
    ],
)
def test_types_of_results(call: str, type_: SqlType) -> None:
    assert value_of(call)[0] == type_


@pytest.mark.parametrize(
    ("element", "given", "expected"),
    [
        # NaN is the greatest number, and -0.0 is less than 0.0.
        (DOUBLE, [NAN, 0.0, -1.0, -0.0, math.inf, None], [-1.0, -0.0, 0.0, math.inf, NAN, None]),
        # Java compares units of UTF-16: what is beyond U+FFFF begins with U+D8xx.
        (STRING, ["\uffee", "\U0001f600", "a"], ["a", "\U0001f600", "\uffee"]),
        # Java's bytes are signed.
        (
            BYTES,
            [b"\x7f", b"\x00", b"\xff", b"\x80", b"\x7f\x00", b""],
            [b"", b"\x80", b"\xff", b"\x00", b"\x7f", b"\x7f\x00"],
        ),
    ],
)
def test_order_is_javas(element: SqlType, given: list[Any], expected: list[Any]) -> None:
    assert list(map(repr, value_of("ARRAY_SORT(A)", A=(Array(element), given))[1])) == list(
        map(repr, expected)
    )
    assert repr(value_of("ARRAY_MIN(A)", A=(Array(element), given))[1]) == repr(expected[0])
    greatest = [one for one in expected if one is not None][-1]
    assert repr(value_of("ARRAY_MAX(A)", A=(Array(element), given))[1]) == repr(greatest)


def test_equality_is_javas() -> None:
    given = [NAN, 0.0, -0.0, float("nan"), 1.0]
    assert repr(value_of("ARRAY_DISTINCT(A)", A=(Array(DOUBLE), given))[1]) == repr([NAN, 0.0, -0.0, 1.0])
    assert value_of("ARRAY_CONTAINS(A, B)", A=(Array(DOUBLE), given), B=(DOUBLE, float("nan")))[1] is True
    assert equality_key({"a": [1], "b": (NAN,)}) == equality_key({"b": (float("nan"),), "a": [1]})


def test_arguments_are_not_changed() -> None:
    given = [3, 1, None]
    for call in ("ARRAY_SORT(A)", "ARRAY_UNION(A, A)", "ARRAY_CONCAT(A, A)", "SLICE(A, 1, 1)"):
        value_of(call, A=(Array(INTEGER), given))
    assert given == [3, 1, None]


def test_large_arrays_of_structs_take_no_quadratic_time() -> None:
    count = 20_000
    array = Array(Struct((("A", Array(BIGINT)),)))
    one, other = [([number],) for number in range(count)], [([number],) for number in range(10, count + 10)]
    started = time.process_time()
    for name, expected in (("UNION", count + 10), ("EXCEPT", 10), ("INTERSECT", count - 10)):
        assert len(value_of(f"ARRAY_{name}(A, B)", A=(array, one), B=(array, other))[1]) == expected
    assert time.process_time() - started < 5, "a comparison of all pairs takes more than a minute"


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("EXPLODE", None, []),
        ("EXPLODE", [], []),
        ("EXPLODE", [[1], None], [[1], None]),
        ("CUBE_EXPLODE", None, []),
        ("CUBE_EXPLODE", [], [[]]),
        ("CUBE_EXPLODE", [1, None], [[None, None], [1, None]]),
    ],
)
def test_table_functions(name: str, given: Any, expected: Any) -> None:
    (function,) = built_in().named(name)
    assert function.kind == TABLE and function.takes_nulls
    assert function.implementation(given) == expected


def test_a_cube_of_too_many_columns_is_refused() -> None:
    (function,) = built_in().named("CUBE_EXPLODE")
    with pytest.raises(ValueError, match="expected 20 columns at most, and got 21"):
        function.implementation([None] * 21)
