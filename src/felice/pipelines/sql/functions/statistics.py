"""Aggregates of statistics: STDDEV_SAMP, STDDEV_SAMPLE and CORRELATION. Nulls count for nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from felice.pipelines.sql.expressions.arithmetic import wrapper
from felice.pipelines.sql.functions.table import Settings, aggregate
from felice.pipelines.sql.types import BIGINT, DOUBLE, SqlType, Struct

Spread = tuple[Any, int, float]
"""The sum of values, how many they are, and the sum of the squares of their distances from the average."""


@aggregate(
    "STDDEV_SAMP(value INTEGER) -> DOUBLE",
    "The sample variance: the square of the standard deviation. Use STDDEV_SAMPLE.",
)
@aggregate(
    "STDDEV_SAMP(value BIGINT) -> DOUBLE",
    "The sample variance: the square of the standard deviation. Use STDDEV_SAMPLE.",
)
@aggregate(
    "STDDEV_SAMP(value DOUBLE) -> DOUBLE",
    "The sample variance: the square of the standard deviation. Use STDDEV_SAMPLE.",
)
class SampleVariance:
    """STDDEV_SAMP, whose name is wrong in ksqlDB, too. The algorithm is that of Youngs and Cramer."""

    def __init__(self, types: Sequence[SqlType], _constants: Sequence[Any], _settings: Settings) -> None:
        total = DOUBLE if types[0] == DOUBLE else BIGINT
        self.state_type: SqlType = Struct((("SUM", total), ("COUNT", BIGINT), ("M2", DOUBLE)))
        self._initial: Spread = (0.0 if types[0] == DOUBLE else 0, 0, 0.0)
        self._fit = float if types[0] == DOUBLE else wrapper(BIGINT)

    def initial(self) -> Spread:
        """No values."""
        return self._initial

    def add(self, state: Spread, value: Any) -> Spread:
        """One value more."""
        if value is None:
            return state
        total, count, squares = state[0] + value, state[1] + 1, state[2]
        return self._fit(total), count, squares + _share(value, total, count)

    def undo(self, state: Spread, value: Any) -> Spread:
        """One value less."""
        if value is None:
            return state
        total, count, squares = state
        if count <= 1:
            return self._initial
        # Rounding must not leave a negative sum of squares.
        return self._fit(total - value), count - 1, max(squares - _share(value, total, count), 0.0)

    def merge(self, one: Spread, other: Spread) -> Spread:
        """The values of both."""
        if not one[1] or not other[1]:
            return one if one[1] else other
        count = one[1] + other[1]
        distance = one[0] / one[1] - other[0] / other[1]
        squares = one[2] + other[2] + one[1] * other[1] * distance * distance / count
        return self._fit(one[0] + other[0]), count, squares

    def result(self, state: Spread) -> float:
        """The variance; 0 for less than two values."""
        _, count, squares = state
        return squares / (count - 1) if count > 1 else 0.0


def _share(value: Any, total: Any, count: int) -> float:
    """What a value adds to the sum of squares. `total` and `count` are those with the value."""
    if count == 1:
        return 0.0
    distance = float(value * count - total)
    return distance * distance / (count * (count - 1))


@aggregate(
    "STDDEV_SAMPLE(value INTEGER) -> DOUBLE", "The sample standard deviation; 0 for less than two values."
)
@aggregate(
    "STDDEV_SAMPLE(value BIGINT) -> DOUBLE", "The sample standard deviation; 0 for less than two values."
)
@aggregate(
    "STDDEV_SAMPLE(value DOUBLE) -> DOUBLE", "The sample standard deviation; 0 for less than two values."
)
class SampleDeviation(SampleVariance):
    """STDDEV_SAMPLE."""

    def result(self, state: Spread) -> float:
        """The standard deviation; 0 for less than two values."""
        return math.sqrt(super().result(state))


Sums = tuple[float, float, float, float, float, int]
_SUMS = ("X_SUM", "Y_SUM", "X_SQUARED_SUM", "Y_SQUARED_SUM", "XY_SUM")
_NONE: Sums = (0.0, 0.0, 0.0, 0.0, 0.0, 0)


@aggregate(
    "CORRELATION(x DOUBLE, y DOUBLE) -> DOUBLE",
    "Pearson's correlation of two columns, of the rows in which neither is null. NaN if a column does not vary.",
)
class Correlation:
    """CORRELATION. A state is the sums that its formula needs, and the number of rows."""

    state_type: SqlType = Struct((*((name, DOUBLE) for name in _SUMS), ("COUNT", BIGINT)))

    def __init__(self, _types: Sequence[SqlType], _constants: Sequence[Any], _settings: Settings) -> None:
        pass

    def initial(self) -> Sums:
        """No rows."""
        return _NONE

    def add(self, state: Sums, x: float | None, y: float | None) -> Sums:
        """One row more."""
        return state if x is None or y is None else _plus(state, (x, y, x * x, y * y, x * y, 1))

    def undo(self, state: Sums, x: float | None, y: float | None) -> Sums:
        """One row less."""
        if x is None or y is None:
            return state
        return _plus(state, (-x, -y, -x * x, -y * y, -x * y, -1)) if state[-1] > 1 else _NONE

    def merge(self, one: Sums, other: Sums) -> Sums:
        """The rows of both."""
        return _plus(one, other)

    def result(self, state: Sums) -> float:
        """The correlation."""
        x, y, xx, yy, xy, count = state
        spread = (count * xx - x * x) * (count * yy - y * y)
        return (count * xy - x * y) / math.sqrt(spread) if spread > 0 else math.nan


def _plus(one: Sums, other: Sums) -> Sums:
    return tuple(left + right for left, right in zip(one, other, strict=True))  # type: ignore[return-value]
