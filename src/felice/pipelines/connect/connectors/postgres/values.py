"""Types of PostgreSQL's columns: their schemas, and their values from the texts that the server writes. Pure.

The texts are those of a session with `SESSION` settings. Schemas have the names of Debezium's types.

Source: Debezium's manual, "PostgreSQL connector: data type mappings".
"""

from __future__ import annotations

import base64
import decimal
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.schema import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    STRUCT,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    array,
    decimal_of,
    logical,
    simple,
    struct,
)

SESSION = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
}
_DAY_US = 86_400_000_000
_DAYS_OF_MONTH = 365.25 / 12
_INFINITE_US = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}
_INFINITE_DAYS = {"infinity": 2**31 - 1, "-infinity": -(2**31)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Read = Callable[[str], Any]
"""The value of a text. Raises `DataError`."""


@dataclass(frozen=True, slots=True)
class ServerType:
    """A type as the server's catalogue has it; a domain is the type that it is made of."""

    name: str
    labels: tuple[str, ...] = ()
    """Of an enumeration."""
    item: ServerType | None = None
    """Of an array."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A schema, and how its values are read."""

    schema: Schema
    read: Read


def column_type(kind: ServerType, modifier: int, options: Mapping[str, Any], *, optional: bool) -> ColumnType:
    """The type of a column. `modifier` is the server's: lengths and digits. A type without a row here is its text."""
    found = _required(kind, modifier, options)
    schema = found.schema.made_optional() if optional else found.schema
    if schema.type == STRUCT:  # a struct has just the schema of its place
        return ColumnType(schema, lambda text: Struct(schema, found.read(text)))
    return ColumnType(schema, found.read)


def _required(kind: ServerType, modifier: int, options: Mapping[str, Any]) -> ColumnType:
    if kind.item is not None:
        item = column_type(kind.item, modifier, options, optional=True)
        return ColumnType(array(item.schema), lambda text: _array(text, item.read))
    if kind.labels:
        allowed = (("allowed", ",".join(kind.labels)),)
        return ColumnType(replace(_named(STRING, "io.debezium.data.Enum"), parameters=allowed), str)
    if kind.name in _MADE:
        return _MADE[kind.name](modifier, options)
    return _SIMPLE.get(kind.name, _TEXT)


def neutral(schema: Schema) -> Any:
    """What stands for the value of a column that the server did not send, where the schema needs one."""
    if schema.optional:
        return None
    if schema.name == DECIMAL:
        return decimal.Decimal(0).scaleb(-int(schema.parameter("scale") or 0))
    if schema.name in _NEUTRAL:
        return _NEUTRAL[schema.name]
    if schema.type == STRUCT:
        return Struct(schema, {one.name: neutral(one.schema) for one in schema.fields})
    return _NEUTRAL[schema.type]


_NEUTRAL: dict[str, Any] = {
    **dict.fromkeys((INT16, INT32, INT64), 0),
    **dict.fromkeys((FLOAT32, FLOAT64), 0.0),
    BOOLEAN: False,
    STRING: "",
    BYTES: b"",
    ARRAY: [],
    DATE: date(1970, 1, 1),
    TIME: time(),
    TIMESTAMP: _EPOCH,
}


def _named(kind: str, name: str) -> Schema:
    return Schema(kind, name=name, version=1)


# Numbers


def _bool(text: str) -> bool:
    return text == "t"


def _numeric(modifier: int, options: Mapping[str, Any]) -> ColumnType:
    mode = options["decimal.handling.mode"]
    if mode == "string":
        return _TEXT
    if mode == "double":
        return ColumnType(simple(FLOAT64), float)
    scale = (modifier - 4) & 0x7FF
    if modifier < 4 or scale >= 1024:  # without digits, or with a scale below 0
        return ColumnType(_VARIABLE, _variable)
    return ColumnType(decimal_of(scale), _decimal)


_VARIABLE = struct(
    {"scale": simple(INT32), "value": simple(BYTES)}, name="io.debezium.data.VariableScaleDecimal", version=1
)


def _variable(text: str) -> dict[str, Any]:
    value = _decimal(text)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    unscaled = int(value.scaleb(-exponent))
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    data = unscaled.to_bytes(length, "big", signed=True)
    return {"scale": -exponent, "value": data}


def _decimal(text: str) -> decimal.Decimal:
    value = decimal.Decimal(text)
    if not value.is_finite():
        raise DataError(f"the number {text} is no decimal: set decimal.handling.mode to double or string")
    return value


def _money(modifier: int, options: Mapping[str, Any]) -> ColumnType:
    inner = _numeric((20 << 16 | 2) + 4, options)
    return ColumnType(inner.schema, lambda text: inner.read(re.sub(r"[^0-9.-]", "", text)))


# Times


_DATE = re.compile(r"(\d+)-(\d\d)-(\d\d)")
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


def _days(text: str) -> int:
    """The days since 1970, for all years that the server has."""
    found = _DATE.match(text)
    if found is None:
        raise DataError(f"the date {text:.40} cannot be read")
    year, month, day = map(int, found.groups())
    if text.endswith("BC"):
        year = 1 - year
    # The days of a calendar whose year begins in March: then a leap day is a year's last one.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _time_us(text: str) -> int:
    """The microseconds of a day."""
    found = _TIME.match(text)
    if found is None:
        raise DataError(f"the time {text:.40} cannot be read")
    hour, minute, second, fraction = found.groups()
    seconds = (int(hour) * 60 + int(minute)) * 60 + int(second)
    return seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))


