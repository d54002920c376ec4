"""Functions of JSON in texts."""

from __future__ import annotations

import math
from decimal import Decimal as Number
from typing import Any

import pytest

from felice.pipelines.sql.functions.json_texts import MISSING, parsed, quoted, written
from felice.pipelines.sql.types import (
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
from sql_values import value_of

NO_TEXT = "CAST(NULL AS STRING)"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" [1, 2.50, 1e3]\n", [1, Number("2.50"), Number("1E+3")]),
        ('{"a": 1, "b": 2, "a": 3}', {"a": 3, "b": 2}),
        ("true", True),
        ('"x"y', "x"),
        ("[1] [2", [1]),
        ("1 2", 1),
        (" ", MISSING),
    ],
)
def test_texts_are_read(text: str, value: Any) -> None:
    assert parsed(text) == value


@pytest.mark.parametrize(
    "text", ["abc", "[1", "NaN", "-Infinity", "1a", "truex", "01", "{'a': 1}", "[" * 100_000, "1e" + "9" * 30]
)
def test_what_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parsed(text)
    assert value_of("IS_JSON_STRING(A)", A=(STRING, text))[1] is False


def test_texts_are_written() -> None:
    assert (
        written([None, True, False, Number("1E+3"), {"ä \x1f": "\n"}])
        == '[null,true,false,1000,{"ä \\u001F":"\\n"}]'
    )
    assert quoted('"\\\b\f\n\r\t/') == r'"\"\\\b\f\n\r\t/"'
    with pytest.raises(ValueError, match="too many digits to be written"):
        written(Number("1e10000"))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (f"IS_JSON_STRING({NO_TEXT})", False),
        ("IS_JSON_STRING('')", False),
        ("IS_JSON_STRING('null')", True),
        (f"JSON_ARRAY_LENGTH({NO_TEXT})", None),
        ("JSON_ARRAY_LENGTH('')", None),
        ("JSON_ARRAY_CONTAINS('[null]', NULL)", True),
        ("JSON_ARRAY_CONTAINS('[1]', NULL)", False),
        (f"JSON_ARRAY_CONTAINS({NO_TEXT}, 1)", None),
        ("JSON_ARRAY_CONTAINS('[true, 1]', TRUE)", True),
        ("JSON_ARRAY_CONTAINS('[1]', TRUE)", False),
        ("JSON_ARRAY_CONTAINS('[true]', 1)", False),
        ("JSON_ARRAY_CONTAINS('[1.0]', 1)", False),
        ("JSON_ARRAY_CONTAINS('[null, \"x\", [1], 1, 1.0]', 1E0)", True),
        ("JSON_ARRAY_CONTAINS('[1]', 1E0)", False),
        ("JSON_ARRAY_CONTAINS('[1, [2]]', 2)", False),
        ("JSON_ARRAY_CONTAINS('[1', 1)", False),
        ("JSON_ARRAY_CONTAINS('{\"a\": 1}', 'a')", False),
        ("JSON_ARRAY_CONTAINS('[]', 1)", False),
        ('JSON_CONCAT(\'{"a": 1, "b": {"c": 1}}\', \'{"b": 2}\')', '{"a":1,"b":2}'),
        ("JSON_CONCAT('[1]', '{}', '[[2]]', '3')", "[1,{},[2],3]"),
        ("JSON_CONCAT('1')", "1"),
        ("JSON_CONCAT(' ', '1')", None),
        ("JSON_CONCAT()", None),
        (f"JSON_CONCAT('1', {NO_TEXT})", None),
        ("JSON_ITEMS('[]')", []),
        ("JSON_ITEMS('[{}, 1]')", None),
        (f"JSON_ITEMS({NO_TEXT})", None),
        ("JSON_KEYS('[]')", None),
        ("JSON_KEYS('')", None),
        ('JSON_RECORDS(\'{"a": null, "b": 1.50}\')', {"a": "null", "b": "1.50"}),
        ("JSON_RECORDS('1')", None),
        ("TO_JSON_STRING(NULL)", "null"),
    ],
)
def test_values(call: str, expected: Any) -> None:
    assert value_of(call)[1] == expected


@pytest.mark.parametrize(
    "call",
    [
        "JSON_ARRAY_LENGTH('x')",
        "JSON_CONCAT('[]', 'x')",
        "JSON_ITEMS('{}')",
        "JSON_KEYS('x')",
        "JSON_RECORDS('x')",
    ],
)
def test_errors(call: str) -> None:
    with pytest.raises(ValueError):
        value_of(call)


def test_a_time_is_no_number_of_a_json_array() -> None:
    assert value_of("JSON_ARRAY_CONTAINS('[1]', A)", A=(TIME, 1))[1] is False


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (INTEGER, -1, "-1"),
        (BOOLEAN, False, "false"),
        (STRING, 'a"ü', '"a\\"ü"'),
        (DOUBLE, 123.456, "123.456"),
        (DOUBLE, 1e10, "1.0E10"),
        (DOUBLE, math.nan, '"NaN"'),
        (DOUBLE, -math.inf, '"-Infinity"'),
        (Decimal(6, 3), Number("123.400"), "123.400"),
        (Decimal(12, 10), Number("0.0000000001"), "0.0000000001"),
        (BYTES, b"!", '"IQ=="'),
        (TIME, 60_220_000, '"16:43:40"'),
        (DATE, 1000, '"1972-09-27"'),
        (TIMESTAMP, 60_220_000_000, '"1971-11-28T23:46:40.000"'),
        (Array(DATE), [0, None], '["1970-01-01",null]'),
        (Map(STRING, Array(INTEGER)), {"b": [1], "a": None}, '{"a":null,"b":[1]}'),
        (Map(INTEGER, INTEGER), {1: 2}, '{"1":2}'),
        (Struct((("b", INTEGER), ("A", DOUBLE))), (None, math.inf), '{"A":"Infinity","b":null}'),
    ],
)
def test_values_as_json(type_: SqlType, value: Any, expected: str) -> None:
    assert value_of("TO_JSON_STRING(A)", A=(type_, value)) == (STRING, expected)
    assert value_of("TO_JSON_STRING(A)", A=(type_, None))[1] == "null"
