"""Roots, powers, logarithms and trigonometry: functions of DOUBLE.

Keeps true: what has no result is NaN, and what is too great Infinity, as in Java: none of these functions fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from felice.pipelines.sql.functions.table import scalar


def _or_nan(function: Callable[[float], float]) -> Callable[[float], float]:
    """The same function, with NaN where Python refuses the argument."""

    def compute(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return math.nan

    return compute


def _exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _logarithm(value: float) -> float:
    if value == 0:
        return -math.inf
    return math.nan if value < 0 else math.log(value)


def _cotangent(value: float) -> float:
    # As Java: by zero it is infinite, with the sign of that zero.
    return math.copysign(math.inf, value) if value == 0 else math.cos(value) / math.sin(value)


def _hyperbolic_cosine(value: float) -> float:
    try:
        return math.cosh(value)
    except OverflowError:
        return math.inf


def _hyperbolic_sine(value: float) -> float:
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(math.inf, value)


_FUNCTIONS: tuple[tuple[str, Callable[[float], float], str, tuple[str, str]], ...] = (
    ("ACOS", math.acos, "The arc cosine, in radians.", ("ACOS(1)", "0E0")),
    ("ASIN", math.asin, "The arc sine, in radians.", ("ASIN(0)", "0E0")),
    ("ATAN", math.atan, "The arc tangent, in radians.", ("ATAN(0)", "0E0")),
    ("CBRT", math.cbrt, "The cube root.", ("CBRT(-8)", "-2E0")),
    ("COS", math.cos, "The cosine of an angle in radians.", ("COS(0)", "1E0")),
    ("COSH", _hyperbolic_cosine, "The hyperbolic cosine.", ("COSH(0)", "1E0")),
    ("COT", _cotangent, "The cotangent of an angle in radians.", ("ROUND(COT(1), 3)", "0.642E0")),
    ("DEGREES", math.degrees, "The degrees of an angle in radians.", ("DEGREES(PI())", "180E0")),
    ("EXP", _exponential, "The power of Euler's number.", ("EXP(0)", "1E0")),
    ("LN", _logarithm, "The natural logarithm.", ("LN(1)", "0E0")),
    ("LOG", _logarithm, "The natural logarithm, as LN.", ("LOG(1)", "0E0")),
    ("RADIANS", math.radians, "The radians of an angle in degrees.", ("RADIANS(0)", "0E0")),
    ("SIN", math.sin, "The sine of an angle in radians.", ("SIN(0)", "0E0")),
    ("SINH", _hyperbolic_sine, "The hyperbolic sine.", ("SINH(0)", "0E0")),
    ("SQRT", math.sqrt, "The square root; NaN for a negative number.", ("SQRT(9)", "3E0")),
    ("TAN", math.tan, "The tangent of an angle in radians.", ("TAN(0)", "0E0")),
    ("TANH", math.tanh, "The hyperbolic tangent.", ("TANH(0)", "0E0")),
)
for _name, _function, _what, _example in _FUNCTIONS:
    scalar(f"{_name}(value DOUBLE) -> DOUBLE", _what, _example)(_or_nan(_function))


@scalar(
    "LOG(base DOUBLE, value DOUBLE) -> DOUBLE",
    "The logarithm to a base; NaN for a base that is 1, or not above 0.",
    ("LOG(2, 8)", "3E0"),
)
def logarithm(base: float, value: float) -> float:
    """By natural logarithms, as Java."""
    if base <= 0 or base == 1:
        return math.nan
    return _logarithm(value) / math.log(base)


@scalar(
    "ATAN2(y DOUBLE, x DOUBLE) -> DOUBLE",
    "The angle of a point, in radians: the arc tangent of y / x in the right quadrant.",
    ("ATAN2(0, 1)", "0E0"),
)
def angle(y: float, x: float) -> float:
    """The angle to the axis of x."""
    return math.atan2(y, x)


@scalar("PI() -> DOUBLE", "The circle's number.", ("ROUND(PI(), 4)", "3.1416E0"))
def pi() -> float:
    """3.14159..."""
    return math.pi


@scalar("POWER(base DOUBLE, exponent DOUBLE) -> DOUBLE", "The power of a base.", ("POWER(2, 10)", "1024E0"))
def power(base: float, exponent: float) -> float:
    """Java's `Math.pow`: NaN for the roots of negative numbers, and Infinity for what is too great."""
    if math.isnan(exponent) or (abs(base) == 1 and math.isinf(exponent)):
        return math.nan  # Python's `pow` is 1 where the base is.
    try:
        return math.pow(base, exponent)
    except OverflowError:
        pass
    except ValueError:
        if base != 0:
            return math.nan
    # Too great, or a negative power of zero.
    return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf
