"""Values of SQL to and from messages of Protobuf: a function for each field, made once for a message type."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from felice.pipelines.errors import FormatError
from felice.pipelines.sql.rows.columns import Columns, Row, matching
from felice.pipelines.sql.rows.numbers import double_text, fitting, truncated
from felice.pipelines.sql.rows.proto_text import as_field
from felice.pipelines.sql.rows.protobuf_schema import (
    DECIMAL_MESSAGE,
    KINDS,
    LOGICAL,
    entry_of,
    is_repeated,
    oneofs_of,
    wrapped_in,
)
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
    Decimal,
    Map,
    SqlType,
    Struct,
    text_of,
)

Convert = Callable[[Any], Any]
Get = Callable[[Any], Any]
"""message -> value of a column"""
Put = Callable[[Any, Any], None]
"""(message, value that is not null) -> None"""

_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_NANOS = 1_000_000
_WIDER: dict[SqlType, tuple[SqlType, ...]] = {
    BIGINT: (INTEGER,),
    STRING: (BOOLEAN, INTEGER, BIGINT, DOUBLE),
    DATE: (INTEGER,),
    TIME: (INTEGER,),
    TIMESTAMP: (INTEGER, BIGINT),
}
"""From which other types a column is read."""
_TEXTS: dict[SqlType, Convert] = {BOOLEAN: lambda value: "true" if value else "false", DOUBLE: double_text}


def reader(message: Descriptor, columns: Columns) -> Callable[[bytes], Row]:
    """The function that reads rows from the bytes of messages."""
    kind, gets = GetMessageClass(message), _gets(message, columns, "")

    def read(data: bytes) -> Row:
        try:
            found = kind.FromString(data)
        except DecodeError as error:
            raise FormatError(f"the data is not a {message.full_name}: {error}") from None
        return tuple([get(found) for get in gets])

    return read


def _gets(message: Descriptor, columns: Columns, path: str) -> list[Get]:
    given = _parts(message)
    return [_get(matching(given, name), type_, f"{path}.{name}".lstrip(".")) for name, type_ in columns]


def _parts(message: Descriptor) -> dict[str, FieldDescriptor | OneofDescriptor]:
    """What columns may stand for: fields and oneofs."""
    return {**message.fields_by_name, **oneofs_of(message)}


def _get(found: FieldDescriptor | OneofDescriptor | None, type_: SqlType, path: str) -> Get:
    if found is None:
        return lambda message: None
    if isinstance(found, OneofDescriptor):
        return _oneof(found, type_, path)
    get = _field(found, type_, path)
    if get is not None:
        return get
    reason = f"{path}: expected {text_of(type_)}, and its schema has a field of another type"

    def refuse(message: Any) -> Any:
        raise FormatError(reason)

    return refuse


def _field(field: FieldDescriptor, type_: SqlType, path: str) -> Get | None:
    name = field.name
    if isinstance(type_, Map):
        return _map(field, type_, path)
    if isinstance(type_, Array):
        one = (
            _converted(field, type_.element, path) if is_repeated(field) and entry_of(field) is None else None
        )
        return None if one is None else lambda message: list(map(one, getattr(message, name)))
    convert = None if is_repeated(field) else _converted(field, type_, path)
    if convert is None:
        return None
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _map(field: FieldDescriptor, type_: Map, path: str) -> Get | None:
    entry, name = entry_of(field), field.name
    if entry is None:
        return None
    key_field, member_field = entry.fields_by_name["key"], entry.fields_by_name["value"]
    if entry.GetOptions().map_entry:
        key, member = _converted(key_field, type_.key, path), _converted(member_field, type_.value, path)
        if key is None or member is None:
            return None
        return lambda message: {key(one): member(each) for one, each in getattr(message, name).items()}
    get_key, get_member = _get(key_field, type_.key, path), _get(member_field, type_.value, path)
    return lambda message: {get_key(one): get_member(one) for one in getattr(message, name)}


def _oneof(oneof: OneofDescriptor, type_: SqlType, path: str) -> Get:
    fields: dict[str, FieldDescriptor | OneofDescriptor] = {field.name: field for field in oneof.fields}
    columns = type_.fields if isinstance(type_, Struct) else ()
    gets = [_get(matching(fields, name), one, f"{path}.{name}") for name, one in columns]
    name = oneof.name
    return lambda message: None if message.WhichOneof(name) is None else tuple([get(message) for get in gets])


def _converted(field: FieldDescriptor, type_: SqlType, path: str) -> Convert | None:
    """What makes a value of what a field, or an element of it, holds."""
    message = field.message_type
    if message is None:
        return _scalar(field, type_)
    if isinstance(type_, Struct):
        gets = _gets(message, type_.fields, path)
        return lambda value: tuple([get(value) for get in gets])
    if isinstance(type_, Decimal):
        fit = fitting(type_)
        return (lambda value: fit(_decimal(value))) if message.full_name == DECIMAL_MESSAGE else None
    if (wrapped := wrapped_in(message)) is not None:
        inner = _scalar(wrapped, type_)
        return None if inner is None else lambda value: inner(value.value)
    return _LOGICAL_READS[type_] if LOGICAL.get(message.full_name) == type_ else None


def _scalar(field: FieldDescriptor, type_: SqlType) -> Convert | None:
    kind = KINDS.get(field.type)
    if field.enum_type is not None:
        # Of several names of one number, the first counts.
        names = {value.number: value.name for value in reversed(list(field.enum_type.values))}
        return (lambda number: names.get(number, str(number))) if type_ == STRING else None
    if kind == type_:
        return (lambda value: truncated(value, 64)) if kind == BIGINT else _same
    if kind is None or kind not in _WIDER.get(type_, ()):
        return None
    return _TEXTS.get(kind, str) if type_ == STRING else _same


def _same(value: Any) -> Any:
    return value


def _decimal(value: Any) -> decimal.Decimal:
    whole = int.from_bytes(value.value, signed=True)
    return decimal.Decimal((whole < 0, tuple(map(int, str(abs(whole)))), -value.scale))


_LOGICAL_READS: dict[SqlType, Convert] = {
    DATE: lambda value: datetime.date(value.year, value.month, value.day).toordinal() - _EPOCH_DAY,
    TIME: lambda value: (
        ((value.hours * 60 + value.minutes) * 60 + value.seconds) * 1000 + value.nanos // _NANOS
    ),
    TIMESTAMP: lambda value: value.seconds * 1000 + value.nanos // _NANOS,
}


def writer(message: Descriptor, columns: Columns) -> Callable[[Row], bytes]:
    """The function that writes rows as messages. Raises ValueError if the message type lacks a column."""
    kind, fill = GetMessageClass(message), _fill(message, columns, "")

    def write(row: Row) -> bytes:
        made = kind()
        fill(made, row)
        data: bytes = made.SerializeToString(deterministic=True)
        return data

    return write


def _fill(message: Descriptor, columns: Columns, path: str) -> Put:
    puts = _puts(message, columns, path)

    def fill(made: Any, row: Any) -> None:
        for put, value in zip(puts, row, strict=True):
            if value is not None:
                put(made, value)

    return fill


def _fill_first(message: Descriptor, columns: Columns, path: str) -> Put:
    """Fills one field of a oneof: the field of the first value that is not null, as in Connect."""
    puts = _puts(message, columns, path)

    def fill(made: Any, row: Any) -> None:
        found = next((pair for pair in zip(puts, row, strict=True) if pair[1] is not None), None)
        if found is not None:
            put, value = found
            put(made, value)

    return fill


def _puts(message: Descriptor, columns: Columns, path: str) -> list[Put]:
    puts: list[Put] = []
    for name, type_ in columns:
        place = f"{path}.{name}".lstrip(".")
        put = _put(matching(_parts(message), name), type_, place)
        if put is None:
            raise ValueError(f"the message {message.full_name} has no field for {place} {text_of(type_)}")
        puts.append(put)
    return puts


def _put(field: FieldDescriptor | OneofDescriptor | None, type_: SqlType, path: str) -> Put | None:
    if field is None:
        return None
    if isinstance(field, OneofDescriptor):
        # The fields of a oneof are fields of the message.
        return _fill_first(field.containing_type, type_.fields, path) if isinstance(type_, Struct) else None
    name = field.name
    if isinstance(type_, Map):
        return _put_map(field, type_, path)
    if isinstance(type_, Array):
        return _put_array(field, type_.element, path)
    if is_repeated(field):
        return None
    fill = _fill_one(field, type_, path)
    if fill is None:
        return _put_scalar(name) if field.message_type is None and _holds(field, type_) else None

    def put(message: Any, value: Any) -> None:
        part = getattr(message, name)
        part.SetInParent()
        fill(part, value)

    return put


def _put_scalar(name: str) -> Put:
    return lambda message, value: setattr(message, name, value)


def _put_array(field: FieldDescriptor, element: SqlType, path: str) -> Put | None:
    if not is_repeated(field):
        return None
    name, fill = field.name, _fill_one(field, element, path)
    if fill is None and (field.message_type is not None or not _holds(field, element)):
        return None

    def put(message: Any, values: list[Any]) -> None:
        if None in values:
            raise FormatError(f"{path} contains null, which an ARRAY cannot in this format")
        if fill is None:
            getattr(message, name).extend(values)
            return
        for value in values:
            fill(getattr(message, name).add(), value)

    return put


def _put_map(field: FieldDescriptor, type_: Map, path: str) -> Put | None:
    entry = entry_of(field)
    if entry is None:
        return None
    fill, number = _fill(entry, (("key", type_.key), ("value", type_.value)), path), field.number
    kind = GetMessageClass(entry)

    def put(message: Any, value: dict[Any, Any]) -> None:
        # By bytes: Python shows the entries of some maps as a dict, and those of others as messages.
        for pair in value.items():
            one = kind()
            fill(one, pair)
            message.MergeFromString(as_field(number, one.SerializeToString()))

    return put


def _fill_one(field: FieldDescriptor, type_: SqlType, path: str) -> Put | None:
    """What fills the message that a field holds for one value; None if it holds none, or not of this type."""
    message = field.message_type
    if message is None:
        return None
    if isinstance(type_, Struct):
        return _fill(message, type_.fields, path)
    if isinstance(type_, Decimal):
        return _decimal_fill(type_) if message.full_name == DECIMAL_MESSAGE else None
    if (wrapped := wrapped_in(message)) is not None:
        return _put_scalar("value") if _holds(wrapped, type_) else None
    return _LOGICAL_FILLS[type_] if LOGICAL.get(message.full_name) == type_ else None


def _holds(field: FieldDescriptor, type_: SqlType) -> bool:
    """Whether a field that is no message holds all values of a type. An enum takes texts that are its names."""
    kind = KINDS.get(field.type)
    return kind == type_ or (
        kind is not None and type_ in (INTEGER, DATE, TIME) and kind in (INTEGER, BIGINT)
    )


def _decimal_fill(type_: Decimal) -> Put:
    fit = fitting(type_)

    def fill(message: Any, value: decimal.Decimal) -> None:
        sign, digits, _ = fit(value).as_tuple()
        whole = int("".join(map(str, digits))) * (-1 if sign else 1)
        size = (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
        message.value = whole.to_bytes(size, signed=True)
        message.precision, message.scale = type_.precision, type_.scale

    return fill


def _fill_date(message: Any, days: int) -> None:
    date = datetime.date.fromordinal(days + _EPOCH_DAY)
    message.year, message.month, message.day = date.year, date.month, date.day


def _fill_time(message: Any, milliseconds: int) -> None:
    seconds, rest = divmod(milliseconds, 1000)
    minutes, message.seconds = divmod(seconds, 60)
    message.hours, message.minutes = divmod(minutes, 60)
    message.nanos = rest * _NANOS


def _fill_timestamp(message: Any, milliseconds: int) -> None:
    message.seconds, rest = divmod(milliseconds, 1000)
    message.nanos = rest * _NANOS


_LOGICAL_FILLS: dict[SqlType, Put] = {DATE: _fill_date, TIME: _fill_time, TIMESTAMP: _fill_timestamp}
