"""Schemas of Connect and the values that they allow."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.schema import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    array,
    decimal_of,
    logical,
    mapping,
    simple,
    struct,
)

UTC = datetime.UTC
POINT = struct({"x": simple(INT32), "y": simple(INT32, optional=True)}, name="Point")


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        (simple(INT8), [-128, 127], [128, -129, 1.0, True, "1"]),
        (simple(INT16), [-32768, 32767], [32768]),
        (simple(INT32), [-(1 << 31), (1 << 31) - 1], [1 << 31]),
        (simple(INT64), [-(1 << 63), (1 << 63) - 1], [1 << 63]),
        (simple(FLOAT64), [1.5, float("nan")], [1, "1"]),
        (simple(BOOLEAN), [True], [1, "true"]),
        (simple(STRING), [""], [b"", 1]),
        (simple(BYTES), [b""], ["", bytearray()]),
        (array(simple(INT8)), [[], [1]], [(1,), [None], [300]]),
        (array(simple(INT8, optional=True)), [[None]], [["x"]]),
        (mapping(simple(STRING), simple(INT8)), [{}, {"a": 1}], [{1: 1}, {"a": None}, []]),
        (POINT, [Struct(POINT, {"x": 1})], [{"x": 1}, Struct(struct({"x": simple(INT32)}), {"x": 1})]),
        (
            decimal_of(2),
            [decimal.Decimal("1.25"), decimal.Decimal(3)],
            [decimal.Decimal("1.255"), 1.25, decimal.Decimal("NaN")],
        ),
        (logical(DATE), [datetime.date(1969, 1, 1)], [datetime.datetime(1969, 1, 1), 5]),
        (logical(TIME), [datetime.time(1)], [5]),
        (
            logical(TIMESTAMP),
            [datetime.datetime(1969, 1, 1, tzinfo=UTC)],
            [datetime.datetime(1969, 1, 1), datetime.date(1969, 1, 1), 5],
        ),
    ],
    ids=lambda one: getattr(one, "name", None) or getattr(one, "type", ""),
)
def test_values(schema: Schema, allowed: list[Any], refused: list[Any]) -> None:
    for value in allowed:
        schema.check(value)
    for value in refused:
        with pytest.raises(DataError, match="Invalid value"):
            schema.check(value)
    with pytest.raises(DataError, match="null used for required field"):
        schema.check(None)
    schema.made_optional().check(None)


def test_a_struct_has_the_members_of_its_schema() -> None:
    point = Struct(POINT, {"x": 1})
    assert (point["x"], point["y"], list(point)) == (1, None, ["x", "y"])
    assert list(point.items()) == [("x", 1), ("y", None)]
    assert str(point) == "Struct{x=1,y=None}"
    assert point == Struct(POINT, {"x": 1, "y": None}) != Struct(POINT, {"x": 2})
    assert len({point, Struct(POINT, {"x": 1})}) == 1
    for given, why in (
        ({"x": "1"}, 'Invalid value for field: "x": str'),
        ({}, 'null used for required field: "x"'),
        ({"x": 1, "z": 2}, "z is not a valid field name"),
    ):
        with pytest.raises(DataError, match=why):
            Struct(POINT, given)
    with pytest.raises(DataError, match="z is not a valid field name"):
        _ = point["z"]
    with pytest.raises(DataError, match="Not a struct schema: int8"):
        Struct(simple(INT8), {})


def test_a_default_stands_for_null() -> None:
    schema = struct({"a": simple(INT32).with_default(5), "b": simple(STRING, optional=True)})
    value = Struct(schema, {"b": "x"})
    assert (value["a"], value.without_default("a")) == (5, None)
    with pytest.raises(DataError):
        simple(INT32).with_default("x")


def test_members_and_parameters_are_found_by_name() -> None:
    found = POINT.field("y")
    assert found is not None and found.schema.optional
    assert POINT.field("z") is None
    assert decimal_of(3).parameter("scale") == "3" and decimal_of(3).parameter("x") is None
