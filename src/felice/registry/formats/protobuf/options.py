"""The options of a descriptor as settings of a .proto text: `deprecated = true`, `(shop.owner) = { team: "a" }`.

Keeps true:  no option is left out: one that cannot be written raises `Unprintable`.
             The name of a custom option means the same as in the descriptor at the place where it is written.
How:         a custom option is an extension of a message such as `google.protobuf.FieldOptions`, known only to the
             files that declare it. A descriptor pool of the schema and its imports decodes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from felice.registry.formats.protobuf.literals import Unprintable, floating, quoted, quoted_bytes

Setting = tuple[str, str]
"""Name and value of an option: the two sides of `name = value`."""

_BASE = "google/protobuf/descriptor.proto"
_FLOATS = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)
_SKIPPED = {"map_entry"}
"""Options that the syntax expresses: `map<string, int32>`."""


class _Undeclared(Unprintable):
    """An option is an extension that the files at hand do not declare."""


class OptionTexts:
    """Writes the options of the descriptors in `files`, FileDescriptorProtos that come after their imports."""

    def __init__(self, files: Iterable[Any]) -> None:
        self._files = list(files)

    def settings(self, options: Any, scope: str) -> list[Setting]:
        """The settings of `options`, a message such as `FieldOptions`, in the order of the options' numbers.

        The name of a custom option is in parentheses. `scope` is the full name of the package or message around.
        """
        try:
            return list(self._settings(options, scope))
        except _Undeclared:
            of_schema = GetMessageClass(self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name))
            try:
                return list(self._settings(of_schema.FromString(options.SerializeToString()), scope))
            except (DecodeError, UnicodeDecodeError):
                name = options.DESCRIPTOR.name
                raise Unprintable(f"the descriptor has a value in {name} that is not of its type") from None

    @cached_property
    def _pool(self) -> Any:
        pool = DescriptorPool()
        if all(file.name != _BASE for file in self._files):
            pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
        for file in self._files:
            try:
                pool.AddSerializedFile(file.SerializeToString())
            except (TypeError, ValueError) as error:
                raise Unprintable(f"the descriptor is not valid: {' '.join(str(error).split())}") from error
        return pool

    @cached_property
    def _names(self) -> set[str]:
        return {name for file in self._files for name in _declared(file)}

    def _settings(self, options: Any, scope: str) -> Iterator[Setting]:
        for field, value in _known_fields(options):
            if field.name == "uninterpreted_option" and not field.is_extension:
                raise Unprintable(
                    f"the descriptor has an option of {options.DESCRIPTOR.name} that is not interpreted"
                )
            if field.name in _SKIPPED and not field.is_extension:
                continue
            name = f"({self._name(field.full_name, scope)})" if field.is_extension else field.name
            if field.name == "features" and not field.is_extension:
                yield from ((f"{name}.{inner}", text) for inner, text in self._settings(value, scope))
            else:
                yield from ((name, text) for text in _texts(field, value))

    def _name(self, full_name: str, scope: str) -> str:
        """`full_name`, with a dot before it if a package or type in the scopes around has the name of its first part.

        Readers of Confluent's tags compare the name without the dot.
        """
        first = full_name.partition(".")[0]
        while scope:
            if f"{scope}.{first}" in self._names:
                return f".{full_name}"
            scope = scope.rpartition(".")[0]
        return full_name


def _declared(file: Any) -> set[str]:
    """The full names that can hide others: of a file's packages, messages, enums and services."""
    names = {file.package[: end.start()] for end in re.finditer(r"\.|$", file.package)}
    waiting = [(file, file.package)]
    while waiting:
        owner, scope = waiting.pop()
        messages = owner.message_type if owner is file else owner.nested_type
        for inner in (*messages, *owner.enum_type, *(owner.service if owner is file else ())):
            names.add(f"{scope}.{inner.name}" if scope else inner.name)
        waiting += [(inner, f"{scope}.{inner.name}" if scope else inner.name) for inner in messages]
    return names


def _known_fields(message: Any) -> list[tuple[FieldDescriptor, Any]]:
    """The fields that are set. Refuses fields that no import declares, because they would be lost."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        raise _Undeclared(
            f"the descriptor has the option {unknown[0].field_number} of {message.DESCRIPTOR.name}, "
            "which neither the schema nor its imports declare"
        )
    fields: list[tuple[FieldDescriptor, Any]] = message.ListFields()
    return fields


def _texts(field: FieldDescriptor, value: Any) -> list[str]:
    """One text for each value of `field`."""
    if not field.is_repeated:
        return [_text(field, value)]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, entry = field.message_type.fields
        # In the order of the keys: the order in a map depends on the process.
        return [f"{{ key: {_text(key, k)}, value: {_text(entry, value[k])} }}" for k in sorted(value)]
    return [_text(field, item) for item in value]


def _text(field: FieldDescriptor, value: Any) -> str:
    if field.message_type is not None:
        return _aggregate(value)
    if field.enum_type is not None:
        constant = field.enum_type.values_by_number.get(value)
        if constant is None:
            raise Unprintable(
                f"the descriptor has {value} for {field.full_name}, which is no value of its enum"
            )
        return str(constant.name)
    if field.type in _FLOATS:
        return floating(value, single=field.type == FieldDescriptor.TYPE_FLOAT)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return quoted_bytes(value)
    return quoted(value) if isinstance(value, str) else str(value)


def _aggregate(message: Any) -> str:
    """A message's value on one line: indented by its depth, a short text could have a very long one."""
    parts = []
    for field, value in _known_fields(message):
        if field.is_extension:
            name = f"[{field.full_name}]"
        else:
            name = field.message_type.name if field.type == FieldDescriptor.TYPE_GROUP else field.name
        parts += [f"{name}: {text}" for text in _texts(field, value)]
    return f"{{ {', '.join(parts)} }}" if parts else "{}"