def _timestamp_us(text: str) -> int:
    """The microseconds since 1970."""
    if text in _INFINITE_US:
        return _INFINITE_US[text]
    day, _, rest = text.partition(" ")
    return _days(day + (" BC" if text.endswith("BC") else "")) * _DAY_US + _time_us(rest)


def _date_type(modifier: int, options: Mapping[str, Any]) -> ColumnType:
    if options["time.precision.mode"] == "connect":
        return ColumnType(logical(DATE), lambda text: _moment(_timestamp_us(f"{text} 00:00:00"), text).date())
    read: Read = lambda text: _INFINITE_DAYS[text] if text in _INFINITE_DAYS else _days(text)  # noqa: E731
    return ColumnType(_named(INT32, "io.debezium.time.Date"), read)


def _time_type(modifier: int, options: Mapping[str, Any]) -> ColumnType:
    mode = options["time.precision.mode"]
    if mode == "connect":
        return ColumnType(logical(TIME), lambda text: _moment(_time_us(text) % _DAY_US, text).time())
    if mode == "adaptive" and 0 <= modifier <= 3:
        return ColumnType(_named(INT32, "io.debezium.time.Time"), lambda text: _time_us(text) // 1000)
    return ColumnType(_named(INT64, "io.debezium.time.MicroTime"), _time_us)


def _timestamp_type(modifier: int, options: Mapping[str, Any]) -> ColumnType:
    mode = options["time.precision.mode"]
    if mode == "connect":
        return ColumnType(logical(TIMESTAMP), lambda text: _moment(_timestamp_us(text), text))
    if 0 <= modifier <= 3:
        return ColumnType(
            _named(INT64, "io.debezium.time.Timestamp"), lambda text: _timestamp_us(text) // 1000
        )
    return ColumnType(_named(INT64, "io.debezium.time.MicroTimestamp"), _timestamp_us)


def _moment(us: int, text: str) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        raise DataError(
            f"the time {text:.40} is not in the years 1 to 9999: set time.precision.mode to adaptive"
        ) from None


def _zoned(text: str) -> str:
    """ISO 8601 of a time with its zone, which is UTC for timestamps."""
    if text in _INFINITE_US:
        return text
    found = re.fullmatch(r"(?:(\S+) )?([0-9:.]+)([+-]\d\d)(:\d\d)?(:\d\d)?( BC)?", text)
    if found is None:
        raise DataError(f"the time {text:.40} cannot be read")
    day, clock, hours, minutes, _, era = found.groups()
    zone = "Z" if hours == "+00" and minutes is None else f"{hours}{minutes or ':00'}"
    if day is None:
        return clock + zone
    return f"{'-' if era else ''}{day}T{clock}{zone}"


_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)


def _interval_type(modifier: int, options: Mapping[str, Any]) -> ColumnType:
    if options["interval.handling.mode"] == "string":
        return ColumnType(_named(STRING, "io.debezium.time.Interval"), str)
    return ColumnType(_named(INT64, "io.debezium.time.MicroDuration"), _interval_us)


