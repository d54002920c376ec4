"""Values of SQL from parsed JSON, as lenient as ksqlDB: a function for each type.

Keeps true:  an error names the place of its value, such as `$.ORDER.ITEMS[2]`.
How:         numbers with a fraction or exponent may come as `decimal.Decimal`, so that they keep all digits.
"""

from __future__ import annotations

import base64
import decimal
import json
from collections.abc import Callable, Mapping
from typing import Any

from felice.pipelines.errors import FormatError
from felice.pipelines.sql.rows.numbers import (
    as_double,
    decimal_of,
    double_of,
    fitting,
    time_of,
    truncated,
    whole_of,
)
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
    Decimal,
    Map,
    SqlType,
    Struct,
    text_of,
)

Coerce = Callable[[Any], Any]
"""value of JSON -> value of SQL. Raises `Misfit`."""
_MOST_SHOWN = 60


class Misfit(FormatError):
    """A value that is not of its type. The text begins with its place in the whole, which is `$`."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"${path}: {reason}")
        self._reason, self._path = reason, path

    def inside(self, part: str) -> Misfit:
        """The same of the whole in which the value is a part."""
        return Misfit(self._reason, part + self._path)


class Names:
    """How fields of JSON are found that do not have exactly the names of columns."""

    def __init__(self, fold: Callable[[str], str]) -> None:
        """`fold` is what a column's name must equal when the name of a field is in capitals."""
        self._fold = fold

    def find(self, fields: Mapping[str, Any], name: str) -> str | None:
        """The name of the field that a column reads, if none has its name; None if there is none."""
        wanted = self._fold(name)
        found = None
        for one in fields:
            if one.upper() == wanted:
                found = one  # The last one counts.
        return found


CAPITALS = Names(lambda name: name)
"""A column reads a field whose name is the column's in other case; a column with small letters only its own."""
ANY_CASE = Names(str.upper)
"""Case never matters, if no field has exactly the name."""


def _no_number(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


# `json.loads` makes one for each text, which takes longer than the work itself.
_SPACES, _ENDS = " \t\n\r", '}]"'
_DECODER = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=_no_number)


def loaded(data: bytes) -> Any:
    """The value that JSON begins with, as Jackson reads it: what follows is ignored, and so is a byte order mark.
    Numbers keep their digits. Raises ValueError for what is not JSON.
    """
    try:
        return _first(data.decode())
    except UnicodeDecodeError:
        return _first(data.decode(json.detect_encoding(data)))
    except decimal.InvalidOperation:
        raise ValueError("the exponent of a number is too large") from None


def _first(text: str) -> Any:
    text = text.removeprefix("\ufeff").strip(_SPACES)
    value, end = _DECODER.raw_decode(text)
    if end < len(text) and text[end - 1] not in _ENDS and text[end] not in _SPACES:
        raise ValueError("the value has no end")
    return value


def coercion(type_: SqlType, names: Names) -> Coerce:
    """The function that makes values of a type."""
    match type_:
        case Array(element):
            return _array(type_, coercion(element, names))
        case Map(key, value):
            return _map(type_, _key(key, names), coercion(value, names))
        case Struct():
            return _struct(type_, names)
        case Decimal():
            fit = fitting(type_)
            return _scalar(type_, lambda value: fit(_as_decimal(value)))
        case _:
            return _scalar(type_, _SCALARS[type_])


def _key(type_: SqlType, names: Names) -> Coerce:
    """The function that makes keys of a map; they come as texts."""
    if type_ != BOOLEAN:
        return coercion(type_, names)
    return _scalar(type_, lambda name: _boolean({"true": True, "false": False}.get(name)))


def _struct(type_: Struct, names: Names) -> Coerce:
    fields = [(name, coercion(one, names)) for name, one in type_.fields]
    find = names.find

    def make(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _refusal(type_, value)
        row, name = [], ""
        try:
            for name, coerce in fields:
                spelled = name if name in value else find(value, name)
                row.append(None if spelled is None else coerce(value[spelled]))
        except Misfit as error:
            raise error.inside(f".{name}") from None
        return tuple(row)

    return make


def _array(type_: Array, element: Coerce) -> Coerce:
    def make(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise _refusal(type_, value)
        made: list[Any] = []
        try:
            for one in value:
                made.append(element(one))
        except Misfit as error:
            raise error.inside(f"[{len(made)}]") from None
        return made

    return make


def _map(type_: Map, key: Coerce, member: Coerce) -> Coerce:
    def make(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _refusal(type_, value)
        made, name = {}, ""
        try:
            for name, one in value.items():
                made[key(name)] = member(one)
        except Misfit as error:
            raise error.inside(f".{name}") from None
        return made

    return make


def _scalar(type_: SqlType, convert: Callable[[Any], Any]) -> Coerce:
    def make(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except TypeError:
            raise _refusal(type_, value) from None
        except (ValueError, OverflowError) as error:
            raise Misfit(str(error)) from None

    return make


def _refusal(type_: SqlType, value: Any) -> Misfit:
    text = text_of_json(value)
    shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    return Misfit(f"expected {text_of(type_)}, and got {shown}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(bits: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, str):
            return whole_of(value, bits)
        if not _is_number(value):
            raise TypeError
        return truncated(value, bits)

    return convert


def _double(value: Any) -> float:
    if isinstance(value, str):
        return double_of(value)
    if not _is_number(value):
        raise TypeError
    return as_double(value)


def _as_decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, str):
        return decimal_of(value)
    if not _is_number(value):
        raise TypeError
    return decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    return base64.b64decode(value, validate=True)


def _string(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join('null' if one is None else _string(one) for one in value)}]"
    return value if isinstance(value, str) else text_of_json(value)


def text_of_json(value: Any) -> str:
    """The JSON of a parsed value, with all digits of its numbers and without spaces."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{_quoted(name)}:{text_of_json(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(text_of_json, value))}]"
    return str(value) if isinstance(value, decimal.Decimal) else _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_INT, _LONG = _whole(32), _whole(64)
_SCALARS: dict[SqlType, Callable[[Any], Any]] = {
    BOOLEAN: _boolean,
    INTEGER: _INT,
    BIGINT: _LONG,
    DOUBLE: _double,
    STRING: _string,
    BYTES: _bytes,
    DATE: _INT,
    TIME: lambda value: time_of(_LONG(value)),
    TIMESTAMP: _LONG,
}
