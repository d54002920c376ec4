"""The types of SQL: their texts, which of two holds the values of both, and what arithmetic makes of them.

Keeps true: equal types are equal values, so they are compared with `==`. Names of fields are as the catalogue has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from felice.dataclass import dataclass
from felice.pipelines.sql.syntax import tree
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.writer import quoted, type_text


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parameters. `name` is the text."""

    name: str


@dataclass(frozen=True, slots=True)
class Decimal:
    """Numbers of `precision` decimal digits, of which `scale` are after the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Array:
    """ARRAY."""

    element: SqlType


@dataclass(frozen=True, slots=True)
class Map:
    """MAP."""

    key: SqlType
    value: SqlType


@dataclass(frozen=True, slots=True)
class Struct:
    """STRUCT: fields in their order."""

    fields: tuple[tuple[str, SqlType], ...]

    def field(self, name: str) -> SqlType | None:
        """The type of a field; None if there is no such field."""
        return dict(self.fields).get(name)


SqlType = Primitive | Decimal | Array | Map | Struct

BOOLEAN, INTEGER, BIGINT, DOUBLE = map(Primitive, ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE"))
STRING, BYTES, DATE, TIME, TIMESTAMP = map(Primitive, ("STRING", "BYTES", "DATE", "TIME", "TIMESTAMP"))
_NAMED = {one.name: one for one in (BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING, BYTES, DATE, TIME, TIMESTAMP)}
_NAMED |= {"INT": INTEGER, "VARCHAR": STRING}
_DECIMALS = ("DECIMAL", "DEC")
_AS_DECIMAL = {INTEGER: Decimal(10, 0), BIGINT: Decimal(19, 0)}
_WIDTHS = (INTEGER, BIGINT)
"""Whole numbers, the narrower first."""


def text_of(given: SqlType) -> str:
    """A type as DESCRIBE shows it; names of fields are quoted."""
    match given:
        case Primitive(name):
            return name
        case Decimal(precision, scale):
            return f"DECIMAL({precision}, {scale})"
        case Array(element):
            return f"ARRAY<{text_of(element)}>"
        case Map(key, value):
            return f"MAP<{text_of(key)}, {text_of(value)}>"
        case Struct(fields):
            return f"STRUCT<{fields_text(fields)}>"


def fields_text(given: Iterable[tuple[str, SqlType]]) -> str:
    """Names and types as DESCRIBE shows them: `` `A` INTEGER, `B` STRING ``."""
    return ", ".join(f"{quoted(name)} {text_of(type_)}" for name, type_ in given)


def base(given: SqlType) -> str:
    """A type without what it consists of: `ARRAY`, `DECIMAL`."""
    return given.name if isinstance(given, Primitive) else type(given).__name__.upper()


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that comes again; None if each comes once."""
    seen: set[str] = set()
    # `add` gives None.
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def resolved(given: tree.Type, users: Mapping[str, SqlType]) -> SqlType:
    """The type that is meant; `users` are those of CREATE TYPE. Raises `SqlError`."""
    match given:
        case tree.ArrayType(element):
            return Array(resolved(element, users))
        case tree.MapType(key, value):
            return Map(resolved(key, users), resolved(value, users))
        case tree.StructType(fields):
            if twice := first_repeated(name for name, _ in fields):
                raise SqlError(f"a STRUCT has two fields {twice}", given.position)
            return Struct(tuple((name, resolved(one, users)) for name, one in fields))
        case tree.TypeName(name, parameters):
            return _named(given, name, parameters, users)


def _named(
    given: tree.TypeName, name: str, parameters: tuple[int, ...], users: Mapping[str, SqlType]
) -> SqlType:
    own = None if parameters else users.get(name)
    if own is None and name.upper() in _DECIMALS:
        return _decimal(given, parameters)
    if parameters and name.upper() != "VARCHAR":
        raise SqlError(f"{name} has no parameters, and got {type_text(given)}", given.position)
    found = own or _NAMED.get(name.upper())
    if found is None:
        near = get_close_matches(name, [*users, *_NAMED, "DECIMAL"], 1)
        told = f"; did you mean {near[0]}?" if near else ""
        raise SqlError(f"Cannot resolve unknown type: {name}{told}", given.position)
    return found


