"""Values as texts, as Java prints them: `1.0E10`, `[1, 2]`, `{a=1}`, `Struct{F=1}`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from felice.pipelines.java.texts import number_text
from felice.pipelines.sql.expressions.moments import date_text, time_text, timestamp_text
from felice.pipelines.sql.types import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

Text = Callable[[Any], str]
NULL = "null"


def _boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _bytes_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


_PRIMITIVES: Mapping[SqlType, Text] = {
    BOOLEAN: _boolean_text,
    BYTES: _bytes_text,
    DATE: date_text,
    DOUBLE: number_text,
    TIME: time_text,
    TIMESTAMP: timestamp_text,
}


def text_function(given: SqlType) -> Text:
    """The function that prints the values of a type; they are not null."""
    match given:
        case Decimal():
            return lambda value: f"{value:f}"
        case Array(element):
            inner = nullable(text_function(element))
            return lambda value: f"[{', '.join(map(inner, value))}]"
        case Map(key, value):
            of_key, of_value = nullable(text_function(key)), nullable(text_function(value))
            return lambda entries: (
                "{" + ", ".join(f"{of_key(key)}={of_value(one)}" for key, one in entries.items()) + "}"
            )
        case Struct(fields):
            named = [(name, nullable(text_function(one))) for name, one in fields]
            return lambda row: (
                "Struct{"
                + ",".join(
                    f"{name}={of(one)}" for (name, of), one in zip(named, row, strict=True) if one is not None
                )
                + "}"
            )
    return _PRIMITIVES.get(given, str)


def nullable(text: Text) -> Text:
    """The same function, which also prints null."""
    return lambda value: NULL if value is None else text(value)
