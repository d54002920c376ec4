"""Numbers and their texts as Java has them: what a text says, what a double's text is, and what fits into a type."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable
from typing import Any

from felice.pipelines.java.texts import DAY_MS
from felice.pipelines.sql.types import Decimal

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DOUBLE = re.compile(rf"\s*({_DECIMAL.pattern})[fFdD]?\s*")
_NAMED = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}
_NAN = decimal.Decimal("NaN")
_LARGEST_DIGITS = 400
"""Only a DECIMAL may have more digits before its point; other numbers are refused before they are made."""


def whole_of(text: str, bits: int) -> int:
    """The whole number that a text says. Raises ValueError if it says none of so many bits."""
    if _WHOLE.fullmatch(text) and len(text) <= _LARGEST_DIGITS:
        number = int(text)
        if -(1 << bits - 1) <= number < 1 << bits - 1:
            return number
    raise ValueError(f"{text!r} is not a whole number of {bits} bits")


def truncated(number: float | decimal.Decimal, bits: int) -> int:
    """The number without its fraction, and as Java cuts it off to so many bits. Raises ValueError for a huge one."""
    if isinstance(number, decimal.Decimal) and number.adjusted() > _LARGEST_DIGITS:
        raise ValueError(f"{number} is too large for {bits} bits")
    half = 1 << bits - 1
    return (int(number) + half) % (2 * half) - half


def double_of(text: str) -> float:
    """The double that a text says, also NaN and Infinity. Raises ValueError if it says none."""
    if (found := _DOUBLE.fullmatch(text)) is not None:
        return float(found[1])
    if (named := _NAMED.get(text.strip())) is not None:
        return named
    raise ValueError(f"{text!r} is not a number")


def decimal_of(text: str) -> decimal.Decimal:
    """The decimal that a text says. Raises ValueError if it says none."""
    try:
        if _DECIMAL.fullmatch(text):
            return decimal.Decimal(text)
    except decimal.InvalidOperation:
        pass  # Its exponent is too large.
    raise ValueError(f"{text!r} is not a decimal number")


def fitting(type_: Decimal) -> Callable[[decimal.Decimal], decimal.Decimal]:
    """The function that gives numbers the scale of a type.

    It raises ValueError for those that would have to be rounded, or are too large.
    """
    context = decimal.Context(prec=type_.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    scale = decimal.Decimal((0, (1,), -type_.scale))

    def fit(number: decimal.Decimal) -> decimal.Decimal:
        try:
            fitted = context.quantize(number, scale)
        except decimal.DecimalException:
            fitted = _NAN
        if fitted.is_nan():
            told = f"DECIMAL({type_.precision}, {type_.scale})"
            raise ValueError(f"{number} does not fit into {told} without rounding")
        return fitted

    return fit


def as_double(number: Any) -> float:
    """A number as a double; one that is too large is infinite, as in Java."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def time_of(milliseconds: int) -> int:
    """The milliseconds of a TIME. Raises ValueError if a day does not have them."""
    if not 0 <= milliseconds <= DAY_MS:
        raise ValueError(f"a TIME has from 0 to {DAY_MS} milliseconds, and got {milliseconds}")
    return milliseconds


def double_text(number: float) -> str:
    """The text of a double in Java, such as 1.0E10."""
    if not math.isfinite(number):
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = decimal.Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"
