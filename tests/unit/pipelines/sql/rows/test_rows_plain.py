"""Values as JSON of tests and answers."""

from __future__ import annotations

import decimal
import math
from typing import Any

import pytest

from felice.pipelines.sql.rows.plain import plain_of, value_of
from felice.pipelines.sql.types import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

PAIR = Struct((("A", INTEGER), ("b", Array(BYTES))))


@pytest.mark.parametrize(
    ("type_", "value", "plain"),
    [
        (Decimal(4, 2), decimal.Decimal("1.10"), decimal.Decimal("1.10")),
        (BYTES, b"ab", "YWI="),
        (DATE, 3, 3),
        (PAIR, (1, [b"", None]), {"A": 1, "b": ["", None]}),
        (PAIR, None, None),
        (Map(INTEGER, PAIR), {1: (None, None), 2: None}, {"1": {"A": None, "b": None}, "2": None}),
        (Map(BOOLEAN, INTEGER), {True: 1, False: 2}, {"true": 1, "false": 2}),
        (Map(DOUBLE, INTEGER), {1e10: 1}, {"1.0E10": 1}),
        (DOUBLE, math.inf, "Infinity"),
        (DOUBLE, 1.5, 1.5),
    ],
)
def test_values_and_plain_values(type_: SqlType, value: Any, plain: Any) -> None:
    assert plain_of(type_, value) == plain
    assert value_of(type_, plain) == value


def test_nan_has_a_name() -> None:
    assert plain_of(DOUBLE, math.nan) == "NaN" and math.isnan(value_of(DOUBLE, "NaN"))


@pytest.mark.parametrize(
    ("type_", "plain", "value"),
    [
        (PAIR, {"a": "1", "B": None, "more": 1}, (1, None)),
        (PAIR, {"A": 1, "a": 2}, (1, None)),
        (Decimal(4, 2), "1.1", decimal.Decimal("1.10")),
        (Decimal(4, 2), 0.1, decimal.Decimal("0.10")),
        (STRING, 5, "5"),
        (STRING, True, "true"),
        (STRING, decimal.Decimal("1.50"), "1.50"),
    ],
)
def test_plain_values_are_read_leniently(type_: SqlType, plain: Any, value: Any) -> None:
    found = value_of(type_, plain)
    assert (type(found), repr(found)) == (type(value), repr(value))


@pytest.mark.parametrize(
    ("type_", "plain", "reason"),
    [
        (Array(PAIR), [{"a": 1}, {"A": "x"}], "$[1].A: 'x' is not a whole number of 32 bits"),
        (Map(STRING, PAIR), {"k": []}, "$.k: expected STRUCT<`A` INTEGER, `b` ARRAY<BYTES>>, and got []"),
        (BYTES, "?", "$: "),
        (INTEGER, math.inf, "$: cannot convert float infinity to integer"),
        (Decimal(4, 2), math.nan, "$: NaN does not fit"),
        (INTEGER, {"x" * 100: 1}, '$: expected INTEGER, and got {"' + "x" * 58 + "..."),
    ],
)
def test_errors_name_the_place(type_: SqlType, plain: Any, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        value_of(type_, plain)
    assert str(refused.value).startswith(reason)


def test_null_is_no_name() -> None:
    with pytest.raises(ValueError, match="null cannot be a key of a MAP here"):
        plain_of(Map(STRING, INTEGER), {None: 1})
