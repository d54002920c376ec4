"""Values of Connect in messages of Protobuf, and back. Pure, with protobuf.

Times have milliseconds, as Connect's. Whole numbers without a sign become those with one, as in Java.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from felice.pipelines.connect.converters.protobuf_schemas import is_map, is_wrapper
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.schema import (
    ARRAY,
    DATE,
    DECIMAL,
    INT64,
    MAP,
    SCALE,
    STRUCT,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)
_NANOS = 1_000_000
_EXACT = decimal.Context(prec=10_000, traps=[decimal.Inexact, decimal.InvalidOperation])


def fill(message: Any, schema: Schema, value: Struct) -> None:
    """Sets the fields of an empty message. Raises ValueError or `DataError` for what it cannot hold."""
    fields = message.DESCRIPTOR.fields_by_name
    for one in schema.fields:
        found = value[one.name]
        if found is not None:
            field = fields.get(one.name)
            if field is None:
                raise DataError(f"the registered schema has no field {one.name}")
            _set(message, field, one.schema, found)


def _set(message: Any, field: FieldDescriptor, schema: Schema, value: Any) -> None:
    if schema.type == MAP:
        _set_map(getattr(message, field.name), schema, value)
    elif schema.type == ARRAY:
        assert schema.value_schema is not None
        if any(one is None for one in value):
            raise DataError("arrays of Protobuf hold no null")
        target, items = getattr(message, field.name), schema.value_schema
        if field.message_type is None:
            target.extend(value)
        else:
            for one in value:
                _fill_any(target.add(), items, one)
    elif field.message_type is None:
        setattr(message, field.name, value)
    else:
        target = getattr(message, field.name)
        target.SetInParent()
        _fill_any(target, schema, value)


def _set_map(target: Any, schema: Schema, value: dict[Any, Any]) -> None:
    assert schema.value_schema is not None
    for key, one in value.items():
        if key is None or one is None:
            raise DataError("maps of Protobuf hold no null")
        if isinstance(one, Struct) or schema.value_schema.name in _FILLS:
            _fill_any(target[key], schema.value_schema, one)
        else:
            target[key] = one


def _fill_any(target: Any, schema: Schema, value: Any) -> None:
    """Sets the fields of a message for a struct, a date, a time, a decimal, or a wrapped value."""
    if schema.name in _FILLS:
        _FILLS[schema.name](target, schema, value)
    elif schema.type == STRUCT:
        fill(target, schema, value)
    else:
        target.value = value


def _fill_decimal(target: Any, schema: Schema, value: decimal.Decimal) -> None:
    scale = int(schema.parameter(SCALE) or 0)
    unscaled = int(value.scaleb(scale, _EXACT))
    target.value = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    target.precision, target.scale = len(str(abs(unscaled))), scale


def _fill_date(target: Any, schema: Schema, value: datetime.date) -> None:
    target.year, target.month, target.day = value.year, value.month, value.day


def _fill_time(target: Any, schema: Schema, value: datetime.time) -> None:
    target.hours, target.minutes, target.seconds = value.hour, value.minute, value.second
    target.nanos = value.microsecond // 1000 * _NANOS


def _fill_timestamp(target: Any, schema: Schema, value: datetime.datetime) -> None:
    seconds, ms = divmod((value - _EPOCH) // _MS, 1000)
    target.seconds, target.nanos = seconds, ms * _NANOS


_FILLS: dict[str | None, Callable[[Any, Schema, Any], None]] = {
    DECIMAL: _fill_decimal,
    DATE: _fill_date,
    TIME: _fill_time,
    TIMESTAMP: _fill_timestamp,
}


def connect_value(schema: Schema, message: Any) -> Struct:
    """The struct of a message. Raises `DataError`."""
    fields = message.DESCRIPTOR.fields_by_name
    return Struct(schema, {one.name: _read(message, fields[one.name], one.schema) for one in schema.fields})


def _read(message: Any, field: FieldDescriptor, schema: Schema) -> Any:
    if is_map(field):
        assert schema.key_schema is not None and schema.value_schema is not None
        keys, values = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return {
            _single(key, keys, schema.key_schema): _single(one, values, schema.value_schema)
            for key, one in getattr(message, field.name).items()
        }
    if field.is_repeated:
        assert schema.value_schema is not None
        return [_single(one, field, schema.value_schema) for one in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name):
        return None if schema.optional else field.default_value
    return _single(getattr(message, field.name), field, schema)


def _single(value: Any, field: FieldDescriptor, schema: Schema) -> Any:
    kind = field.message_type
    if kind is None:
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return str(value) if known is None else known.name
        if schema.type == INT64 and value >= 1 << 63:
            return value - (1 << 64)
        return value
    if schema.name in _READS:
        return _READS[schema.name](value)
    if schema.type == STRUCT:
        return connect_value(schema, value)
    assert is_wrapper(kind), f"{kind.full_name} is no {schema.type}"
    return _single(value.value, kind.fields_by_name["value"], schema)


def _decimal_of(value: Message | Any) -> decimal.Decimal:
    if abs(value.scale) > 1000:
        raise DataError(f"a decimal has the scale {value.scale}")
    unscaled = decimal.Decimal(int.from_bytes(value.value, "big", signed=True))
    return unscaled.scaleb(-value.scale, _EXACT)


def _date_of(value: Any) -> datetime.date:
    try:
        return datetime.date(value.year, value.month, value.day)
    except ValueError as error:
        raise DataError(f"a date of Protobuf is no whole date: {error}") from None


def _time_of(value: Any) -> datetime.time:
    try:
        return datetime.time(value.hours, value.minutes, value.seconds, value.nanos // _NANOS * 1000)
    except ValueError as error:
        raise DataError(f"a time of Protobuf is no time of a day: {error}") from None


def _timestamp_of(value: Any) -> datetime.datetime:
    try:
        return _EPOCH + datetime.timedelta(seconds=value.seconds, milliseconds=value.nanos // _NANOS)
    except OverflowError:
        raise DataError(f"a timestamp of Protobuf is not in the years 1 to 9999: {value.seconds} s") from None


_READS: dict[str | None, Callable[[Any], Any]] = {
    DECIMAL: _decimal_of,
    DATE: _date_of,
    TIME: _time_of,
    TIMESTAMP: _timestamp_of,
}
