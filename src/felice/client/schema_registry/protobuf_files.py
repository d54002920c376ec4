"""The files that Protobuf schemas may import without a reference: Google's, and those of Confluent's registry; pure."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

KNOWN = ("confluent/", "google/protobuf/", "google/type/")
"""Folders of files that are known without the registry."""

_GOOGLE = {
    "google.protobuf": "any source_context type api descriptor duration empty field_mask struct timestamp wrappers",
    "google.type": "calendar_period color date datetime dayofweek expr fraction latlng money month postal_address "
    "quaternion timeofday",
}
_TYPES = FieldDescriptorProto
_EXTENDED = {
    "file_meta": "FileOptions",
    "message_meta": "MessageOptions",
    "field_meta": "FieldOptions",
    "enum_meta": "EnumOptions",
    "enum_value_meta": "EnumValueOptions",
}
_META_NUMBER = 1088


def _add(
    message: DescriptorProto, name: str, number: int, kind: int, *, many: bool = False, of: str = ""
) -> None:
    label = _TYPES.LABEL_REPEATED if many else _TYPES.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label, type=kind)
    if of:
        field.type_name = of


def _file(name: str, package: str) -> FileDescriptorProto:
    return FileDescriptorProto(name=name, package=package, syntax="proto3")


def _meta() -> FileDescriptorProto:
    """The options by which schemas carry documentation, parameters, tags and rules."""
    file = _file("confluent/meta.proto", "confluent")
    file.dependency.append("google/protobuf/descriptor.proto")
    meta = file.message_type.add(name="Meta")
    _add(meta, "doc", 1, _TYPES.TYPE_STRING)
    _add(meta, "params", 2, _TYPES.TYPE_MESSAGE, many=True, of=".confluent.Meta.ParamsEntry")
    _add(meta, "tags", 3, _TYPES.TYPE_STRING, many=True)
    _add(meta, "rules", 4, _TYPES.TYPE_MESSAGE, many=True, of=".confluent.Rule")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    _add(entry, "key", 1, _TYPES.TYPE_STRING)
    _add(entry, "value", 2, _TYPES.TYPE_STRING)
    rule = file.message_type.add(name="Rule")
    for number, name in enumerate(("name", "doc", "expr", "sql"), 1):
        _add(rule, name, number, _TYPES.TYPE_STRING)
    for name, options in _EXTENDED.items():
        file.extension.add(
            name=name,
            number=_META_NUMBER,
            label=_TYPES.LABEL_OPTIONAL,
            type=_TYPES.TYPE_MESSAGE,
            type_name=".confluent.Meta",
            extendee=f".google.protobuf.{options}",
        )
    return file


def _confluent() -> Iterator[FileDescriptorProto]:
    yield _meta()
    decimal = _file("confluent/type/decimal.proto", "confluent.type")
    message = decimal.message_type.add(name="Decimal")
    _add(message, "value", 1, _TYPES.TYPE_BYTES)
    _add(message, "precision", 2, _TYPES.TYPE_UINT32)
    _add(message, "scale", 3, _TYPES.TYPE_INT32)
    yield decimal
    variant = _file("confluent/type/variant.proto", "confluent.type")
    message = variant.message_type.add(name="Variant")
    _add(message, "metadata", 1, _TYPES.TYPE_BYTES)
    _add(message, "value", 2, _TYPES.TYPE_BYTES)
    yield variant
    # The former place of Decimal.
    former = _file("confluent/types/decimal.proto", "")
    former.dependency.append(decimal.name)
    former.public_dependency.append(0)
    yield former


@functools.cache
def _known_files() -> tuple[bytes, ...]:
    """The files as bytes, each after those that it imports."""
    modules = [f"{package}.{name}_pb2" for package, names in _GOOGLE.items() for name in names.split()]
    google = [importlib.import_module(module).DESCRIPTOR.serialized_pb for module in modules]
    return (*google, *(file.SerializeToString() for file in _confluent()))


def is_known(name: str) -> bool:
    """Whether a file needs no reference."""
    return name.startswith(KNOWN)


def new_pool() -> DescriptorPool:
    """A pool of descriptors that holds the known files."""
    pool = DescriptorPool()
    for file in _known_files():
        pool.AddSerializedFile(file)
    return pool
