"""The tables from which the compiled codec reads and writes messages: one for each message and version."""

from __future__ import annotations

import types
from typing import Any

from felice.protocol.decoder import has_records, least_size
from felice.protocol.schema import EMPTY, Field, FieldType, schema_of

KINDS = (
    "bool",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "float64",
    "uuid",
    "string",
    "bytes",
    "records",
    "array",
    "struct",
)
"""The index of a kind is the number by which `_kernels` knows it."""

_CONSTANT, _NEW_LIST, _NEW_STRUCT = range(3)


class Planner:
    """Makes the tables of one message in one version, from the classes of the compiled module."""

    def __init__(self, kernels: types.ModuleType, message: type, version: int) -> None:
        self._kernels = kernels
        self._message = message
        self._version = version
        self._flexible = version in schema_of(message).flexible

    def struct(self, cls: type, may_be_encoded: bool = False) -> Any:
        """The table of a struct in the message, or of the message itself."""
        table = self._kernels.Struct(cls, self._flexible, self._message, self._version, may_be_encoded)
        schema = schema_of(cls)
        fields = tuple(self._field(cls, field) for field in schema.fields)
        table.define(fields, has_records(schema, self._version))
        return table

    def _field(self, cls: type, field: Field) -> Any:
        is_present = self._version in field.versions
        fresh, default = _default(field)
        return self._kernels.Field(
            vars(cls)[field.name],
            self._type(field.type, self._version in field.nullable) if is_present else None,
            is_present,
            field.ignorable,
            -1 if field.tag is None else field.tag,
            fresh,
            default,
        )

    def _type(self, kind: FieldType, nullable: bool) -> Any:
        return self._kernels.Type(
            KINDS.index(kind.kind),
            nullable,
            self._flexible,
            least_size(kind, self._version, self._flexible),
            None if kind.element is None else self._type(kind.element, False),
            None if kind.struct is None else self.struct(kind.struct, kind.may_be_encoded),
        )


def _default(field: Field) -> tuple[int, object]:
    if field.default is not EMPTY:
        return _CONSTANT, field.default
    if field.type.kind == "array":
        return _NEW_LIST, None
    return _NEW_STRUCT, field.type.struct
