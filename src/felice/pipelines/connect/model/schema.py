"""Schemas of Connect, and the values that they allow.

A value is a plain Python object: int, float, bool, str, bytes, list, dict or `Struct`. A logical type has its own:

| name | type | value |
|---|---|---|
| `DECIMAL` | bytes | `decimal.Decimal`, with the digits after the point in the parameter `scale` |
| `DATE` | int32 | `datetime.date` |
| `TIME` | int32 | `datetime.time` |
| `TIMESTAMP` | int64 | `datetime.datetime` in UTC |

Keeps true:  schemas and structs do not change. `check` accepts exactly the values of a schema, and None only if the
             schema is optional.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import DataError

INT8, INT16, INT32, INT64 = "int8", "int16", "int32", "int64"
FLOAT32, FLOAT64 = "float", "double"
BOOLEAN, STRING, BYTES, ARRAY, MAP, STRUCT = "boolean", "string", "bytes", "array", "map", "struct"
"""The types, with the names that JSON envelopes give them."""

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
SCALE = "scale"
"""The parameter of `DECIMAL`."""

_BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
TYPES = (*_BITS, FLOAT32, FLOAT64, BOOLEAN, STRING, BYTES, ARRAY, MAP, STRUCT)
MOST_PARTS = 10_000
"""The most schemas within one that a schema of a registry becomes.

Each use of a type counts with all that it holds: their number may double with each level, and a comparison of schemas
looks at all of them.
"""


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a struct."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """A type of values. `default` counts only with `has_default`; a default of None needs an optional schema."""

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    has_default: bool = False
    default: Any = field(default=None, hash=False)
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None

    def field(self, name: str) -> Field | None:
        """The member of a struct's schema, or None."""
        for one in self.fields:
            if one.name == name:
                return one
        return None

    def parameter(self, name: str) -> str | None:
        """The value of a parameter, or None."""
        return dict(self.parameters).get(name)

    def made_optional(self) -> Schema:
        """The same schema, which allows None."""
        return self if self.optional else replace(self, optional=True)

    def with_default(self, value: Any) -> Schema:
        """The same schema with a default. Raises `DataError` for a value that it does not allow."""
        check(replace(self, has_default=False), value)
        return replace(self, has_default=True, default=value)

    def check(self, value: Any, path: str = "") -> None:
        """Raises `DataError` unless the schema allows the value."""
        check(self, value, path)


def simple(kind: str, *, optional: bool = False) -> Schema:
    """A schema of a primitive type."""
    return Schema(kind, optional)


def array(items: Schema, *, optional: bool = False) -> Schema:
    """A list of such items."""
    return Schema(ARRAY, optional, value_schema=items)


def mapping(keys: Schema, values: Schema, *, optional: bool = False) -> Schema:
    """A dict of such keys and values."""
    return Schema(MAP, optional, key_schema=keys, value_schema=values)


def struct(
    fields: Mapping[str, Schema],
    *,
    name: str | None = None,
    version: int | None = None,
    optional: bool = False,
) -> Schema:
    """A struct with these members, in this order."""
    members = tuple(Field(one, schema) for one, schema in fields.items())
    return Schema(STRUCT, optional, name, version, fields=members)


def decimal_of(scale: int, *, optional: bool = False) -> Schema:
    """A decimal number with so many digits after the point."""
    return Schema(BYTES, optional, DECIMAL, 1, parameters=((SCALE, str(scale)),))


def logical(name: str, *, optional: bool = False) -> Schema:
    """A date, a time or a timestamp."""
    return Schema(INT64 if name == TIMESTAMP else INT32, optional, name, 1)


