"""JSON as Jackson writes it."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.registry.formats.json_text import as_single, decode, encode, java_double
from felice.registry.formats.schema import MAX_DEPTH, MAX_TEXT_BYTES, InvalidSchema


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-1.5e-7, "-1.5E-7"),
        (1e22, "1.0E22"),
        (123456789012345680.0, "1.2345678901234568E17"),
        (5e-324, "5.0E-324"),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
        (math.nan, '"NaN"'),
    ],
)
def test_a_float_has_the_text_of_java(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_float_means_the_float(value: float) -> None:
    assert float(java_double(value)) == value


@pytest.mark.parametrize(
    ("value", "single"),
    [(0.1, 0.1), (3.14159265358979, 3.1415927), (16777217.0, 16777216.0), (1e300, math.inf), (0, 0.0)],
)
def test_a_default_of_a_float_is_rounded_to_32_bits(value: float, single: float) -> None:
    assert as_single(value) == single


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(JSON)
def test_a_value_survives_its_text(value: object) -> None:
    if any(0xD800 <= ord(char) <= 0xDFFF for char in encode(value)):
        return
    assert json.loads(encode(value)) == value
    assert decode(encode(value)) == value


def test_control_characters_are_escaped_as_jackson_escapes_them() -> None:
    assert encode('\x00\x1f\b\f\n\r\t"\\/\x7fé€😀') == '"\\u0000\\u001F\\b\\f\\n\\r\\t\\"\\\\/\x7fé€😀"'


def test_members_keep_their_order_and_a_repeated_one_its_first_place() -> None:
    assert encode(decode('{ "b" : 1, "a" : [ ], "b" : { } }')) == '{"b":{},"a":[]}'


def test_comments_are_accepted_where_asked_for() -> None:
    text = '{"a": /* "b */ "x//y/*z*/", // to the end\n "c": "\\"/*"}'
    assert decode(text, comments=True) == {"a": "x//y/*z*/", "c": '"/*'}
    with pytest.raises(InvalidSchema, match="not valid JSON"):
        decode(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("1 2", "not valid JSON"),
        ("NaN", "NaN is not a number"),
        ('"\\ud800"', "surrogate"),
        ('"\ud800"', "surrogate"),
        ("1" * 5_000, "not valid JSON"),
        ("[" * 100_000, "deeper than"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "deeper than"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "deeper than"),
        ('"' + "é" * (MAX_TEXT_BYTES // 2) + '"', "larger than"),
        ("/*" * 1_000_000, "not valid JSON"),
        ('"\\"' * 1_000_000, "not valid JSON"),
    ],
    ids=range(13),
)
def test_other_texts_are_refused_at_once(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        decode(text, comments=True)


def test_the_deepest_text_is_accepted() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert encode(decode(text)) == text
