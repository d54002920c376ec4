"""Schemas of Connect as files of Protobuf, and message types as schemas of Connect. Pure, with protobuf.

Keeps true:  names, and whole numbers of 8 and 16 bits, come back: they stand in the options `confluent.message_meta`
             and `confluent.field_meta`.
Source:      the rules and names of Confluent's `ProtobufData`: `connect.type`, the parameter
             `io.confluent.connect.protobuf.Tag`, and messages of Google and Confluent for dates, times and decimals.
Differs:     members of a `oneof` are optional members, as with `flatten.unions` there. Documents, versions and defaults
             of schemas are lost.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from felice.client.schema_registry.protobuf_files import new_pool
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
    MOST_PARTS,
    SCALE,
    STRING,
    STRUCT,
    TIME,
    TIMESTAMP,
    Field,
    Schema,
    decimal_of,
    logical,
)

TAG = "io.confluent.connect.protobuf.Tag"
"""The parameter of a member's schema with the field's number."""
_ROOT = "ConnectDefault1"
_NAME, _TYPE, _SCALE = "connect.name", "connect.type", "connect.decimal.scale"
_META_FILE = "confluent/meta.proto"
_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_P = FieldDescriptorProto
_PLAIN = {
    **dict.fromkeys((INT8, INT16, INT32), _P.TYPE_INT32),
    INT64: _P.TYPE_INT64,
    FLOAT32: _P.TYPE_FLOAT,
    FLOAT64: _P.TYPE_DOUBLE,
    BOOLEAN: _P.TYPE_BOOL,
    STRING: _P.TYPE_STRING,
    BYTES: _P.TYPE_BYTES,
}
_LOGICAL = {
    DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    DATE: ("google.type.Date", "google/type/date.proto"),
    TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
_WRAPPER_FILE = "google/protobuf/wrappers.proto"
_WRAPPERS = {
    **dict.fromkeys((INT8, INT16, INT32), "Int32Value"),
    INT64: "Int64Value",
    FLOAT32: "FloatValue",
    FLOAT64: "DoubleValue",
    BOOLEAN: "BoolValue",
    STRING: "StringValue",
    BYTES: "BytesValue",
}
_DEPTH = 30


@dataclass(frozen=True, slots=True)
class Nullables:
    """How a member that may be null is written: with the keyword `optional`, in a wrapper, or without a difference."""

    optional: bool = False
    wrapper: bool = False


def is_wrapper(message: Descriptor) -> bool:
    """Whether a message holds a single value, so that it may be missing."""
    return bool(message.file.name == _WRAPPER_FILE)


# Options


@functools.cache
def _meta(kind: str) -> tuple[type[Any], Any]:
    """The class of options of a kind, `Field` or `Message`, and Confluent's extension of them."""
    pool = new_pool()
    options = GetMessageClass(pool.FindMessageTypeByName(f"google.protobuf.{kind}Options"))
    return options, pool.FindExtensionByName(f"confluent.{kind.lower()}_meta")


def _set_parameters(element: DescriptorProto | FieldDescriptorProto, parameters: Mapping[str, str]) -> None:
    kind, extension = _meta("Field" if isinstance(element, FieldDescriptorProto) else "Message")
    options = kind()
    options.Extensions[extension].params.update(parameters)
    element.options.MergeFromString(options.SerializeToString())


def _parameters(element: Descriptor | FieldDescriptor) -> dict[str, str]:
    kind, extension = _meta("Field" if isinstance(element, FieldDescriptor) else "Message")
    found = kind.FromString(element.GetOptions().SerializeToString()).Extensions[extension].params
    return {str(name): str(value) for name, value in found.items()}


# To Protobuf


def protobuf_file(schema: Schema, nullables: Nullables) -> FileDescriptorProto:
    """The file whose first message is the struct. Raises `DataError` for what Protobuf cannot hold."""
    if schema.type != STRUCT:
        raise DataError(
            f"Protobuf holds structs, and no {schema.type} by itself; use another converter for it"
        )
    package, _, name = (schema.name or _ROOT).rpartition(".")
    for part in package.split(".") if package else ():
        _identifier(part)
    file = FileDescriptorProto(package=package, syntax="proto3")
    made = _Writing(file, nullables)
    made.message(file.message_type.add(name=_identifier(name)), schema, 0)
    for one in sorted(made.imports):
        file.dependency.append(one)
    return file


def _identifier(name: str) -> str:
    if _IDENTIFIER.fullmatch(name) is None:
        raise DataError(
            f"Protobuf has no names like {name!r:.60}: they have letters, digits and _, and begin with no digit"
        )
    return name