class Struct:
    """A value with the members of a schema. Two structs are equal if their schemas and members are."""

    __slots__ = ("_values", "schema")

    def __init__(self, schema: Schema, values: Mapping[str, Any]) -> None:
        """Checks the values. A member that is missing is None. Raises `DataError`."""
        if schema.type != STRUCT:
            raise DataError(f"Not a struct schema: {schema.type}")
        self.schema = schema
        self._values = {}
        for one in schema.fields:
            value = values.get(one.name)
            if value is not None or not one.schema.has_default:
                check(one.schema, value, one.name)
            self._values[one.name] = value
        if len(values) > len(self._values) or values.keys() - self._values.keys():
            unknown = sorted(values.keys() - self._values.keys())
            raise DataError(f"{unknown[0]} is not a valid field name")

    def __getitem__(self, name: str) -> Any:
        """The value of a member, or its default. Raises `DataError` for a member that the schema does not have."""
        value = self.without_default(name)
        if value is None:
            member = self.schema.field(name)
            assert member is not None
            return member.schema.default
        return value

    def without_default(self, name: str) -> Any:
        """The value of a member as it was given: None where the default counts."""
        try:
            return self._values[name]
        except KeyError:
            raise DataError(f"{name} is not a valid field name") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct):
            return NotImplemented
        return self.schema == other.schema and self._values == other._values

    def __hash__(self) -> int:
        return hash((self.schema.name, tuple(self._values)))

    def __repr__(self) -> str:
        return f"Struct{{{','.join(f'{name}={value}' for name, value in self._values.items())}}}"

    def items(self) -> Iterator[tuple[str, Any]]:
        """The names and values, in the schema's order."""
        return iter([(name, self[name]) for name in self._values])


def check(schema: Schema, value: Any, path: str = "") -> None:
    """Raises `DataError` unless the schema allows the value. `path` names the place in errors."""
    where = f' for field: "{path}"' if path else ""
    if value is None:
        if not schema.optional:
            raise DataError(f"Invalid value: null used for required field{where.removeprefix(' for field')}")
        return
    if schema.name is None and type(value) is _EXACT.get(schema.type):
        return
    expected = _LOGICAL.get(schema.name or "", _PLAIN[schema.type])
    if not expected(schema, value):
        kind = f"{schema.type} ({schema.name})" if schema.name else schema.type
        raise DataError(f"Invalid value{where}: {type(value).__name__} {value!r:.80} for schema type {kind}")
    if schema.type == ARRAY:
        assert schema.value_schema is not None
        for one in value:
            check(schema.value_schema, one, path)
    elif schema.type == MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        for key, one in value.items():
            check(schema.key_schema, key, path)
            check(schema.value_schema, one, path)


def _is_int(schema: Schema, value: Any) -> bool:
    bits = _BITS[schema.type]
    return type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1


def _is_decimal(schema: Schema, value: Any) -> bool:
    if not isinstance(value, decimal.Decimal) or not value.is_finite():
        return False
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= int(schema.parameter(SCALE) or 0)


def _is_utc(schema: Schema, value: Any) -> bool:
    return isinstance(value, datetime.datetime) and value.utcoffset() == datetime.timedelta(0)


_Allows = Callable[[Schema, Any], bool]
_PLAIN: dict[str, _Allows] = {
    **dict.fromkeys(_BITS, _is_int),
    **dict.fromkeys((FLOAT32, FLOAT64), lambda schema, value: type(value) is float),
    BOOLEAN: lambda schema, value: type(value) is bool,
    STRING: lambda schema, value: isinstance(value, str),
    BYTES: lambda schema, value: isinstance(value, bytes),
    ARRAY: lambda schema, value: isinstance(value, list),
    MAP: lambda schema, value: isinstance(value, dict),
    STRUCT: lambda schema, value: isinstance(value, Struct) and value.schema == schema,
}
_EXACT: dict[str, type] = {STRING: str, BYTES: bytes, BOOLEAN: bool, FLOAT32: float, FLOAT64: float}
"""The usual types of values without limits: they need no other check."""
_LOGICAL: dict[str, _Allows] = {
    DECIMAL: _is_decimal,
    DATE: lambda schema, value: type(value) is datetime.date,
    TIME: lambda schema, value: isinstance(value, datetime.time),
    TIMESTAMP: _is_utc,
}
