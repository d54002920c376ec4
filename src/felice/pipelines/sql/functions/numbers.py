"""Functions of numbers.

Keeps true: as in Java, a DOUBLE that cannot be computed is NaN, and one that is too great Infinity; the least INTEGER
            and BIGINT are their own absolute values. A DECIMAL that does not fit its type is a ValueError.
"""

from __future__ import annotations

import decimal
import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

from felice.pipelines.sql import types
from felice.pipelines.sql.functions.limits import within
from felice.pipelines.sql.functions.table import scalar
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.types import BYTES, DATE, STRING, TIME, TIMESTAMP, SqlType, text_of

_EXACT = decimal.Context(
    prec=decimal.MAX_PREC, rounding=decimal.ROUND_HALF_UP, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN
)
_LEAST_LONG, _GREATEST_LONG = -(1 << 63), (1 << 63) - 1


def _same_type(given: Sequence[SqlType], literals: Sequence[Any]) -> SqlType:
    return given[0]


def _whole_type(given: Sequence[SqlType], literals: Sequence[Any]) -> SqlType:
    kind = types.as_decimal(given[0])
    return types.Decimal(max(kind.precision - kind.scale, 1), 0)


def _fitted(value: Decimal, kind: types.Decimal) -> Decimal:
    """The number with the scale of a type. It has no digits that would be lost. Raises ValueError."""
    if value.adjusted() >= kind.precision - kind.scale and value:
        raise ValueError(f"{value} does not fit {text_of(kind)}")
    return value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)


# Absolute values, signs, whole numbers


@scalar("ABS(value INTEGER) -> INTEGER", "The value without its sign.", ("ABS(-3)", "3"))
def absolute_integer(value: int) -> int:
    """Java's `Math.abs`."""
    return value if value == -(1 << 31) else abs(value)


@scalar("ABS(value BIGINT) -> BIGINT", "The value without its sign.", ("ABS(-5000000000)", "5000000000"))
def absolute_bigint(value: int) -> int:
    """Java's `Math.abs`."""
    return value if value == _LEAST_LONG else abs(value)


@scalar("ABS(value DOUBLE) -> DOUBLE", "The value without its sign.", ("ABS(-2.5E0)", "2.5E0"))
@scalar(
    "ABS(value DECIMAL) -> DECIMAL",
    "The value without its sign.",
    ("ABS(-2.50)", "2.50"),
    result_type=_same_type,
)
def absolute(value: Any) -> Any:
    """The same number, not negative."""
    return value.copy_abs() if isinstance(value, Decimal) else abs(value)


@scalar("SIGN(value INTEGER) -> INTEGER", "-1, 0 or 1: the sign of a value.", ("SIGN(-7)", "-1"))
@scalar("SIGN(value BIGINT) -> INTEGER", "-1, 0 or 1: the sign of a value.", ("SIGN(7000000000)", "1"))
@scalar("SIGN(value DOUBLE) -> INTEGER", "-1, 0 or 1: the sign of a value.", ("SIGN(0E0)", "0"))
def sign(value: float) -> int:
    """0 for NaN."""
    return (value > 0) - (value < 0)


def _whole_double(whole: Callable[[float], int]) -> Callable[[float], float]:
    # Java keeps the sign of a zero.
    return lambda value: math.copysign(whole(value), value) if math.isfinite(value) else value


def _unchanged(value: int) -> int:
    return value


def _whole(rounding: str) -> Callable[[types.Decimal], Callable[[Decimal], Decimal]]:
    def of(kind: types.Decimal) -> Callable[[Decimal], Decimal]:
        return lambda value: _fitted(value.quantize(Decimal(1), rounding, _EXACT), kind)

    return of


def _register_whole(name: str, what: str, whole: Callable[[float], int], rounding: str) -> None:
    """FLOOR or CEIL, which keep the type."""
    up = rounding == decimal.ROUND_CEILING
    for type_, given in (("INTEGER", "3"), ("BIGINT", "3000000000")):
        scalar(f"{name}(value {type_}) -> {type_}", what, (f"{name}({given})", given))(_unchanged)
    scalar(f"{name}(value DOUBLE) -> DOUBLE", what, (f"{name}(2.5E0)", "3E0" if up else "2E0"))(
        _whole_double(whole)
    )
    scalar(
        f"{name}(value DECIMAL) -> DECIMAL",
        what,
        (f"{name}(-2.5)", "-2.0" if up else "-3.0"),
        by_type=True,
        result_type=_same_type,
    )(_whole(rounding))


_register_whole(
    "FLOOR", "The greatest whole number that is not above a value.", math.floor, decimal.ROUND_FLOOR
)
_register_whole("CEIL", "The least whole number that is not below a value.", math.ceil, decimal.ROUND_CEILING)


# Rounding


