"""Protobuf's types as Spark's. Where Spark's own `from_protobuf` has a type, the same one is taken.

Leaves out:  messages that contain themselves, which Spark does not have.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from felice.pipelines.spark.registry.mapping import Mapped, array_of, map_of, refused, struct_of

_F = FieldDescriptor
_SIMPLE = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), Mapped(IntegerType())),
    **dict.fromkeys(
        (_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64, _F.TYPE_UINT32, _F.TYPE_FIXED32), Mapped(LongType())
    ),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), Mapped(DecimalType(20, 0), Decimal, int)),
    _F.TYPE_BOOL: Mapped(BooleanType()),
    _F.TYPE_FLOAT: Mapped(FloatType()),
    _F.TYPE_DOUBLE: Mapped(DoubleType()),
    _F.TYPE_STRING: Mapped(StringType()),
    _F.TYPE_BYTES: Mapped(BinaryType()),
}
_TIMESTAMP = "google.protobuf.Timestamp"


def protobuf_mapping(message: Descriptor) -> Mapped:
    """The type of a message. Raises `QueryError` for one that has none. Values are messages of its class."""
    return _message(message, "", ())


def _message(kind: Descriptor, path: str, opened: tuple[str, ...]) -> Mapped:
    if kind.full_name in opened:
        raise refused(path, f"{kind.full_name} contains itself")
    if kind.full_name == _TIMESTAMP:
        return Mapped(TimestampType(), _moment, _timestamp(GetMessageClass(kind)), True)
    opened = (*opened, kind.full_name)
    fields = {one.name: _field(one, f"{path}.{one.name}".lstrip("."), opened) for one in kind.fields}
    present = {one.name for one in kind.fields if one.has_presence}
    made, struct = GetMessageClass(kind), struct_of(fields.items())

    def read(message: Message) -> dict[str, Any]:
        found = {}
        for name, one in fields.items():
            if name in present and not message.HasField(name):
                continue
            value = getattr(message, name)
            found[name] = value if one.read is None else one.read(value)
        return found

    def write(given: dict[str, Any]) -> Message:
        message = made()
        for name, value in given.items():
            if value is not None:
                one = fields[name]
                _put(message, name, value if one.write is None else one.write(value))
        return message

    return Mapped(struct.type, read, write, True)


def _put(message: Message, name: str, value: Any) -> None:
    if isinstance(value, Message):
        getattr(message, name).CopyFrom(value)
        getattr(message, name).SetInParent()
    elif isinstance(value, list):
        getattr(message, name).extend(value)
    elif isinstance(value, dict):
        target = getattr(message, name)
        for key, one in value.items():
            if isinstance(one, Message):
                target[key].CopyFrom(one)
            else:
                target[key] = one
    else:
        setattr(message, name, value)


def _field(field: FieldDescriptor, path: str, opened: tuple[str, ...]) -> Mapped:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = (kind.fields_by_name[name] for name in ("key", "value"))
        return map_of(_single(value, path, opened), _single(key, path, opened))
    one = _single(field, path, opened)
    if field.is_repeated:
        made = array_of(Mapped(one.type, one.read, one.write, False))
        return Mapped(made.type, made.read or list, made.write)
    return Mapped(one.type, one.read, one.write, field.has_presence)


def _single(field: FieldDescriptor, path: str, opened: tuple[str, ...]) -> Mapped:
    if field.message_type is not None:
        return _message(field.message_type, path, opened)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    return _SIMPLE[field.type]


def _enum(kind: Any) -> Mapped:
    names = kind.values_by_number
    numbers = kind.values_by_name

    def read(number: int) -> str:
        known = names.get(number)
        return str(number) if known is None else str(known.name)

    def write(name: str) -> int:
        known = numbers.get(name)
        return int(name) if known is None else int(known.number)

    return Mapped(StringType(), read, write)


def _moment(value: Any) -> datetime.datetime:
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return start + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def _timestamp(made: type[Message]) -> Any:
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    def write(value: datetime.datetime) -> Message:
        micros = (value - start) // datetime.timedelta(microseconds=1)
        return made(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)

    return write
