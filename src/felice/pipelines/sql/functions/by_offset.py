"""Aggregates of the first or last values in the order of rows: EARLIEST_BY_OFFSET and LATEST_BY_OFFSET.

Keeps true: a value is kept with the number of its row, so that sessions that become one are put in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from felice.pipelines.sql.functions.constants import positive
from felice.pipelines.sql.functions.table import Settings, aggregate
from felice.pipelines.sql.types import BIGINT, Array, SqlType, Struct

Numbered = tuple[int, Any]
"""The number of a row, and its value."""
_number = itemgetter(0)


def _numbered_type(value: SqlType) -> Struct:
    return Struct((("SEQ", BIGINT), ("VAL", value)))


class _One:
    """A single value. A state is `Numbered`, or null."""

    def __init__(self, types: Sequence[SqlType], constants: Sequence[Any], _settings: Settings) -> None:
        self.state_type: SqlType = _numbered_type(types[0])
        self._ignores_nulls = constants[0] if constants else True

    def initial(self) -> Numbered | None:
        """No value."""
        return None

    def result(self, state: Numbered | None) -> Any:
        """The value."""
        return None if state is None else state[1]


@aggregate(
    "EARLIEST_BY_OFFSET(value T) -> T", "The value of the first row in which it is not null.", is_ordered=True
)
@aggregate(
    "EARLIEST_BY_OFFSET(value T, ignore_nulls BOOLEAN CONSTANT) -> T",
    "The value of the first row; if nulls are ignored, of the first row in which it is not null.",
    is_ordered=True,
)
class Earliest(_One):
    """The earliest value."""

    def add(self, state: Numbered | None, number: int, value: Any) -> Numbered | None:
        """The first value stays."""
        return state if state is not None or (value is None and self._ignores_nulls) else (number, value)

    def merge(self, one: Numbered | None, other: Numbered | None) -> Numbered | None:
        """The earlier one of both."""
        return min((state for state in (one, other) if state is not None), key=_number, default=None)


@aggregate(
    "LATEST_BY_OFFSET(value T) -> T", "The value of the last row in which it is not null.", is_ordered=True
)
@aggregate(
    "LATEST_BY_OFFSET(value T, ignore_nulls BOOLEAN CONSTANT) -> T",
    "The value of the last row; if nulls are ignored, of the last row in which it is not null.",
    is_ordered=True,
)
class Latest(_One):
    """The latest value."""

    def add(self, state: Numbered | None, number: int, value: Any) -> Numbered | None:
        """The new value takes the place of the old one."""
        return state if value is None and self._ignores_nulls else (number, value)

    def merge(self, one: Numbered | None, other: Numbered | None) -> Numbered | None:
        """The later one of both."""
        return max((state for state in (one, other) if state is not None), key=_number, default=None)


class _Several:
    """Several values, the earliest first. A state is a list of `Numbered`."""

    def __init__(self, types: Sequence[SqlType], constants: Sequence[Any], _settings: Settings) -> None:
        count, *flags = constants
        self._most = positive(count)
        self.state_type: SqlType = Array(_numbered_type(types[0]))
        self._ignores_nulls = flags[0] if flags else True

    def initial(self) -> list[Numbered]:
        """No values."""
        return []

    def add(self, state: list[Numbered], number: int, value: Any) -> list[Numbered]:
        """The values with one more."""
        if value is None and self._ignores_nulls:
            return state
        return self._kept([*state, (number, value)])

    def merge(self, one: list[Numbered], other: list[Numbered]) -> list[Numbered]:
        """The values of both."""
        return self._kept(sorted([*one, *other], key=_number))

    def result(self, state: list[Numbered]) -> list[Any]:
        """The values."""
        return [value for _, value in state]

    def _kept(self, values: list[Numbered]) -> list[Numbered]:
        raise NotImplementedError


@aggregate(
    "EARLIEST_BY_OFFSET(value T, count INTEGER CONSTANT) -> ARRAY<T>",
    "The first values that are not null, the first one first.",
    is_ordered=True,
)
@aggregate(
    "EARLIEST_BY_OFFSET(value T, count INTEGER CONSTANT, ignore_nulls BOOLEAN CONSTANT) -> ARRAY<T>",
    "The first values, the first one first; without nulls if they are ignored.",
    is_ordered=True,
)
class EarliestSeveral(_Several):
    """The earliest values."""

    def _kept(self, values: list[Numbered]) -> list[Numbered]:
        return values[: self._most]


@aggregate(
    "LATEST_BY_OFFSET(value T, count INTEGER CONSTANT) -> ARRAY<T>",
    "The last values that are not null, the last one last.",
    is_ordered=True,
)
@aggregate(
    "LATEST_BY_OFFSET(value T, count INTEGER CONSTANT, ignore_nulls BOOLEAN CONSTANT) -> ARRAY<T>",
    "The last values, the last one last; without nulls if they are ignored.",
    is_ordered=True,
)
class LatestSeveral(_Several):
    """The latest values."""

    def _kept(self, values: list[Numbered]) -> list[Numbered]:
        return values[-self._most :]