def _decimal(given: tree.TypeName, parameters: tuple[int, ...]) -> Decimal:
    if len(parameters) != 2:
        raise SqlError(f"expected DECIMAL(precision, scale), and got {type_text(given)}", given.position)
    precision, scale = parameters
    if not (precision >= 1 and 0 <= scale <= precision):
        raise SqlError(
            f"DECIMAL({precision}, {scale}): the precision must be at least 1, and the scale from 0 to the precision",
            given.position,
        )
    return Decimal(precision, scale)


def named(name: str) -> SqlType:
    """The type without parameters of this name. Raises ValueError."""
    if name not in _NAMED:
        raise ValueError(f"there is no type {name}")
    return _NAMED[name]


def is_number(given: SqlType) -> bool:
    """Whether values are numbers."""
    return given in (INTEGER, BIGINT, DOUBLE) or isinstance(given, Decimal)


def as_decimal(given: SqlType) -> Decimal:
    """The decimal type that holds all values of a type of exact numbers."""
    return given if isinstance(given, Decimal) else _AS_DECIMAL[given]  # type: ignore[index]


def common(one: SqlType, other: SqlType) -> SqlType | None:
    """The type that holds the values of both, without a change of their meaning; None if there is none.

    DOUBLE holds every number, as in ksqlDB, although it rounds some.
    """
    if one == other:
        return one
    if is_number(one) and is_number(other):
        return _common_number(one, other)
    match one, other:
        case Array(left), Array(right):
            element = common(left, right)
            return None if element is None else Array(element)
        case Map(left_key, left), Map(right_key, right):
            key, value = common(left_key, right_key), common(left, right)
            return None if key is None or value is None else Map(key, value)
        case Struct(left_fields), Struct(right_fields):
            return _common_struct(left_fields, right_fields)
    return None


def _common_number(one: SqlType, other: SqlType) -> SqlType:
    if DOUBLE in (one, other):
        return DOUBLE
    if one in _WIDTHS and other in _WIDTHS:
        return BIGINT
    left, right = as_decimal(one), as_decimal(other)
    scale = max(left.scale, right.scale)
    return Decimal(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def _common_struct(
    one: tuple[tuple[str, SqlType], ...], other: tuple[tuple[str, SqlType], ...]
) -> SqlType | None:
    """All fields of both; those of the first come first."""
    second = dict(other)
    fields: list[tuple[str, SqlType]] = []
    for name, type_ in one:
        found = common(type_, second.pop(name, type_))
        if found is None:
            return None
        fields.append((name, found))
    return Struct((*fields, *second.items()))


def arithmetic(operator: str, one: SqlType, other: SqlType) -> SqlType | None:
    """The type of `one operator other`, where the operator is +, -, *, / or %; None if it does not take these types."""
    if one == other == STRING and operator == "+":
        return STRING
    if not (is_number(one) and is_number(other)):
        return None
    if DOUBLE in (one, other):
        return DOUBLE
    if one in _WIDTHS and other in _WIDTHS:
        return BIGINT if BIGINT in (one, other) else INTEGER
    return _decimal_result(operator, as_decimal(one), as_decimal(other))


def _decimal_result(operator: str, one: Decimal, other: Decimal) -> Decimal:
    whole, other_whole = one.precision - one.scale, other.precision - other.scale
    scale = max(one.scale, other.scale)
    match operator:
        case "+" | "-":
            return Decimal(max(whole, other_whole) + scale + 1, scale)
        case "*":
            return Decimal(one.precision + other.precision + 1, one.scale + other.scale)
        case "/":
            scale = max(6, one.scale + other.precision + 1)
            return Decimal(whole + other.scale + scale, scale)
        case _:
            return Decimal(min(whole, other_whole) + scale, scale)
