"""Values and types of users' functions: a STRUCT is a dict in Python, and what Python returns is checked.

Keeps true: lists, dicts and structs that a user's function gets are its own; it may change them.
"""

from __future__ import annotations

import decimal
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from felice.pipelines.sql.expressions.arithmetic import fitting, limits
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
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

Conversion = Callable[[Any], Any]


def given_values(kind: SqlType) -> Conversion:
    """The function that makes Python's value of SQL's value of a type."""
    convert = _given(kind)
    return lambda value: None if value is None else convert(value)


def _given(kind: SqlType) -> Conversion:
    match kind:
        case Array(element):
            each = given_values(element)
            return lambda values: list(map(each, values))
        case Map(key, value):
            of_key, of_value = given_values(key), given_values(value)
            return lambda entries: {of_key(name): of_value(one) for name, one in entries.items()}
        case Struct(fields):
            named = [(name, given_values(one)) for name, one in fields]
            return lambda row: {name: of(one) for (name, of), one in zip(named, row, strict=True)}
    return _same


def _same(value: Any) -> Any:
    return value


def returned_values(kind: SqlType) -> Conversion:
    """The function that makes SQL's value of a type of Python's value.

    It raises TypeError for a value of another type, with a text such as `expected INTEGER, and got 'a'`.
    """
    convert = _returned(kind)
    return lambda value: None if value is None else convert(value)


def _returned(kind: SqlType) -> Conversion:
    match kind:
        case Array(element):
            return _returned_array(kind, returned_values(element))
        case Map(key, value):
            return _returned_map(kind, returned_values(key), returned_values(value))
        case Struct():
            return _returned_struct(kind)
        case Decimal():
            return _returned_decimal(kind)
    if kind in _WHOLE:
        return _returned_whole(kind)
    return _returned_double if kind == DOUBLE else _returned_instance(kind)


def _refused(kind: SqlType, value: Any) -> TypeError:
    told = repr(value)
    return TypeError(f"expected {text_of(kind)}, and got {told if len(told) <= 100 else told[:100] + '...'}")


def _returned_array(kind: SqlType, each: Conversion) -> Conversion:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _refused(kind, value)
        return list(map(each, value))

    return convert


def _returned_map(kind: SqlType, of_key: Conversion, of_value: Conversion) -> Conversion:
    def convert(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _refused(kind, value)
        return {of_key(key): of_value(one) for key, one in value.items()}

    return convert


def _returned_struct(kind: Struct) -> Conversion:
    """Fields that are missing are null; others than the type's are refused."""
    fields = {name: returned_values(one) for name, one in kind.fields}

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, dict):
            raise _refused(kind, value)
        if unknown := value.keys() - fields.keys():
            raise TypeError(f"{text_of(kind)} has no field {', '.join(sorted(map(repr, unknown)))}")
        return tuple(of(value.get(name)) for name, of in fields.items())

    return convert


def _returned_decimal(kind: Decimal) -> Conversion:
    fit = fitting(kind)

    def convert(value: Any) -> decimal.Decimal:
        if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
            raise _refused(kind, value)
        try:
            return fit(decimal.Decimal(value))
        except (ValueError, decimal.DecimalException):
            raise _refused(kind, value) from None

    return convert


_WHOLE: Mapping[SqlType, SqlType] = {
    INTEGER: INTEGER,
    BIGINT: BIGINT,
    DATE: INTEGER,
    TIME: INTEGER,
    TIMESTAMP: BIGINT,
}
"""Types whose values are whole numbers, with the type that has their limits."""


def _returned_whole(kind: SqlType) -> Conversion:
    least, greatest = limits(_WHOLE[kind])

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= greatest:
            raise _refused(kind, value)
        return value

    return convert


def _returned_double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(DOUBLE, value)
    return float(value)


_CLASSES: Mapping[SqlType, type] = {BOOLEAN: bool, STRING: str, BYTES: bytes}


def _returned_instance(kind: SqlType) -> Conversion:
    wanted = _CLASSES[kind]

    def convert(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise _refused(kind, value)
        return value

    return convert


_ANNOTATIONS: Mapping[Any, SqlType] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
}


def type_of_annotation(annotation: Any) -> tuple[SqlType, bool]:
    """The type of an annotation such as `list[int] | None`, and whether it allows None. Raises TypeError."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return _type_of_union(annotation, arguments)
    if origin is list:
        return Array(type_of_annotation(arguments[0])[0]), False
    if origin is dict:
        return Map(type_of_annotation(arguments[0])[0], type_of_annotation(arguments[1])[0]), False
    found = _ANNOTATIONS.get(annotation)
    if found is None:
        raise TypeError(
            f"there is no SQL type for the annotation {annotation!r}: expected bool, int, float, str, bytes, list[...] "
            "or dict[..., ...], or the signature as a text"
        )
    return found, False


def _type_of_union(annotation: Any, choices: Sequence[Any]) -> tuple[SqlType, bool]:
    others = [one for one in choices if one is not type(None)]
    if len(others) != 1:
        raise TypeError(f"there is no SQL type for the annotation {annotation!r}, which has several types")
    return type_of_annotation(others[0])[0], True
