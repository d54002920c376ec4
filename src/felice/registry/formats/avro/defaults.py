"""Whether a field's default fits its type.

Keeps true:  each pair of a type and a value is looked at once, and at most `MAX_PAIRS` pairs of one schema are. Without
             that, unions of records with fields of the same unions would take exponential time.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TypeGuard

from felice.registry.formats.avro.model import (
    Array,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
    Unresolved,
)
from felice.registry.formats.json_text import Json
from felice.registry.formats.schema import InvalidSchema

MAX_PAIRS = 1_000_000
"""Limit of the pairs of a type and a part of a default that the check of one schema looks at."""


def is_integer(value: Json, bits: int) -> TypeGuard[int]:
    """Whether a JSON value is an integer of so many bits."""
    return type(value) is int and -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


_PRIMITIVES: dict[str, Callable[[Json], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: is_integer(value, 32),
    "long": lambda value: is_integer(value, 64),
    "float": lambda value: type(value) in (int, float),
    "double": lambda value: type(value) in (int, float),
    "bytes": _is_text,
    "string": _is_text,
}


class EnclosingRecord(Exception):
    """A default is a value of a record around its field. Most of these would contain themselves for ever.

    Java's parser refuses them all, also as one of several branches of a union.
    """


class Defaults:
    """The check of the defaults of one schema.

    `open_records` are the full names of the records around a field, `defined` the types that are defined before it.
    """

    def __init__(self, open_records: Container[str], defined: Mapping[str, Schema]) -> None:
        self._open_records = open_records
        self._defined = defined
        self._known: dict[tuple[int, int], bool] = {}

    def fits(self, schema: Schema, value: Json) -> bool:
        """Whether a JSON value is a default of a type. The value of a union may be of any of its branches.

        The value must live as long as this object. Raises `EnclosingRecord`, and
        `InvalidSchema` above `MAX_PAIRS`.
        """
        pair = id(schema), id(value)
        found = self._known.get(pair)
        if found is None:
            if len(self._known) >= MAX_PAIRS:
                raise InvalidSchema(f"the check of the defaults takes more than {MAX_PAIRS} steps")
            found = self._known[pair] = self._decide(schema, value)
        return found

    def _decide(self, schema: Schema, value: Json) -> bool:
        # Loops instead of `all` and `any`: their generators would double the depth of the stack.
        match schema:
            case Primitive():
                return _PRIMITIVES[schema.kind](value)
            case Enum() | Fixed():
                return isinstance(value, str)
            case Array():
                return isinstance(value, list) and self._all_fit(schema.items, value)
            case Map():
                return isinstance(value, dict) and self._all_fit(schema.values, list(value.values()))
            case Union():
                for branch in schema.branches:  # noqa: SIM110
                    if self.fits(branch, value):
                        return True
                return False
            case Record():
                return isinstance(value, dict) and self._fields_fit(schema, value)
            case Unresolved() if schema.full in self._open_records and isinstance(value, dict):
                raise EnclosingRecord
            case Unresolved() if schema.full in self._defined:
                # A record that contains itself, and is complete now.
                return self.fits(self._defined[schema.full], value)
        # A type that is not defined yet: Java's parser takes it for a record without fields.
        return isinstance(value, dict)

    def _all_fit(self, schema: Schema, values: list[Json]) -> bool:
        for value in values:  # noqa: SIM110
            if not self.fits(schema, value):
                return False
        return True

    def _fields_fit(self, record: Record, value: dict[str, Json]) -> bool:
        for field in record.fields:
            if field.name not in value:
                # Then the field's own default is read, which is checked where the field is.
                if not field.has_default:
                    return False
            elif not self.fits(field.type, value[field.name]):
                return False
        return True