def _interval_us(text: str) -> int:
    """Microseconds, in which a month has the average number of days."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise DataError(f"the interval {text:.40} cannot be read")
    years, months, days, hours, minutes = (int(one or 0) for one in found.groups()[:5])
    seconds_us = int(decimal.Decimal(found[6] or 0) * 1_000_000)
    whole_days = (years * 12 + months) * _DAYS_OF_MONTH + days
    return int(whole_days * _DAY_US) + (hours * 60 + minutes) * 60_000_000 + seconds_us


# Bytes


def _bytea(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("\\x"))
    except ValueError:
        raise DataError("a value of bytea cannot be read") from None


def _bytea_type(modifier: int, options: Mapping[str, Any]) -> ColumnType:
    mode = options["binary.handling.mode"]
    if mode == "bytes":
        return ColumnType(simple(BYTES), _bytea)
    encode: Callable[[bytes], str] = {
        "base64": lambda data: base64.standard_b64encode(data).decode(),
        "base64-url-safe": lambda data: base64.urlsafe_b64encode(data).decode(),
        "hex": bytes.hex,
    }[mode]
    return ColumnType(simple(STRING), lambda text: encode(_bytea(text)))


def _bit_type(modifier: int, options: Mapping[str, Any]) -> ColumnType:
    if modifier == 1:
        return ColumnType(simple(BOOLEAN), lambda text: text == "1")
    length = (("length", str(modifier if modifier > 0 else 2**31 - 1)),)
    schema = replace(_named(BYTES, "io.debezium.data.Bits"), parameters=length)
    return ColumnType(schema, lambda text: int(text or "0", 2).to_bytes((len(text) + 7) // 8, "little"))


# Arrays


def _array(text: str, read: Read) -> list[Any]:
    """The items of an array of one dimension."""
    body = re.sub(r"^\[[^=]*\]=", "", text)  # bounds other than 1 stand before it
    if not (body.startswith("{") and body.endswith("}")):
        raise DataError(f"the array {text:.40} cannot be read")
    found: list[Any] = []
    at, end = 1, len(body) - 1
    while at < end:
        if body[at] == "{":
            raise DataError(
                "an array has more than one dimension, which has no schema: see column.exclude.list"
            )
        item, quoted = "", body[at] == '"'
        if quoted:
            at += 1
            while body[at] != '"':
                at += body[at] == "\\"
                item += body[at]
                at += 1
            at += 1
        else:
            stop = body.find(",", at, end)
            stop = end if stop < 0 else stop
            item, at = body[at:stop], stop
        found.append(None if item == "NULL" and not quoted else read(item))
        at += 1  # the comma
    return found


_TEXT = ColumnType(simple(STRING), str)
_SIMPLE = {
    "bool": ColumnType(simple(BOOLEAN), _bool),
    "int2": ColumnType(simple(INT16), int),
    "int4": ColumnType(simple(INT32), int),
    "int8": ColumnType(simple(INT64), int),
    "oid": ColumnType(simple(INT64), int),
    "float4": ColumnType(simple(FLOAT32), float),
    "float8": ColumnType(simple(FLOAT64), float),
    "timestamptz": ColumnType(_named(STRING, "io.debezium.time.ZonedTimestamp"), _zoned),
    "timetz": ColumnType(_named(STRING, "io.debezium.time.ZonedTime"), _zoned),
    "uuid": ColumnType(_named(STRING, "io.debezium.data.Uuid"), str),
    "json": ColumnType(_named(STRING, "io.debezium.data.Json"), str),
    "jsonb": ColumnType(_named(STRING, "io.debezium.data.Json"), str),
    "xml": ColumnType(_named(STRING, "io.debezium.data.Xml"), str),
    "ltree": ColumnType(_named(STRING, "io.debezium.data.Ltree"), str),
}
_MADE: dict[str, Callable[[int, Mapping[str, Any]], ColumnType]] = {
    "numeric": _numeric,
    "money": _money,
    "date": _date_type,
    "time": _time_type,
    "timestamp": _timestamp_type,
    "interval": _interval_type,
    "bytea": _bytea_type,
    "bit": _bit_type,
    "varbit": _bit_type,
}
