"""Which values are equal, and which is the greater one, as Java has it.

Keeps true: keys are cheap for values that Python treats as Java does: numbers but DOUBLE, and BOOLEAN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from felice.pipelines.sql.syntax.errors import SqlError
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
    SqlType,
    text_of,
)

Order = Callable[[Any], Any]
"""Makes the key by which Python compares two values of a type; they are not null."""


def equality_key(value: Any) -> Any:
    """Something hashable that is the same for equal values of one type, and only for them.

    As in Java NaN is equal to itself, and 0.0 is another number than -0.0.
    """
    make = _KEYS.get(type(value))
    return value if make is None else make(value)


def _of_double(value: float) -> object:
    return value if value and value == value else repr(value)


def _of_several(values: Iterable[Any]) -> object:
    return tuple(map(equality_key, values))


def _of_map(value: Mapping[Any, Any]) -> object:
    return frozenset((key, equality_key(one)) for key, one in value.items())


_KEYS: Mapping[type, Callable[[Any], object]] = {
    float: _of_double,
    list: _of_several,
    tuple: _of_several,
    dict: _of_map,
}


def distinct(values: Iterable[Any]) -> list[Any]:
    """The values without those that are equal to an earlier one."""
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(equality_key(value), value)
    return list(found.values())


def _itself(value: Any) -> Any:
    return value


def _order_of_double(value: float) -> tuple[bool, float, float]:
    """NaN is the greatest number, and -0.0 is less than 0.0."""
    return (True, 0.0, 0.0) if value != value else (False, value, math.copysign(1, value))


def _order_of_string(value: str) -> bytes:
    """Java compares the units of UTF-16."""
    return value.encode("utf-16-be", "surrogatepass")


_SIGNED = bytes(byte ^ 0x80 for byte in range(256))


def _order_of_bytes(value: bytes) -> bytes:
    """Java's bytes have a sign."""
    return value.translate(_SIGNED)


_ORDERS: Mapping[SqlType, Order] = {
    BOOLEAN: _itself,
    INTEGER: _itself,
    BIGINT: _itself,
    DOUBLE: _order_of_double,
    STRING: _order_of_string,
    BYTES: _order_of_bytes,
    DATE: _itself,
    TIME: _itself,
    TIMESTAMP: _itself,
}


def order_of(given: SqlType) -> Order:
    """The order of the values of a type. Raises `SqlError` if they have none."""
    order = _itself if isinstance(given, Decimal) else _ORDERS.get(given)
    if order is None:
        raise SqlError(f"values of {text_of(given)} have no order")
    return order


def ordered_type(types: Sequence[SqlType | None], _: Sequence[Any]) -> SqlType:
    """The type of the first argument, whose values must have an order. Raises `SqlError`."""
    given = _known(types[0])
    order_of(given)
    return given


def element_type(types: Sequence[SqlType | None]) -> SqlType:
    """The type of the elements of the first argument, which is an array. Raises `SqlError` if it is NULL."""
    array = _known(types[0])
    assert isinstance(array, Array), "the signature says so"
    return array.element


def ordered_element(types: Sequence[SqlType | None], _: Sequence[Any]) -> SqlType:
    """The type of the elements of the first argument, which must have an order. Raises `SqlError`."""
    element = element_type(types)
    order_of(element)
    return element


def _known(given: SqlType | None) -> SqlType:
    if given is None:
        raise SqlError("the type of NULL is not known here; use CAST(NULL AS …)")
    return given