def _long(value: float, whole: Callable[[float], int]) -> int:
    """The nearest BIGINT of a double; 0 for NaN."""
    if not math.isfinite(value):
        return 0 if math.isnan(value) else _GREATEST_LONG if value > 0 else _LEAST_LONG
    return max(_LEAST_LONG, min(_GREATEST_LONG, whole(value)))


def _nearest(value: float) -> int:
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)


def _half_up(value: Decimal) -> str:
    """Halves are rounded up: towards greater numbers, not away from zero."""
    return decimal.ROUND_HALF_UP if value > 0 else decimal.ROUND_HALF_DOWN


def _cut(value: Decimal) -> str:
    return decimal.ROUND_DOWN


def _at_place(value: Decimal, places: int, rounding: str) -> Decimal:
    """The number with so many digits after the point, or with zeros before it if `places` is negative."""
    if places >= -value.as_tuple().exponent:  # type: ignore[operator]
        return value
    if value.adjusted() + 1 < -places:
        return Decimal(0)
    return value.quantize(Decimal(1).scaleb(-places), rounding, _EXACT)


def _register_rounding(
    name: str,
    what: str,
    whole: Callable[[float], int],
    rounding: Callable[[Decimal], str],
    examples: tuple[str, str, str, str],
) -> None:
    """ROUND or TRUNC. `examples` are the results of -2.5, 12345.678, -12345.678 and 12.5."""

    def of_double(value: float) -> int:
        return _long(value, whole)

    def of_double_at(value: float, places: int) -> float:
        if not math.isfinite(value):
            raise ValueError(f"{name} to a number of places needs a number, and got {value}")
        given = Decimal(repr(value))
        return float(_at_place(given, places, rounding(given))) + 0.0

    def of_decimal(kind: types.Decimal) -> Callable[[Decimal], Decimal]:
        result = types.as_decimal(_whole_type([kind], []))
        return lambda value: _fitted(_at_place(value, 0, rounding(value)), result)

    def of_decimal_at(kind: types.Decimal, _: SqlType) -> Callable[[Decimal, int], Decimal]:
        return lambda value, places: _fitted(_at_place(value, places, rounding(value)), kind)

    half, places, negative, exact = examples
    for type_ in ("INTEGER", "BIGINT"):
        given = "3" if type_ == "INTEGER" else "3000000000"
        scalar(f"{name}(value {type_}) -> BIGINT", what, (f"{name}({given})", given))(_unchanged)
    scalar(f"{name}(value DOUBLE) -> BIGINT", what, (f"{name}(-2.5E0)", half))(of_double)
    scalar(
        f"{name}(value DOUBLE, places INTEGER) -> DOUBLE",
        what,
        (f"{name}(12345.678E0, 1)", places),
        (f"{name}(-12345.678E0, -2)", negative),
    )(of_double_at)
    scalar(
        f"{name}(value DECIMAL) -> DECIMAL",
        what,
        (f"{name}(12.5)", exact),
        by_type=True,
        result_type=_whole_type,
    )(of_decimal)
    scalar(
        f"{name}(value DECIMAL, places INTEGER) -> DECIMAL",
        f"{what} The result has the type of the value.",
        (f"{name}(1.2345, 2)", "1.2300"),
        by_type=True,
        result_type=_same_type,
    )(of_decimal_at)


_register_rounding(
    "ROUND",
    "The nearest number with so many digits after the point, 0 if not given. Halves are rounded up.",
    _nearest,
    _half_up,
    ("-2", "12345.7E0", "-12300E0", "13."),
)
_register_rounding(
    "TRUNC",
    "The number cut so many digits after the point, 0 if not given.",
    math.trunc,
    _cut,
    ("-2", "12345.6E0", "-12300E0", "12."),
)


# Greatest and least

_ORDERED = (STRING, BYTES, DATE, TIME, TIMESTAMP)


def _compared_type(given: Sequence[SqlType], literals: Sequence[Any]) -> SqlType:
    """The common type. Raises `SqlError` for values that have no order."""
    known = [one for one in given if one is not None]
    if not known:
        raise SqlError("expected a value that is not NULL")
    for one in known:
        if not (types.is_number(one) or one in _ORDERED):
            raise SqlError(f"values of {text_of(one)} have no greatest one")
    return reduce(lambda one, other: types.common(one, other) or one, known)


def _order(value: Any) -> Any:
    """As Java compares doubles: NaN is greater than all numbers."""
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value


@scalar(
    "GREATEST(first T, others T MANY) -> T",
    "The greatest value that is not null.",
    ("GREATEST(3, NULL, 7, 5)", "7"),
    ("GREATEST(1.5, 2)", "2.0"),
    ("GREATEST('b', 'a')", "'b'"),
    takes_nulls=True,
    result_type=_compared_type,
)
def greatest(*values: Any) -> Any:
    """The greatest; None if all are None."""
    return max((one for one in values if one is not None), key=_order, default=None)


