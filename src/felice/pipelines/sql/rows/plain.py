"""Values as JSON of tests, of answers to queries, and of INSERT.

STRUCT     an object; when it is read, names match without regard to case, and what is missing is null
DECIMAL    a number with all its digits (decimal.Decimal); a text is read, too
DOUBLE     a number; NaN and infinities as the texts "NaN", "Infinity", "-Infinity"
DATE       days since 1970; TIME, TIMESTAMP: milliseconds
BYTES      a text in base64
MAP        an object; keys as text
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from felice.pipelines.sql.rows.coercion import ANY_CASE, Coerce, coercion
from felice.pipelines.sql.rows.numbers import double_text
from felice.pipelines.sql.types import BOOLEAN, BYTES, DOUBLE, STRING, Array, Map, SqlType, Struct


def plain_of(type_: SqlType, value: Any) -> Any:
    """The value as JSON has it."""
    return _plain(type_)(value)


def value_of(type_: SqlType, plain: Any) -> Any:
    """The value that parsed JSON stands for. Raises ValueError that names the place of what is not of the type."""
    return _value(type_)(plain)


def json_text(document: Any) -> str:
    """JSON on one line, in which decimal numbers keep their digits."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    except TypeError:
        return "".join(_chunks(document))


def _chunks(value: Any) -> Iterator[str]:
    match value:
        case Decimal():
            yield f"{value:f}"
        case Mapping():
            yield "{"
            for number, (name, one) in enumerate(value.items()):
                yield f"{',' if number else ''}{json_text(str(name))}:"
                yield from _chunks(one)
            yield "}"
        case list() | tuple():
            yield "["
            for number, one in enumerate(value):
                yield "," if number else ""
                yield from _chunks(one)
            yield "]"
        case _:
            yield json_text(value)


@cache
def _value(type_: SqlType) -> Coerce:
    return coercion(type_, ANY_CASE)


@cache
def _plain(type_: SqlType) -> Callable[[Any], Any]:
    make = _made(type_)
    return lambda value: None if value is None else make(value)


def _made(type_: SqlType) -> Callable[[Any], Any]:
    match type_:
        case Array(element):
            one = _plain(element)
            return lambda value: list(map(one, value))
        case Map(key, member):
            name, one = key_text(key), _plain(member)
            return lambda value: {name(key): one(each) for key, each in value.items()}
        case Struct(fields):
            names, makers = [name for name, _ in fields], [_plain(field) for _, field in fields]
            return lambda value: {
                name: make(one) for name, make, one in zip(names, makers, value, strict=True)
            }
        case _:
            return _SCALARS.get(type_, lambda value: value)


def _double(value: float) -> float | str:
    return value if math.isfinite(value) else double_text(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_SCALARS: dict[SqlType, Callable[[Any], Any]] = {DOUBLE: _double, BYTES: _base64}


def key_text(type_: SqlType) -> Callable[[Any], str]:
    """The function that makes names of a map's keys. It raises ValueError for null, which is no name."""
    text = _KEYS.get(type_, str)

    def make(key: Any) -> str:
        if key is None:
            raise ValueError("null cannot be a key of a MAP here")
        return text(key)

    return make


_KEYS: dict[SqlType, Callable[[Any], str]] = {
    STRING: lambda key: key,
    BOOLEAN: lambda key: "true" if key else "false",
    DOUBLE: double_text,
    BYTES: _base64,
}
