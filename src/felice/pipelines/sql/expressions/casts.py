"""CAST: values of one type as values of another. The values are not null."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from felice.pipelines.java.texts import DAY_MS
from felice.pipelines.sql import types
from felice.pipelines.sql.expressions.arithmetic import fitting, limits, wrapper
from felice.pipelines.sql.expressions.moments import date_of, time_of, timestamp_of
from felice.pipelines.sql.expressions.texts import text_function
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
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

Conversion = Callable[[Any], Any]
_WHOLE = (INTEGER, BIGINT)
_TRUE, _FALSE = ("true", "yes"), ("false", "no")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?\s*", re.ASCII)
_WHOLE_NUMBER = re.compile(r"\s*[+-]?\d{1,400}\s*", re.ASCII)
_DOUBLE = re.compile(r"\s*([+-]?)(NaN|Infinity)\s*")


def cast(given: SqlType, wanted: SqlType) -> Conversion | None:
    """The function of a cast; None if there is none. It raises ValueError for values that it cannot convert."""
    if given == wanted:
        return _same
    match given, wanted:
        case (Array(own), Array(element)):
            return _all_elements(cast(own, element))
        case (Map(own_key, own), Map(key, value)):
            return _all_entries(cast(own_key, key), cast(own, value))
        case (Struct(own_fields), Struct(fields)):
            return _struct(own_fields, fields)
    if wanted == STRING:
        return text_function(given)
    return _of_primitives(given, wanted)


def _same(value: Any) -> Any:
    return value


def _of_primitives(given: SqlType, wanted: SqlType) -> Conversion | None:
    if given == STRING:
        return _from_text(wanted)
    if types.is_number(given) and types.is_number(wanted):
        return _number(given, wanted)
    return _MOMENTS.get((given, wanted))


_MOMENTS: dict[tuple[SqlType, SqlType], Conversion] = {
    (TIMESTAMP, DATE): lambda ms: ms // DAY_MS,
    (TIMESTAMP, TIME): lambda ms: ms % DAY_MS,
    (DATE, TIMESTAMP): lambda days: days * DAY_MS,
}


def _number(given: SqlType, wanted: SqlType) -> Conversion:
    if wanted == DOUBLE:
        return float
    if isinstance(wanted, types.Decimal):
        fit = fitting(wanted)
        if given == DOUBLE:
            return lambda value: fit(_finite(value))
        return lambda value: fit(Decimal(value))
    if given == DOUBLE:
        return truncation(wanted)
    if (given, wanted) == (INTEGER, BIGINT):
        return _same
    wrap = wrapper(wanted)
    return lambda value: wrap(int(value))


def _finite(value: float) -> Decimal:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a decimal number")
    return Decimal(repr(value))


@lru_cache
def truncation(wanted: SqlType) -> Callable[[float], int]:
    """Java's cast of a double to INTEGER or BIGINT: truncated, the nearest number of the type, and 0 for NaN."""
    least, greatest = limits(wanted)

    def truncate(value: float) -> int:
        if value != value:
            return 0
        if math.isinf(value):
            return greatest if value > 0 else least
        return max(least, min(greatest, int(value)))

    return truncate


def _from_text(wanted: SqlType) -> Conversion | None:
    if wanted in _WHOLE:
        return whole_of_text(wanted)
    if isinstance(wanted, types.Decimal):
        fit = fitting(wanted)
        return lambda text: fit(decimal_of_text(text))
    return {
        BOOLEAN: boolean_of_text,
        DOUBLE: double_of_text,
        DATE: date_of,
        TIME: time_of,
        TIMESTAMP: timestamp_of,
    }.get(wanted)  # type: ignore[arg-type]


@lru_cache
def whole_of_text(wanted: SqlType) -> Callable[[str], int]:
    """The function that reads INTEGER or BIGINT."""
    least, greatest = limits(wanted)

    def read(text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text):
            raise ValueError(f"expected a whole number, and got {text!r}")
        number = int(text)
        if not least <= number <= greatest:
            raise ValueError(f"{text} is outside the range of {types.text_of(wanted)}")
        return number

    return read


def boolean_of_text(text: str) -> bool:
    """Any beginning of `true` and of `yes` is true; other texts are false, as in ksqlDB."""
    lower = text.strip().lower()
    return bool(lower) and any(word.startswith(lower) for word in _TRUE)


def known_boolean_of_text(text: str) -> bool:
    """Any beginning of `true` and of `yes` is true, any beginning of `false` and of `no` false. Raises ValueError."""
    if boolean_of_text(text):
        return True
    lower = text.strip().lower()
    if lower and any(word.startswith(lower) for word in _FALSE):
        return False
    raise ValueError(f"expected true or false, and got {text!r}")


def decimal_of_text(text: str) -> Decimal:
    """A number. Raises ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"expected a number, and got {text!r}")
    try:
        return Decimal(text.strip())
    except decimal.InvalidOperation:
        raise ValueError(f"expected a number, and got {text!r}") from None


def double_of_text(text: str) -> float:
    """A double, NaN or Infinity. Raises ValueError."""
    if found := _DOUBLE.fullmatch(text):
        return math.copysign(math.inf, -1 if found[1] == "-" else 1) if found[2] == "Infinity" else math.nan
    return float(decimal_of_text(text))


def _all_elements(convert: Conversion | None) -> Conversion | None:
    if convert is None:
        return None
    each = nullable(convert)
    return lambda values: list(map(each, values))


def _all_entries(key: Conversion | None, value: Conversion | None) -> Conversion | None:
    if key is None or value is None:
        return None
    of_key, of_value = nullable(key), nullable(value)
    return lambda entries: {of_key(one): of_value(other) for one, other in entries.items()}


def _struct(
    given: tuple[tuple[str, SqlType], ...], wanted: tuple[tuple[str, SqlType], ...]
) -> Conversion | None:
    """Fields by name: those that are missing become null, those that are not wanted are left out."""
    places = {name: place for place, (name, _) in enumerate(given)}
    own = dict(given)
    converted: list[tuple[int | None, Conversion]] = []
    for name, type_ in wanted:
        convert = cast(own[name], type_) if name in own else _same
        if convert is None:
            return None
        converted.append((places.get(name), nullable(convert)))
    return lambda row: tuple(None if place is None else convert(row[place]) for place, convert in converted)


def nullable(convert: Conversion) -> Conversion:
    """The same function, for which null stays null."""
    return lambda value: None if value is None else convert(value)
