"""Aggregates of the greatest and least values: MAX, MIN, TOPK and TOPKDISTINCT. Nulls count for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from felice.pipelines.sql.functions.constants import positive
from felice.pipelines.sql.functions.ordering import Order, order_of, ordered_type
from felice.pipelines.sql.functions.table import Settings, aggregate, state_itself
from felice.pipelines.sql.types import Array, SqlType, Struct


@aggregate("MAX(value T) -> T", "The greatest value; null if there is none.", result_type=ordered_type)
class Maximum:
    """MAX. A state is the greatest value, or null."""

    def __init__(self, types: Sequence[SqlType], _constants: Sequence[Any], _settings: Settings) -> None:
        self.state_type = types[0]
        self._order = order_of(types[0])

    def initial(self) -> Any:
        """No value."""
        return None

    def add(self, state: Any, value: Any) -> Any:
        """The greater one of both."""
        if value is None or state is None:
            return state if value is None else value
        return value if self._is_beyond(value, state) else state

    def _is_beyond(self, one: Any, other: Any) -> bool:
        return bool(self._order(one) > self._order(other))

    def merge(self, one: Any, other: Any) -> Any:
        """The greater one of both."""
        return self.add(one, other)

    result = staticmethod(state_itself)


@aggregate("MIN(value T) -> T", "The least value; null if there is none.", result_type=ordered_type)
class Minimum(Maximum):
    """MIN. A state is the least value, or null."""

    def _is_beyond(self, one: Any, other: Any) -> bool:
        return bool(self._order(one) < self._order(other))


class _Greatest:
    """The greatest values, the greatest first; of equal ones the earlier first. A state is a list of them."""

    def __init__(self, element: SqlType, order: Order, constants: Sequence[Any]) -> None:
        self._most = positive(constants[0])
        self.state_type: SqlType = Array(element)
        self._order = order

    def initial(self) -> list[Any]:
        """No values."""
        return []

    def _with(self, state: list[Any], value: Any) -> list[Any]:
        key, place = self._order(value), len(state)
        while place and self._order(state[place - 1]) < key:
            place -= 1
        return state if place == self._most else [*state[:place], value, *state[place:]][: self._most]

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        """The greatest values of both."""
        return sorted([*one, *other], key=self._order, reverse=True)[: self._most]

    result = staticmethod(state_itself)


def _array_of_first(types: Sequence[SqlType], literals: Sequence[Any]) -> SqlType:
    return Array(ordered_type(types, literals))


@aggregate(
    "TOPK(value T, count INTEGER CONSTANT) -> ARRAY<T>",
    "The greatest values, the greatest first. Equal values count several times.",
    result_type=_array_of_first,
)
class TopK(_Greatest):
    """TOPK of one column."""

    def __init__(self, types: Sequence[SqlType], constants: Sequence[Any], _settings: Settings) -> None:
        super().__init__(types[0], order_of(types[0]), constants)

    def add(self, state: list[Any], value: Any) -> list[Any]:
        """The values with one more."""
        return state if value is None else self._with(state, value)


@aggregate(
    "TOPKDISTINCT(value T, count INTEGER CONSTANT) -> ARRAY<T>",
    "The greatest different values, the greatest first.",
    result_type=_array_of_first,
)
class TopKDistinct(_Greatest):
    """TOPKDISTINCT."""

    def __init__(self, types: Sequence[SqlType], constants: Sequence[Any], _settings: Settings) -> None:
        super().__init__(types[0], order_of(types[0]), constants)

    def add(self, state: list[Any], value: Any) -> list[Any]:
        """The values with one more."""
        if value is None or self._order(value) in map(self._order, state):
            return state
        return self._with(state, value)

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        """The greatest values of both."""
        known = set(map(self._order, one))
        return super().merge(one, [value for value in other if self._order(value) not in known])


def _row_type(types: Sequence[SqlType]) -> Struct:
    value, *others, _ = types
    return Struct((("sort_col", value), *((f"col{number}", one) for number, one in enumerate(others))))


def _array_of_rows(types: Sequence[SqlType], literals: Sequence[Any]) -> SqlType:
    ordered_type(types, literals)
    return Array(_row_type(types))


class TopKRows(_Greatest):
    """TOPK of several columns: structs, which the first column orders."""

    def __init__(self, types: Sequence[SqlType], constants: Sequence[Any], _settings: Settings) -> None:
        order = order_of(types[0])
        super().__init__(_row_type(types), lambda row: order(row[0]), constants)

    def add(self, state: list[Any], *values: Any) -> list[Any]:
        """The rows with one more."""
        return state if values[0] is None else self._with(state, values)


MOST_COLUMNS = 8
"""TOPK has a signature for each number of further columns."""

for _count in range(1, MOST_COLUMNS + 1):
    _columns = ", ".join(f"col{_number} ANY" for _number in range(_count))
    aggregate(
        f"TOPK(value T, {_columns}, count INTEGER CONSTANT) -> ARRAY<STRUCT<>>",
        "The rows with the greatest values, the greatest first, as structs: `sort_col` is the value, `col0` and so on "
        "are the other columns.",
        result_type=_array_of_rows,
    )(TopKRows)
