"""Values of headers as texts, and back: Kafka's `Values`, which `SimpleHeaderConverter` and `InsertHeader` use.

A text is null, a boolean, a number of the smallest type that holds it, a date, a time or a timestamp in ISO 8601, a
list `[…]` or a map `{…}` of such values with quoted texts, or else a text.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
import re
from collections.abc import Callable
from typing import Any

from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.schema import (
    ARRAY,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MAP,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    decimal_of,
    logical,
)
from felice.pipelines.java.patterns import DatePattern
from felice.pipelines.java.texts import milliseconds_of, moment_text, number_text, single

Value = tuple[Schema | None, Any]

NULL: Value = (None, None)
_TOKEN = re.compile(r"[:,{}\[\]\"]|(?:\\.|\\$|[^:,{}\[\]\"\\])+", re.DOTALL)
_LITERALS: dict[str, Value | None] = {
    "null": None,
    "true": (Schema(BOOLEAN), True),
    "false": (Schema(BOOLEAN), False),
}
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGERS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
_RANK = {kind: number for number, kind in enumerate((*_INTEGERS, FLOAT32, FLOAT64))}
_LONG_DIGITS = 19
_MAX_DEPTH = 100
_TIMES: tuple[tuple[int, DatePattern, str, Callable[[datetime.datetime], Any]], ...] = (
    (13, DatePattern("HH:mm:ss.SSS'Z'"), TIME, datetime.datetime.time),
    (24, DatePattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"), TIMESTAMP, lambda moment: moment),
    (10, DatePattern("yyyy-MM-dd"), DATE, datetime.datetime.date),
)
"""The forms of times by the lengths of their texts."""


def parsed(text: str) -> Value:
    """The value of a text, with its schema."""
    if not text:
        return Schema(STRING), text
    found = _Parser(text).value(0)
    return NULL if found is None else found


class _Parser:
    """Kafka's parser: tokens are delimiters, and what is between them. A backslash takes their meaning away."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def _next_is(self, *expected: str) -> bool:
        """Takes the next token that is no space if it is one of these."""
        at = self._at
        while at < len(self._tokens) and not self._tokens[at].strip(_SPACE):
            at += 1
        if at < len(self._tokens) and self._tokens[at].strip(_SPACE) in expected:
            self._at = at + 1
            return True
        return False

    def value(self, depth: int) -> Value | None:
        """The next value; None is null. Raises `DataError` inside of lists and maps."""
        if self._at >= len(self._tokens):
            return None
        if depth and self._next_is('"'):
            return self._quoted()
        for text, literal in _LITERALS.items():
            if self._next_is(text):
                if not depth and self._at < len(self._tokens):
                    return Schema(STRING), self._text
                return literal
        start = self._at
        try:
            if depth > _MAX_DEPTH:
                raise DataError("nests too deeply")
            if self._next_is("["):
                return self._list(depth + 1)
            if self._next_is("{"):
                return self._map(depth + 1)
        except DataError:
            self._at = start
            if not self._tokens[start].strip(_SPACE):
                self._at += 1
                return Schema(STRING), self._tokens[start]
        while self._at < len(self._tokens) - 1 and not self._tokens[self._at].strip(_SPACE):
            self._at += 1
        token = self._tokens[self._at]
        self._at += 1
        if not token.strip(_SPACE):
            return Schema(STRING), token if depth else self._text
        return self._simple(token.strip(_SPACE), is_inner=depth > 0)

    def _simple(self, token: str, *, is_inner: bool) -> Value:
        if token[0].isdigit():
            # The colons of a time divide it into five tokens.
            whole = token + "".join(self._tokens[self._at : self._at + 4])
            for text, count in ((whole, 4), (token, 0)):
                if (found := _time(text)) is not None:
                    self._at += count
                    return found
        if _NUMBER.fullmatch(token):
            return _number(token)
        if is_inner:
            raise DataError("Failed to parse embedded value")
        return Schema(STRING), self._text

    def _quoted(self) -> Value:
        parts = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token == '"':
                break
            parts.append(token)
        content = "".join(parts)
        return _time(content) or (Schema(STRING), content)

    def _list(self, depth: int) -> Value:
        values: list[Value | None] = []
        while self._at < len(self._tokens):
            if self._next_is("]"):
                common = _common(values)
                return Schema(ARRAY, value_schema=common), [_as(common, one) for one in values]
            if self._next_is(","):
                raise DataError("Unable to parse an empty array element")
            values.append(self.value(depth))
            here = self._at
            if self._next_is("]"):
                self._at = here
            elif not self._next_is(","):
                raise DataError("Array elements missing ',' delimiter")
        raise DataError("Array is missing terminating ']'")

    def _map(self, depth: int) -> Value:
        keys: list[Value | None] = []
        values: list[Value | None] = []
        while self._at < len(self._tokens):
            if self._next_is("}"):
                key_schema, value_schema = _common(keys), _common(values)
                pairs = zip(keys, values, strict=True)
                try:
                    made = {_as(key_schema, key): _as(value_schema, value) for key, value in pairs}
                except TypeError:
                    raise DataError("a list or a map cannot be a key") from None
                return Schema(MAP, key_schema=key_schema, value_schema=value_schema), made
            if self._next_is(","):
                raise DataError("Unable to parse a map entry with no key or value")
            key = self.value(depth)
            if key is None or key[1] is None:
                raise DataError("Map entry may not have a null key")
            if not self._next_is(":"):
                raise DataError("Map entry is missing ':' delimiter")
            keys.append(key)
            values.append(self.value(depth))
            self._next_is(",")
        raise DataError("Map is missing terminating '}'")


