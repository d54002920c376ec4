"""JSON of rows without msgspec: a function for each type that returns the text of its values. It writes every value.

Keeps true:  the bytes are those that msgspec writes, in particular of numbers: a key must have the same bytes in every
             process. What msgspec refuses (half of a pair of surrogates) is written as an escape.
"""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

from felice.pipelines.sql.rows.numbers import double_text
from felice.pipelines.sql.rows.plain import key_text
from felice.pipelines.sql.types import BOOLEAN, BYTES, DOUBLE, STRING, Array, Map, SqlType, Struct

Write = Callable[[Any], str]


def writer(type_: SqlType) -> Write:
    """The function that writes values of a type, and null."""
    write = _writer(type_)
    return lambda value: "null" if value is None else write(value)


def struct_writer(fields: tuple[tuple[str, SqlType], ...]) -> Write:
    """The function that writes tuples of these fields as objects."""
    parts = [(f"{encode_basestring(name)}:", writer(one)) for name, one in fields]

    def write(value: Any) -> str:
        told = (name + one(member) for (name, one), member in zip(parts, value, strict=True))
        return f"{{{','.join(told)}}}"

    return write


def in_bytes(text: str) -> bytes:
    """The bytes of JSON. A pair of surrogates is one character; half of a pair is written as an escape."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return whole.encode(errors="backslashreplace")


def _writer(type_: SqlType) -> Write:
    match type_:
        case Array(element):
            one = writer(element)
            return lambda value: f"[{','.join(map(one, value))}]"
        case Map(key, member):
            name, one = key_text(key), writer(member)
            return lambda value: (
                f"{{{','.join(f'{encode_basestring(name(key))}:{one(each)}' for key, each in value.items())}}}"
            )
        case Struct(fields):
            return struct_writer(fields)
        case _:
            return _SCALARS.get(type_, str)


def _double(value: float) -> str:
    return _shortest(value) if math.isfinite(value) else f'"{double_text(value)}"'


def _shortest(value: float) -> str:
    # As msgspec: `e16`, where Python writes `e+16`; `e-7` for `e-07`; and no exponent of -5.
    digits, letter, exponent = repr(value).partition("e")
    if exponent == "-05":
        return f"{decimal.Decimal(repr(value)):f}"
    return f"{digits}e{int(exponent)}" if letter else digits


_SCALARS: dict[SqlType, Write] = {
    BOOLEAN: lambda value: "true" if value else "false",
    DOUBLE: _double,
    STRING: encode_basestring,
    BYTES: lambda value: f'"{base64.b64encode(value).decode()}"',
}