class _Writing:
    """Writes the message types of one file."""

    def __init__(self, file: FileDescriptorProto, nullables: Nullables) -> None:
        self._file, self._nullables = file, nullables
        self.imports: set[str] = set()

    def message(self, message: DescriptorProto, schema: Schema, depth: int) -> None:
        """Writes the fields of a struct. A message type within another one has another name than the struct."""
        if depth > _DEPTH:
            raise DataError(f"Protobuf holds structs in structs {_DEPTH} deep at most")
        if depth:
            self._note(message, **{_NAME: schema.name or ""})
        numbers = self._numbers(schema)
        for one in schema.fields:
            field = message.field.add(name=_identifier(one.name), number=numbers[one.name])
            self._field(field, message, one.schema, depth)

    @staticmethod
    def _numbers(schema: Schema) -> dict[str, int]:
        """The fields' numbers: those that are given, and the next free ones."""
        given = {one.name: int(number) for one in schema.fields if (number := one.schema.parameter(TAG))}
        taken = set(given.values())
        if len(taken) < len(given):
            raise DataError(f"two members of {schema.name or 'a struct'} have the same {TAG}")
        free = (number for number in range(1, 1 << 29) if number not in taken)
        return {one.name: given[one.name] if one.name in given else next(free) for one in schema.fields}

    def _field(
        self, field: FieldDescriptorProto, within: DescriptorProto, schema: Schema, depth: int
    ) -> None:
        if schema.type == ARRAY:
            assert schema.value_schema is not None
            field.label = _P.LABEL_REPEATED
            self._single(field, within, schema.value_schema, depth, "an array")
        elif schema.type == MAP:
            self._map(field, within, schema, depth)
        else:
            field.label = _P.LABEL_OPTIONAL
            self._member(field, within, schema, depth)

    def _member(
        self, field: FieldDescriptorProto, within: DescriptorProto, schema: Schema, depth: int
    ) -> None:
        wrapper = _WRAPPERS.get(schema.type) if schema.optional and schema.name not in _LOGICAL else None
        if self._nullables.wrapper and wrapper is not None:
            field.type, field.type_name = _P.TYPE_MESSAGE, f".google.protobuf.{wrapper}"
            self.imports.add(_WRAPPER_FILE)
            self._note_size(field, schema)
            return
        self._typed(field, within, schema, depth)
        if self._nullables.optional and schema.optional and field.type != _P.TYPE_MESSAGE:
            field.proto3_optional = True
            field.oneof_index = len(within.oneof_decl)
            within.oneof_decl.add(name=f"_{field.name}")

    def _single(
        self, field: FieldDescriptorProto, within: DescriptorProto, schema: Schema, depth: int, what: str
    ) -> None:
        """An element of an array, or a value of a map."""
        if schema.type in (ARRAY, MAP):
            raise DataError(f"Protobuf has no {schema.type} within {what}: put it into a struct")
        self._typed(field, within, schema, depth)

    def _map(self, field: FieldDescriptorProto, within: DescriptorProto, schema: Schema, depth: int) -> None:
        assert schema.key_schema is not None and schema.value_schema is not None
        if schema.key_schema.type in (FLOAT32, FLOAT64, BYTES, ARRAY, MAP, STRUCT):
            raise DataError(f"Protobuf has no maps with keys of the type {schema.key_schema.type}")
        words = [word[:1].upper() + word[1:] for word in field.name.split("_")]
        entry = within.nested_type.add(name=f"{''.join(words)}Entry")
        entry.options.map_entry = True
        self._typed(
            entry.field.add(name="key", number=1, label=_P.LABEL_OPTIONAL), entry, schema.key_schema, depth
        )
        value = entry.field.add(name="value", number=2, label=_P.LABEL_OPTIONAL)
        # A type within the entry would be no part of the map's form.
        self._single(value, within, schema.value_schema, depth, "a map")
        field.label, field.type = _P.LABEL_REPEATED, _P.TYPE_MESSAGE
        field.type_name = entry.name

    def _typed(
        self, field: FieldDescriptorProto, within: DescriptorProto, schema: Schema, depth: int
    ) -> None:
        if schema.name in _LOGICAL:
            name, file = _LOGICAL[schema.name]
            field.type, field.type_name = _P.TYPE_MESSAGE, f".{name}"
            self.imports.add(file)
            if schema.name == DECIMAL:
                self._note(field, **{_SCALE: schema.parameter(SCALE) or "0"})
        elif schema.type == STRUCT:
            taken = {one.name for one in within.nested_type} | {within.name}
            simple = _identifier((schema.name or _ROOT).rpartition(".")[2])
            name, number = simple, 1
            while name in taken:
                number += 1
                name = f"{simple}{number}"
            field.type, field.type_name = _P.TYPE_MESSAGE, name
            self.message(within.nested_type.add(name=name), schema, depth + 1)
        else:
            field.type = _PLAIN[schema.type]
            self._note_size(field, schema)

    def _note_size(self, field: FieldDescriptorProto, schema: Schema) -> None:
        if schema.type in (INT8, INT16):
            self._note(field, **{_TYPE: schema.type})

    def _note(self, element: DescriptorProto | FieldDescriptorProto, **parameters: str) -> None:
        _set_parameters(element, parameters)
        self.imports.add(_META_FILE)


