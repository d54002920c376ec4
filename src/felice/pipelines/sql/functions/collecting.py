"""Aggregates that keep values: COLLECT_LIST, COLLECT_SET, HISTOGRAM and ATTR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from felice.pipelines.sql.functions.ordering import equality_key
from felice.pipelines.sql.functions.table import Settings, aggregate, state_itself
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.types import BIGINT, INTEGER, STRING, Array, Map, SqlType, Struct

LIST_LIMIT, SET_LIMIT = "ksql.functions.collect_list.limit", "ksql.functions.collect_set.limit"
DEFAULT_LIMIT = 1_000
MOST_NAMES = 1_000
"""HISTOGRAM counts so many different texts; ksqlDB has no setting for it."""


def _limit(settings: Settings, name: str) -> int | None:
    """The most values that are kept; None if there is no limit. Raises `SqlError`."""
    text = settings.get(name, str(DEFAULT_LIMIT))
    try:
        limit = int(text)
    except ValueError:
        raise SqlError(f"{name}: expected a whole number, and got {text!r}") from None
    return None if limit < 0 else limit


class _Collection:
    """A state is a list of values: the first ones up to the limit."""

    def __init__(self, types: Sequence[SqlType], limit: int | None) -> None:
        self.state_type: SqlType = Array(types[0])
        self._limit = limit

    def initial(self) -> list[Any]:
        """No values."""
        return []

    def _is_full(self, state: list[Any]) -> bool:
        return self._limit is not None and len(state) >= self._limit

    result = staticmethod(state_itself)


@aggregate(
    "COLLECT_LIST(value T) -> ARRAY<T>",
    f"All values in the order of their rows, nulls too; the first 1,000 of them, or as many as {LIST_LIMIT} says: any "
    "number if it is negative.",
)
class CollectList(_Collection):
    """COLLECT_LIST."""

    def __init__(self, types: Sequence[SqlType], _constants: Sequence[Any], settings: Settings) -> None:
        super().__init__(types, _limit(settings, LIST_LIMIT))

    def add(self, state: list[Any], value: Any) -> list[Any]:
        """The list with one more value."""
        return state if self._is_full(state) else [*state, value]

    def undo(self, state: list[Any], value: Any) -> list[Any]:
        """The list without the last equal value, as ksqlDB removes it."""
        key = equality_key(value)
        for place in reversed(range(len(state))):
            if equality_key(state[place]) == key:
                return [*state[:place], *state[place + 1 :]]
        return state

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        """The first list, then the second."""
        return [*one, *other][: self._limit]


@aggregate(
    "COLLECT_SET(value T) -> ARRAY<T>",
    f"The different values in the order of their first rows, null too; the first 1,000 of them, or as many as "
    f"{SET_LIMIT} says: any number if it is negative.",
)
class CollectSet(_Collection):
    """COLLECT_SET."""

    def __init__(self, types: Sequence[SqlType], _constants: Sequence[Any], settings: Settings) -> None:
        super().__init__(types, _limit(settings, SET_LIMIT))

    def add(self, state: list[Any], value: Any) -> list[Any]:
        """The set with a value."""
        if self._is_full(state) or equality_key(value) in map(equality_key, state):
            return state
        return [*state, value]

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        """The values of the first set, then the others of the second."""
        known = set(map(equality_key, one))
        return [*one, *(value for value in other if equality_key(value) not in known)][: self._limit]


NULL_NAME = "null"
"""Keys of maps are never null: HISTOGRAM counts nulls under this name, as ksqlDB writes them."""


@aggregate(
    "HISTOGRAM(text STRING) -> MAP<STRING, BIGINT>",
    "The different texts with the number of rows of each; the first 1,000 texts. Null counts as the text `null`.",
)
class Histogram:
    """HISTOGRAM. A state is a map of counts, none of which is 0."""

    state_type: SqlType = Map(STRING, BIGINT)

    def __init__(self, _types: Sequence[SqlType], _constants: Sequence[Any], _settings: Settings) -> None:
        pass

    def initial(self) -> dict[str, int]:
        """No texts."""
        return {}

    def add(self, state: dict[str, int], text: str | None) -> dict[str, int]:
        """One more of a text."""
        return self.merge(state, {NULL_NAME if text is None else text: 1})

    def undo(self, state: dict[str, int], text: str | None) -> dict[str, int]:
        """One less of a text, if it is counted."""
        name = NULL_NAME if text is None else text
        left = state.get(name, 0) - 1
        if left > 0:
            return {**state, name: left}
        return {one: count for one, count in state.items() if one != name}

    def merge(self, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        """The counts of both."""
        found = dict(one)
        for name, count in other.items():
            if name in found or len(found) < MOST_NAMES:
                found[name] = found.get(name, 0) + count
        return found

    result = staticmethod(state_itself)


def _entry_type(value: SqlType) -> Struct:
    return Struct((("VALUE", value), ("COUNT", INTEGER)))


@aggregate(
    "ATTR(value T) -> T",
    "The value that is the same in all rows; null if there are several values. A null is a value, too.",
)
class Attribute:
    """ATTR. A state is a list of values and how often each is there; with one entry if it is used as it should be."""

    def __init__(self, types: Sequence[SqlType], _constants: Sequence[Any], _settings: Settings) -> None:
        self.state_type: SqlType = Array(_entry_type(types[0]))

    def initial(self) -> list[tuple[Any, int]]:
        """No values."""
        return []

    def add(self, state: list[tuple[Any, int]], value: Any) -> list[tuple[Any, int]]:
        """One more of a value."""
        return _counted(state, [(value, 1)])

    def undo(self, state: list[tuple[Any, int]], value: Any) -> list[tuple[Any, int]]:
        """One less of a value."""
        return _counted(state, [(value, -1)])

    def merge(self, one: list[tuple[Any, int]], other: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """The values of both."""
        return _counted(one, other)

    def result(self, state: list[tuple[Any, int]]) -> Any:
        """The only value."""
        return state[0][0] if len(state) == 1 else None


def _counted(state: list[tuple[Any, int]], changes: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    counts: dict[Any, tuple[Any, int]] = {}
    for value, count in (*state, *changes):
        key = equality_key(value)
        kept, known = counts.get(key, (value, 0))
        counts[key] = kept, known + count
    return [entry for entry in counts.values() if entry[1] > 0]
