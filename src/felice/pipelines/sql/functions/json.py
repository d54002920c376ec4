"""Functions of JSON in texts. A text that is not JSON raises ValueError, so that the result is null."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from felice.pipelines.sql.expressions.texts import NULL, text_function
from felice.pipelines.sql.functions.json_texts import MISSING, parsed, quoted, written, written_object
from felice.pipelines.sql.functions.table import scalar
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
    Map,
    SqlType,
    Struct,
)

Text = Callable[[Any], str]


@scalar(
    "IS_JSON_STRING(text STRING) -> BOOLEAN",
    "Whether a text is JSON. False for null.",
    ("IS_JSON_STRING('[1, 2]')", "TRUE"),
    ("IS_JSON_STRING('[1, 2')", "FALSE"),
    takes_nulls=True,
)
def is_json_string(text: str | None) -> bool:
    """Whether the text can be read."""
    try:
        return text is not None and parsed(text) is not MISSING
    except ValueError:
        return False


@scalar(
    "JSON_ARRAY_LENGTH(text STRING) -> INTEGER",
    "The number of elements of a JSON array; null for any other JSON.",
    ("JSON_ARRAY_LENGTH('[1, 2, null]')", "3"),
    ("JSON_ARRAY_LENGTH('{}')", "NULL"),
)
def json_array_length(text: str) -> int | None:
    """How many elements there are."""
    value = parsed(text)
    return len(value) if isinstance(value, list) else None


_EQUAL: Mapping[SqlType, Callable[[Any], Any]] = {
    BOOLEAN: lambda element: element if isinstance(element, bool) else None,
    INTEGER: lambda element: element if type(element) is int else None,
    BIGINT: lambda element: element if type(element) is int else None,
    DOUBLE: lambda element: None if isinstance(element, bool | int) else _double(element),
    STRING: lambda element: element if isinstance(element, str) else None,
}
"""The functions that make SQL's value of an element of JSON; None if it is of another type."""


def _double(element: Any) -> float | None:
    return None if element is None or isinstance(element, str | list | dict) else float(element)


@scalar(
    "JSON_ARRAY_CONTAINS(text STRING, value T) -> BOOLEAN",
    "Whether a value is an element of a JSON array, with the same type. Null is an element that is null. False for "
    "what is not a JSON array, null for null.",
    ("JSON_ARRAY_CONTAINS('[1, \"a\"]', 'a')", "TRUE"),
    ("JSON_ARRAY_CONTAINS('[1, 2.0]', 2)", "FALSE"),
    by_type=True,
    takes_nulls=True,
)
def json_array_contains(_: SqlType | None, given: SqlType | None) -> Callable[[str | None, Any], bool | None]:
    """The function that looks for values of a type."""
    equal = None if given is None else _EQUAL.get(given)

    def contains(text: str | None, value: Any) -> bool | None:
        if text is None:
            return None
        try:
            array = parsed(text)
        except ValueError:
            return False
        if not isinstance(array, list):
            return False
        if value is None:
            return None in array
        return equal is not None and value in map(equal, array)

    return contains


@scalar(
    "JSON_CONCAT(texts STRING MANY) -> STRING",
    "Several JSON texts as one: objects as an object with the entries of all, where the last one counts; anything "
    "else as an array of the elements of all, where what is no array is one element.",
    ("JSON_CONCAT('{\"a\": 1}', '{\"b\": 2}')", '\'{"a":1,"b":2}\''),
    ("JSON_CONCAT('[1]', '2')", "'[1,2]'"),
)
def json_concat(*texts: str) -> str | None:
    """All values as one."""
    values = [parsed(text) for text in texts]
    if not values or MISSING in values:
        return None
    if len(values) == 1:
        return written(values[0])
    if all(isinstance(value, dict) for value in values):
        return written({key: one for value in values for key, one in value.items()})
    return written([one for value in values for one in (value if isinstance(value, list) else [value])])


@scalar(
    "JSON_ITEMS(text STRING) -> ARRAY<STRING>",
    "The elements of a JSON array of objects, each as JSON; null if an element is not an object.",
    ("JSON_ITEMS('[{\"a\": 1}, {}]')", "ARRAY['{\"a\":1}', '{}']"),
)
def json_items(text: str) -> list[str] | None:
    """The elements as texts. Raises ValueError for what is no array."""
    values = parsed(text)
    if not isinstance(values, list):
        raise ValueError(f"JSON_ITEMS: expected a JSON array, and got {text[:100]!r}")
    return list(map(written, values)) if all(isinstance(one, dict) for one in values) else None


@scalar(
    "JSON_KEYS(text STRING) -> ARRAY<STRING>",
    "The names of the fields of a JSON object; null for any other JSON.",
    ('JSON_KEYS(\'{"a": 1, "b": {"c": 2}}\')', "ARRAY['a', 'b']"),
)
def json_keys(text: str) -> list[str] | None:
    """The names of the fields."""
    value = parsed(text)
    return list(value) if isinstance(value, dict) else None


@scalar(
    "JSON_RECORDS(text STRING) -> MAP<STRING, STRING>",
    "The fields of a JSON object, with their values as JSON; null for any other JSON.",
    ('JSON_RECORDS(\'{"a": "x", "b": [1]}\')', "MAP('a' := '\"x\"', 'b' := '[1]')"),
)
def json_records(text: str) -> dict[str, str] | None:
    """The fields as texts."""
    value = parsed(text)
    return {key: written(one) for key, one in value.items()} if isinstance(value, dict) else None


@scalar(
    "TO_JSON_STRING(value T) -> STRING",
    "Any value as JSON. The fields of structs and the keys of maps are sorted; dates and times are texts, BYTES are in "
    "base64; NaN and the infinite numbers are texts.",
    ("TO_JSON_STRING(STRUCT(b := ARRAY[1, NULL], a := 'x'))", '\'{"A":"x","B":[1,null]}\''),
    ("TO_JSON_STRING(CAST(NULL AS INTEGER))", "'null'"),
    by_type=True,
    takes_nulls=True,
)
def to_json_string(given: SqlType | None) -> Text:
    """The function that writes values of a type."""
    return _nullable(_writer(STRING if given is None else given))


def _nullable(write: Text) -> Text:
    return lambda value: NULL if value is None else write(value)


_IN_QUOTES = (BYTES, DATE, TIME, TIMESTAMP)


def _writer(given: SqlType) -> Text:
    """The function that writes values of a type that are not null."""
    match given:
        case Array(element):
            each = _nullable(_writer(element))
            return lambda values: f"[{','.join(map(each, values))}]"
        case Map(key, value):
            of_key, of_value = text_function(key), _nullable(_writer(value))
            return lambda entries: _sorted_object(
                (of_key(name), of_value(one)) for name, one in entries.items()
            )
        case Struct(fields):
            return _struct_writer(fields)
    if given == STRING:
        return quoted
    if given == DOUBLE:
        return _written_double
    text = text_function(given)
    return (lambda value: quoted(text(value))) if given in _IN_QUOTES else text


def _sorted_object(entries: Iterable[tuple[str, str]]) -> str:
    return written_object(sorted(entries, key=itemgetter(0)))


def _struct_writer(fields: tuple[tuple[str, SqlType], ...]) -> Text:
    writers = [(name, _nullable(_writer(one))) for name, one in fields]
    return lambda row: _sorted_object(
        (name, write(one)) for (name, write), one in zip(writers, row, strict=True)
    )


_double_text = text_function(DOUBLE)


def _written_double(value: float) -> str:
    text = _double_text(value)
    return text if math.isfinite(value) else quoted(text)