# From Protobuf

_CPP = FieldDescriptor
_BY_TYPE = {
    _CPP.CPPTYPE_INT32: INT32,
    _CPP.CPPTYPE_UINT32: INT64,
    _CPP.CPPTYPE_INT64: INT64,
    _CPP.CPPTYPE_UINT64: INT64,
    _CPP.CPPTYPE_FLOAT: FLOAT32,
    _CPP.CPPTYPE_DOUBLE: FLOAT64,
    _CPP.CPPTYPE_BOOL: BOOLEAN,
    _CPP.CPPTYPE_ENUM: STRING,
    _CPP.CPPTYPE_STRING: STRING,
}
_LOGICAL_BY_MESSAGE = {name: kind for kind, (name, _) in _LOGICAL.items()}


def connect_schema(message: Descriptor, nullables: Nullables) -> Schema:
    """The schema of a message type. Raises `DataError` for one that holds itself, or too many fields."""
    return _struct(message, nullables, (), iter(range(MOST_PARTS)))


def _struct(message: Descriptor, nullables: Nullables, path: tuple[str, ...], left: Iterator[int]) -> Schema:
    if message.full_name in path:
        raise DataError(f"the message type {message.full_name} holds itself, for which Connect has no schema")
    fields = []
    for field in message.fields:
        if next(left, None) is None:
            raise DataError(f"a message type has more than {MOST_PARTS:,} fields with those of its members")
        schema = _of_field(field, nullables, (*path, message.full_name), left)
        fields.append(Field(field.name, _with_tag(schema, field.number)))
    given = _parameters(message).get(_NAME)
    name = message.full_name if given is None else given or None
    return Schema(STRUCT, name=None if name == _ROOT else name, fields=tuple(fields))


def _with_tag(schema: Schema, number: int) -> Schema:
    return replace(schema, parameters=(*schema.parameters, (TAG, str(number))))


def _of_field(
    field: FieldDescriptor, nullables: Nullables, path: tuple[str, ...], left: Iterator[int]
) -> Schema:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        keys = _single(key, nullables, path, left)
        return Schema(MAP, key_schema=keys, value_schema=_single(value, nullables, path, left))
    if field.is_repeated:
        return Schema(ARRAY, value_schema=_single(field, nullables, path, left))
    found = _single(field, nullables, path, left)
    if nullables.optional and not field.has_presence and not field.message_type:
        return found
    if nullables.wrapper and not nullables.optional and not field.message_type:
        return found
    return found.made_optional()


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    message = field.message_type
    return bool(message is not None and field.is_repeated and message.GetOptions().map_entry)


def _single(
    field: FieldDescriptor, nullables: Nullables, path: tuple[str, ...], left: Iterator[int]
) -> Schema:
    message = field.message_type
    if message is None:
        if field.type == _CPP.TYPE_BYTES:
            return Schema(BYTES)
        return Schema(_size(field) or _BY_TYPE[field.cpp_type])
    name = _LOGICAL_BY_MESSAGE.get(message.full_name)
    if name == DECIMAL:
        return decimal_of(int(_parameters(field).get(_SCALE, "0")))
    if name is not None:
        return logical(name)
    if nullables.wrapper and is_wrapper(message):
        inner = _single(message.fields_by_name["value"], nullables, path, left)
        return Schema(_size(field) or inner.type, optional=True)
    return _struct(message, nullables, path, left)


def _size(field: FieldDescriptor) -> str | None:
    """The type of a small whole number, if the field notes one."""
    own = _parameters(field).get(_TYPE)
    return own if own in (INT8, INT16) else None
