"""Java's arithmetic on numbers that are not null.

Keeps true: INTEGER and BIGINT wrap around, division truncates towards zero, and a remainder has the sign of the
            dividend. Division by zero is an error of exact numbers, and Infinity or NaN of doubles. A DECIMAL has the
            scale of its type, rounded half up; one that does not fit its precision is an error.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

from felice.pipelines.sql import types
from felice.pipelines.sql.types import BIGINT, DOUBLE, INTEGER, SqlType

EXACT = decimal.Context(
    prec=decimal.MAX_PREC, rounding=decimal.ROUND_HALF_UP, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN
)
_BITS: dict[SqlType, int] = {INTEGER: 32, BIGINT: 64}


@lru_cache
def wrapper(width: SqlType) -> Callable[[int], int]:
    """The function that makes a number that INTEGER or BIGINT holds, as Java's arithmetic wraps around."""
    half = 1 << (_BITS[width] - 1)
    whole = half << 1
    return lambda number: (number + half) % whole - half


def limits(width: SqlType) -> tuple[int, int]:
    """The least and the greatest number."""
    half = 1 << (_BITS[width] - 1)
    return -half, half - 1


def divided(one: int, other: int) -> int:
    """The quotient of whole numbers, truncated. Raises ValueError for a division by zero."""
    if other == 0:
        raise ValueError("division by zero")
    if one >= 0 < other:
        return one // other
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def remainder(one: int, other: int) -> int:
    """The remainder of whole numbers. Raises ValueError for a division by zero."""
    if other == 0:
        raise ValueError("division by zero")
    found = abs(one) % abs(other)
    return found if one >= 0 else -found


def divided_doubles(one: float, other: float) -> float:
    """The quotient of doubles."""
    if other != 0:
        return one / other
    if one == 0 or one != one:
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1, other)


def double_remainder(one: float, other: float) -> float:
    """The remainder of doubles."""
    if other == 0 or math.isinf(one) or one != one or other != other:
        return math.nan
    return math.fmod(one, other)


@lru_cache
def fitting(kind: types.Decimal) -> Callable[[Decimal], Decimal]:
    """The function that rounds a number to the scale of a type. It raises ValueError for one that does not fit."""
    unit, limit = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def fit(number: Decimal) -> Decimal:
        found = number.quantize(unit, context=EXACT)
        if found.copy_abs() >= limit:  # `abs` would round it
            raise ValueError(f"{number} does not fit DECIMAL({kind.precision}, {kind.scale})")
        return found

    return fit


@lru_cache
def decimal_function(operator: str, result: types.Decimal) -> Callable[[Decimal, Decimal], Decimal]:
    """The function of `+`, `-`, `*`, `/` or `%`, with results of a type. The last two raise ValueError."""
    fit = fitting(result)
    if operator == "/":
        rounding = decimal.Context(prec=max(result.precision, 1), rounding=decimal.ROUND_HALF_UP)

        def divide(one: Decimal, other: Decimal) -> Decimal:
            if not other:
                raise ValueError("division by zero")
            return fit(rounding.divide(one, other))

        return divide
    if operator == "%":

        def remain(one: Decimal, other: Decimal) -> Decimal:
            if not other:
                raise ValueError("division by zero")
            return fit(EXACT.remainder(one, other))

        return remain
    # The type of the result holds all of its digits.
    return {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[operator]


WHOLE = {"/": divided, "%": remainder}
"""The functions of whole numbers that are no operators of Python."""
OF_DOUBLES = {"/": divided_doubles, "%": double_remainder}
"""The functions of doubles that are no operators of Python."""


def number_function(wanted: SqlType, given: SqlType) -> Callable[[int | Decimal], float | Decimal] | None:
    """The function that makes a number of a wider type; None if the value stays as it is."""
    if wanted == DOUBLE and given != DOUBLE:
        return float
    if isinstance(wanted, types.Decimal) and wanted != given:
        fit = fitting(wanted)
        return lambda number: fit(Decimal(number))
    return None
