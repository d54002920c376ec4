"""Messages as plain values (dicts, lists, strings, numbers) and back: operations can be printed and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from felice.protocol.schema import Field, FieldType, schema_of

Plain = Any
"""JSON's values: a message is a dict of its fields."""


def to_message(cls: type[Any], body: dict[str, Plain]) -> Any:
    """The message with these fields; the others keep their defaults."""
    fields = {field.name: field for field in schema_of(cls).fields}
    return cls(**{name: _to_value(fields[name].type, value) for name, value in body.items()})


def _to_value(kind: FieldType, value: Plain) -> Any:
    if value is None:
        return None
    if kind.struct is not None:
        return to_message(kind.struct, value)
    if kind.element is not None:
        return [_to_value(kind.element, entry) for entry in value]
    if kind.kind == "uuid" and isinstance(value, str):
        return UUID(value)
    if kind.kind == "bytes" and isinstance(value, str):
        return value.encode()
    return value


Transform = Callable[[str, Any], Plain]
"""Makes a plain value of a field's name and its value."""


def to_plain(message: Any, version: int, transform: Transform) -> dict[str, Plain]:
    """The fields that a message has in this version."""
    return {
        field.name: _to_plain(field, field.type, getattr(message, field.name), version, transform)
        for field in schema_of(type(message)).fields
        if version in field.versions
    }


def _to_plain(field: Field, kind: FieldType, value: Any, version: int, transform: Transform) -> Plain:
    if value is None:
        return None
    if kind.struct is not None:
        return to_plain(value, version, transform)
    if kind.element is not None:
        return [_to_plain(field, kind.element, entry, version, transform) for entry in value]
    return transform(field.name, value)


def fit(cls: type[Any], body: dict[str, Plain], version: int) -> dict[str, Plain]:
    """The fields of `body` that a message has in this version."""
    fields = {field.name: field for field in schema_of(cls).fields}
    return {
        name: _fit(fields[name].type, value, version)
        for name, value in body.items()
        if name in fields and version in fields[name].versions
    }


def _fit(kind: FieldType, value: Plain, version: int) -> Plain:
    if isinstance(value, dict) and kind.struct is not None:
        return fit(kind.struct, value, version)
    if isinstance(value, list) and kind.element is not None:
        return [_fit(kind.element, entry, version) for entry in value]
    return value
