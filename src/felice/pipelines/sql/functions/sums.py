"""Aggregates that add numbers: SUM, SUM_LIST and AVG.

Keeps true: sums of INTEGER and BIGINT wrap around, as Java's do. A sum of DECIMAL that does not fit the type of its
            column raises `AggregateError`. Nulls count for nothing.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable, Sequence
from typing import Any

from felice.pipelines.sql.expressions.arithmetic import EXACT, fitting, wrapper
from felice.pipelines.sql.functions.table import AggregateError, Settings, aggregate, state_itself
from felice.pipelines.sql.types import BIGINT, DOUBLE, Array, Decimal, SqlType, Struct, text_of

Number = Any
Operation = Callable[[Number, Number], Number]


def _operations(given: SqlType) -> tuple[Number, Operation, Operation]:
    """Zero, addition and subtraction of the numbers of a type. They raise `AggregateError`."""
    if given == DOUBLE:
        return 0.0, operator.add, operator.sub
    if isinstance(given, Decimal):
        fit = _checked(given)
        zero = fit(decimal.Decimal(0))
        return (
            zero,
            lambda one, other: fit(EXACT.add(one, other)),
            lambda one, other: fit(EXACT.subtract(one, other)),
        )
    wrap = wrapper(given)
    return 0, lambda one, other: wrap(one + other), lambda one, other: wrap(one - other)


def _checked(given: Decimal) -> Callable[[decimal.Decimal], decimal.Decimal]:
    fit = fitting(given)

    def checked(number: decimal.Decimal) -> decimal.Decimal:
        try:
            return fit(number)
        except ValueError:
            raise AggregateError(
                f"the sum {number} does not fit {text_of(given)}; CAST the column to a DECIMAL of more digits"
            ) from None

    return checked


def _type_of_first(types: Sequence[SqlType], _: Sequence[Any]) -> SqlType:
    return types[0]


@aggregate("SUM(value INTEGER) -> INTEGER", "The sum of the values that are not null; 0 if there is none.")
@aggregate("SUM(value BIGINT) -> BIGINT", "The sum of the values that are not null; 0 if there is none.")
@aggregate("SUM(value DOUBLE) -> DOUBLE", "The sum of the values that are not null; 0 if there is none.")
@aggregate(
    "SUM(value DECIMAL) -> DECIMAL",
    "The sum of the values that are not null, in their type; 0 if there is none. A sum that does not fit stops the "
    "query.",
    result_type=_type_of_first,
)
class Sum:
    """SUM. A state is the sum."""

    def __init__(self, types: Sequence[SqlType], _constants: Sequence[Any], _settings: Settings) -> None:
        self.state_type = types[0]
        self._zero, self._plus, self._minus = _operations(types[0])

    def initial(self) -> Number:
        """Zero."""
        return self._zero

    def add(self, state: Number, value: Any) -> Number:
        """The sum with a value."""
        return state if value is None else self._plus(state, value)

    def undo(self, state: Number, value: Any) -> Number:
        """The sum without a value."""
        return state if value is None else self._minus(state, value)

    def merge(self, one: Number, other: Number) -> Number:
        """The sum of both."""
        return self._plus(one, other)

    result = staticmethod(state_itself)


@aggregate("SUM_LIST(values ARRAY<INTEGER>) -> INTEGER", "The sum of the elements of all arrays.")
@aggregate("SUM_LIST(values ARRAY<BIGINT>) -> BIGINT", "The sum of the elements of all arrays.")
@aggregate("SUM_LIST(values ARRAY<DOUBLE>) -> DOUBLE", "The sum of the elements of all arrays.")
class SumList(Sum):
    """SUM_LIST. A state is the sum."""

    def __init__(self, types: Sequence[SqlType], constants: Sequence[Any], settings: Settings) -> None:
        array = types[0]
        assert isinstance(array, Array)
        super().__init__([array.element], constants, settings)

    def add(self, state: Number, value: list[Number] | None) -> Number:
        """The sum with the elements of an array."""
        return super().add(state, _total(value))

    def undo(self, state: Number, value: list[Number] | None) -> Number:
        """The sum without the elements of an array."""
        return super().undo(state, _total(value))


def _total(values: list[Number] | None) -> Number | None:
    return None if values is None else sum(one for one in values if one is not None)


@aggregate("AVG(value INTEGER) -> DOUBLE", "The average of the values that are not null; 0 if there is none.")
@aggregate("AVG(value BIGINT) -> DOUBLE", "The average of the values that are not null; 0 if there is none.")
@aggregate("AVG(value DOUBLE) -> DOUBLE", "The average of the values that are not null; 0 if there is none.")
class Average:
    """AVG. A state is the sum and the number of values."""

    def __init__(self, types: Sequence[SqlType], _constants: Sequence[Any], _settings: Settings) -> None:
        self.state_type: SqlType = Struct((("SUM", types[0]), ("COUNT", BIGINT)))
        self._zero, self._plus, self._minus = _operations(types[0])

    def initial(self) -> tuple[Number, int]:
        """No values."""
        return self._zero, 0

    def add(self, state: tuple[Number, int], value: Number | None) -> tuple[Number, int]:
        """One value more."""
        return state if value is None else (self._plus(state[0], value), state[1] + 1)

    def undo(self, state: tuple[Number, int], value: Number | None) -> tuple[Number, int]:
        """One value less."""
        return state if value is None else (self._minus(state[0], value), state[1] - 1)

    def merge(self, one: tuple[Number, int], other: tuple[Number, int]) -> tuple[Number, int]:
        """The values of both."""
        return self._plus(one[0], other[0]), one[1] + other[1]

    def result(self, state: tuple[Number, int]) -> float:
        """The average."""
        total, count = state
        return total / count if count else 0.0
