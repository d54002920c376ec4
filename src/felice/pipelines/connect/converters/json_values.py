"""Values of Connect as JSON, in the forms that Kafka's JsonConverter gives them.

Maps with text as keys are objects, others are arrays of pairs. Decimals are their unscaled number in base64,
or numbers.
Dates, times and timestamps are whole numbers: days, milliseconds of a day, milliseconds since 1970.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import math
import re
import struct
import uuid
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
    INT8,
    INT16,
    INT32,
    INT64,
    MAP,
    SCALE,
    STRING,
    STRUCT,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY = datetime.date(1970, 1, 1)
_WHOLE = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
_FLOAT = struct.Struct(">f")
_AS_THEY_ARE = frozenset((str, int, bool))
"""Most values: JSON has them as they are."""


@dataclass(frozen=True, slots=True)
class Style:
    """`numeric`: decimals are numbers. `fills`: a null stands for its schema's default.

    `has_entries`: maps whose keys are no texts are arrays of objects with `key` and `value`, and not of pairs.
    """

    numeric: bool
    fills: bool
    has_entries: bool = False


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_bytes(value: Any) -> bytes:
    """The JSON text of what `to_json` made. Raises `DataError`."""
    try:
        text = _ENCODER.encode(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"the value cannot be written as JSON: {error}") from None
    return _decimals_written(text).encode(errors="surrogatepass")


def parsed_json(data: bytes, decoder: json.JSONDecoder) -> Any:
    """The value of a JSON text. Raises `DataError`."""
    try:
        return decoder.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
        ) from None


def to_json(schema: Schema | None, value: Any, style: Style) -> Any:
    """What `json_bytes` writes for a value. Raises `DataError`."""
    if type(value) in _AS_THEY_ARE and (schema is None or schema.name not in _TO_JSON):
        return value
    if value is None:
        if schema is None:
            return None
        if schema.has_default and style.fills and schema.default is not None:
            return to_json(schema, schema.default, style)
        if schema.optional:
            return None
        raise DataError("Conversion error: null value for field that is required and has no default value")
    if schema is not None and schema.name in _TO_JSON:
        expected, write = _TO_JSON[schema.name]
        if not isinstance(value, expected):
            raise DataError(f"Invalid type for {schema.name}: {type(value).__name__}")
        return write(schema, value, style.numeric)
    if isinstance(value, Struct):
        if schema is not None and value.schema != schema:
            raise DataError("Mismatching schema.")
        get = value.__getitem__ if style.fills else value.without_default
        return {one.name: to_json(one.schema, get(one.name), style) for one in value.schema.fields}
    if isinstance(value, dict):
        return _map(schema, value, style)
    if isinstance(value, list):
        items = None if schema is None else schema.value_schema
        return [to_json(items, one, style) for one in value]
    if isinstance(value, bytes):
        return base64.standard_b64encode(value).decode()
    if isinstance(value, decimal.Decimal) and schema is None:
        return _digits(value)
    if isinstance(value, float) and schema is not None and schema.type == FLOAT32:
        return _shortest(value)
    if isinstance(value, int | float | str):
        return value
    raise DataError(f"Couldn't convert {value!r:.80} to JSON.")


def _map(schema: Schema | None, value: dict[Any, Any], style: Style) -> Any:
    keys, values = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
    is_object = all(isinstance(key, str) for key in value) if keys is None else is_of_members(keys, style)
    if is_object:
        return {key: to_json(values, one, style) for key, one in value.items()}
    pairs = [[to_json(keys, key, style), to_json(values, one, style)] for key, one in value.items()]
    return [{"key": key, "value": one} for key, one in pairs] if style.has_entries else pairs


def is_of_members(keys: Schema, style: Style) -> bool:
    """Whether a map with these keys is an object. With entries, keys have a schema that must be kept."""
    return keys == Schema(STRING) if style.has_entries else keys.type == STRING


def from_json(schema: Schema, given: Any, style: Style) -> Any:
    """The value of what `json` read. Raises `DataError`."""
    if given is None:
        if schema.has_default and style.fills:
            return schema.default
        if schema.optional:
            return None
        raise DataError("Invalid null value for required " + schema.type + " field")
    if schema.type == STRING and schema.name is None and type(given) is str:
        return given
    if schema.name in _FROM_JSON:
        return _FROM_JSON[schema.name](schema, given)
    if schema.type == STRUCT:
        if not isinstance(given, dict):
            raise DataError(f"Structs should be encoded as JSON objects, but found {_kind(given)}")
        return Struct(
            schema, {one.name: from_json(one.schema, given.get(one.name), style) for one in schema.fields}
        )
    if schema.type == ARRAY:
        assert schema.value_schema is not None
        if not isinstance(given, list):
            raise DataError(f"Invalid type for ARRAY: {_kind(given)}")
        return [from_json(schema.value_schema, one, style) for one in given]
    if schema.type == MAP:
        return _pairs(schema, given, style)
    return _primitive(schema, given)


def _pairs(schema: Schema, given: Any, style: Style) -> dict[Any, Any]:
    assert schema.key_schema is not None and schema.value_schema is not None
    if is_of_members(schema.key_schema, style):
        if not isinstance(given, dict):
            raise DataError(
                f"Maps with string fields should be encoded as JSON objects, but found {_kind(given)}"
            )
        return {key: from_json(schema.value_schema, one, style) for key, one in given.items()}
    if style.has_entries and isinstance(given, list):
        given = [[one.get("key"), one.get("value")] if isinstance(one, dict) else one for one in given]
    if not isinstance(given, list) or not all(isinstance(one, list) and len(one) == 2 for one in given):
        raise DataError(
            f"Maps with non-string fields should be encoded as JSON arrays of tuples, but found {_kind(given)}"
        )
    return {
        from_json(schema.key_schema, key, style): from_json(schema.value_schema, one, style)
        for key, one in given
    }


def _shortest(value: float) -> float:
    """The number with the fewest digits that is the same as a float of 32 bits."""
    for digits in range(6, 9):
        found = float(f"{value:.{digits}g}")
        if _narrowed(found) == value:
            return found
    return value


def _narrowed(value: float) -> float:
    """The number as a float of 32 bits."""
    try:
        found: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


# The encoder of `json` cannot write a number with more digits than a float has. It gets a text that no other value has.
_MARK = f"decimal {uuid.uuid4().hex} "
_MARKED = re.compile(f'"{_MARK}([0-9.-]+)"')


def _decimals_written(text: str) -> str:
    """The JSON text with its decimals as numbers."""
    return _MARKED.sub(r"\1", text) if _MARK in text else text


def _digits(value: decimal.Decimal) -> str:
    return f"{_MARK}{value:f}"


def _decimal_json(schema: Schema, value: decimal.Decimal, numeric: bool) -> Any:
    if numeric:
        return _digits(value)
    scale, digits = int(schema.parameter(SCALE) or 0), -_exponent(value)
    if digits != scale:
        raise DataError(
            "Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {scale}, value has scale {digits}."
        )
    unscaled = int(value.scaleb(scale))
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return base64.standard_b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


def _exponent(value: decimal.Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "a schema allows no NaN and no infinity"
    return exponent


def _decimal_of(schema: Schema, given: Any) -> decimal.Decimal:
    if isinstance(given, str):
        scale = schema.parameter(SCALE)
        if scale is None:
            raise DataError("Invalid bytes for Decimal field: its schema has no scale")
        try:
            unscaled = int.from_bytes(base64.b64decode(given, validate=True), "big", signed=True)
        except (ValueError, binascii.Error):
            raise DataError(f"Invalid bytes for Decimal field: {given!r:.80}") from None
        return decimal.Decimal(unscaled).scaleb(-int(scale))
    if isinstance(given, int | float | decimal.Decimal) and not isinstance(given, bool):
        return decimal.Decimal(str(given))
    raise DataError(
        f"Invalid type for Decimal, underlying representation should be numeric or bytes but was {_kind(given)}"
    )


def _time_ms(time: datetime.time) -> int:
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1000 + time.microsecond // 1000


def _whole_number(what: str, given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        raise DataError(
            f"Invalid type for {what}, underlying representation should be integer but was {_kind(given)}"
        )
    return given


def _time_of(schema: Schema, given: Any) -> datetime.time:
    ms = _whole_number("Time", given)
    if not 0 <= ms < 86_400_000:
        raise DataError("Time values must use number of milliseconds greater than 0 and less than 86400000")
    return (_EPOCH + datetime.timedelta(milliseconds=ms)).time()


def _date_of(schema: Schema, given: Any) -> datetime.date:
    try:
        return _DAY + datetime.timedelta(days=_whole_number("Date", given))
    except OverflowError:
        raise DataError(f"Date {given} is not in the years 1 to 9999") from None


def _timestamp_of(schema: Schema, given: Any) -> datetime.datetime:
    try:
        return _EPOCH + datetime.timedelta(milliseconds=_whole_number("Timestamp", given))
    except OverflowError:
        raise DataError(f"Timestamp {given} is not in the years 1 to 9999") from None


_TO_JSON: dict[str | None, Any] = {
    DECIMAL: (decimal.Decimal, _decimal_json),
    DATE: (datetime.date, lambda schema, value, _: (value - _DAY).days),
    TIME: (datetime.time, lambda schema, value, _: _time_ms(value)),
    TIMESTAMP: (
        datetime.datetime,
        lambda schema, value, _: (value - _EPOCH) // datetime.timedelta(milliseconds=1),
    ),
}
_FROM_JSON: dict[str | None, Any] = {
    DECIMAL: _decimal_of,
    DATE: _date_of,
    TIME: _time_of,
    TIMESTAMP: _timestamp_of,
}


def _primitive(schema: Schema, given: Any) -> Any:
    kind = schema.type
    is_number = isinstance(given, int | float | decimal.Decimal) and not isinstance(given, bool)
    if kind in _WHOLE and is_number:
        # As Java narrows a number: the fraction is cut, and the lowest bits are kept.
        half = 1 << _WHOLE[kind] - 1
        return (int(given) + half) % (2 * half) - half
    if kind == FLOAT64 and is_number:
        return float(given)
    if kind == FLOAT32 and is_number:
        return _narrowed(float(given))
    if kind == BOOLEAN and isinstance(given, bool):
        return given
    if kind == STRING and isinstance(given, str):
        return given
    if kind == BYTES and isinstance(given, str):
        try:
            return base64.b64decode(given, validate=True)
        except (ValueError, binascii.Error):
            raise DataError("Invalid bytes field") from None
    raise DataError(f"Invalid type for {kind.upper()}: {_kind(given)}")


def plain(value: Any) -> Any:
    """A value without a schema: its numbers are floats, not decimals."""
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value


def _kind(given: Any) -> str:
    """JSON's name of a value's type."""
    if isinstance(given, bool):
        return "boolean"
    if isinstance(given, int | float | decimal.Decimal):
        return "number"
    names: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(given), "null")