_SPACE = "".join(map(chr, range(33)))


def _time(text: str) -> Value | None:
    text = text.replace("\\:", ":")
    for length, date, kind, of in _TIMES:
        if len(text) == length:
            try:
                moment = date.parse(text)
            except (ValueError, OverflowError):
                return None
            return logical(kind), of(moment)
    return None


def _number(token: str) -> Value:
    number = decimal.Decimal(token)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    if number.adjusted() < _LONG_DIGITS and number == number.to_integral_value():
        whole = int(number)
        for kind, bits in _INTEGERS.items():
            if -(1 << bits - 1) <= whole < 1 << bits - 1:
                return Schema(kind), whole
    value = float(number)
    if exponent and math.isfinite(single(value)):
        return Schema(FLOAT32), single(value)
    if exponent and math.isfinite(value):
        return Schema(FLOAT64), value
    return decimal_of(max(0, -exponent)), number


def _common(values: list[Value | None]) -> Schema | None:
    common: Schema | None = None
    for one in values:
        if one is None or one[0] is None:
            continue
        schema = one[0]
        if common is None or common == schema:
            common = schema
        elif common.type in _RANK and schema.type in _RANK:
            common = max(common, schema, key=lambda found: _RANK[found.type])
        elif common.type != schema.type:
            return None
    return common


def _as(common: Schema | None, one: Value | None) -> Any:
    if one is None:
        if common is not None:
            raise DataError("Unable to convert a null value to a schema that requires a value")
        return None
    is_float = common is not None and common.type in (FLOAT32, FLOAT64)
    return float(one[1]) if is_float and type(one[1]) is int else one[1]


def printed(schema: Schema | None, value: Any) -> str:
    """The text of a value, which `parsed` reads."""
    return _printed(schema, value, is_inner=False)


def _printed(schema: Schema | None, value: Any, *, is_inner: bool = True) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number_text(value, is_single=schema is not None and schema.type == FLOAT32)
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else base64.b64encode(value).decode()
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if is_inner else text
    if isinstance(value, list):
        items = None if schema is None else schema.value_schema
        return f"[{','.join(_printed(items, one) for one in value)}]"
    if isinstance(value, dict):
        keys, values = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        return (
            f"{{{','.join(f'{_printed(keys, key)}:{_printed(values, one)}' for key, one in value.items())}}}"
        )
    if isinstance(value, Struct):
        parts = (f"{one.name}:{_printed(one.schema, value[one.name])}" for one in value.schema.fields)
        return f"{{{','.join(parts)}}}"
    if isinstance(value, (datetime.date, datetime.time)):
        return moment_text(milliseconds_of(value))
    return str(value)