@scalar(
    "LEAST(first T, others T MANY) -> T",
    "The least value that is not null.",
    ("LEAST(3, NULL, 7, 5)", "3"),
    ("LEAST('b', 'a')", "'a'"),
    takes_nulls=True,
    result_type=_compared_type,
)
def least(*values: Any) -> Any:
    """The least; None if all are None."""
    return min((one for one in values if one is not None), key=_order, default=None)


# Series, distances, chance


@scalar(
    "GENERATE_SERIES(start INTEGER, last INTEGER) -> ARRAY<INTEGER>",
    "The whole numbers from the first to the last, which may be the lower one.",
    ("GENERATE_SERIES(1, 3)", "ARRAY[1, 2, 3]"),
    ("GENERATE_SERIES(3, 1)", "ARRAY[3, 2, 1]"),
)
@scalar(
    "GENERATE_SERIES(start BIGINT, last BIGINT) -> ARRAY<BIGINT>",
    "The whole numbers from the first to the last, which may be the lower one.",
    ("GENERATE_SERIES(3000000000, 3000000001)", "ARRAY[3000000000, 3000000001]"),
)
def series(start: int, last: int) -> list[int]:
    """All numbers between two, and these."""
    return _series(start, last, 1 if last > start else -1)


@scalar(
    "GENERATE_SERIES(start INTEGER, last INTEGER, step INTEGER) -> ARRAY<INTEGER>",
    "Whole numbers from the first, each one step after the one before, up to the last.",
    ("GENERATE_SERIES(0, 5, 2)", "ARRAY[0, 2, 4]"),
)
@scalar(
    "GENERATE_SERIES(start BIGINT, last BIGINT, step INTEGER) -> ARRAY<BIGINT>",
    "Whole numbers from the first, each one step after the one before, up to the last.",
    ("GENERATE_SERIES(3000000000, 2999999999, -1)", "ARRAY[3000000000, 2999999999]"),
)
def series_by(start: int, last: int, step: int) -> list[int]:
    """Raises ValueError for a step of 0, or away from the last number."""
    return _series(start, last, step)


def _series(start: int, last: int, step: int) -> list[int]:
    if step == 0:
        raise ValueError("the step of GENERATE_SERIES cannot be 0")
    if (last > start and step < 0) or (last < start and step > 0):
        raise ValueError(f"the step {step} of GENERATE_SERIES does not lead from {start} to {last}")
    within((last - start) // step + 1)
    return list(range(start, last + (1 if step > 0 else -1), step))


_RADII = {
    **dict.fromkeys(("KM", "KILOMETER", "KILOMETERS", "KILOMETRE", "KILOMETRES"), 6371.0),
    **dict.fromkeys(("MI", "MILE", "MILES"), 3959.0),
}
"""The earth's radius by the names of units."""


@scalar(
    "GEO_DISTANCE(latitude DOUBLE, longitude DOUBLE, other_latitude DOUBLE, other_longitude DOUBLE, unit STRING)"
    " -> DOUBLE",
    "The distance of two points on the earth, given in degrees; the unit is KM or MI.",
    ("ROUND(GEO_DISTANCE(37.4439E0, -122.1663E0, 51.5257E0, -0.1122E0, 'miles'))", "5366"),
)
@scalar(
    "GEO_DISTANCE(latitude DOUBLE, longitude DOUBLE, other_latitude DOUBLE, other_longitude DOUBLE) -> DOUBLE",
    "The distance of two points on the earth, given in degrees, in kilometres.",
    ("ROUND(GEO_DISTANCE(37.4439E0, -122.1663E0, 51.5257E0, -0.1122E0))", "8635"),
)
def geo_distance(
    latitude: float, longitude: float, other_latitude: float, other_longitude: float, unit: str = "KM"
) -> float:
    """Along the great circle, by haversines. Raises ValueError for what is no place, and for other units."""
    if not (abs(latitude) <= 90 and abs(other_latitude) <= 90):
        raise ValueError(f"a latitude is from -90 to 90, and got {latitude} and {other_latitude}")
    if not (abs(longitude) <= 180 and abs(other_longitude) <= 180):
        raise ValueError(f"a longitude is from -180 to 180, and got {longitude} and {other_longitude}")
    radius = _RADII.get(unit.strip().upper() or "KM")
    if radius is None:
        raise ValueError(f"the unit of a distance is KM or MI, and got {unit!r:.40}")
    north, east = math.radians(other_latitude - latitude), math.radians(other_longitude - longitude)
    across = math.cos(math.radians(latitude)) * math.cos(math.radians(other_latitude))
    haversine = math.sin(north / 2) ** 2 + math.sin(east / 2) ** 2 * across
    return 2 * math.asin(min(1.0, math.sqrt(haversine))) * radius


@scalar(
    "RANDOM() -> DOUBLE",
    "A number from 0 up to, and without, 1.",
    ("FLOOR(RANDOM())", "0E0"),
    is_random=True,
)
def random_number() -> float:
    """Another one for each call."""
    return random.random()
