"""Functions that call lambdas: TRANSFORM, FILTER and REDUCE.

Keeps true: as in ksqlDB a new map has no null values and no key twice, and a filter must say yes or no. What does not
            is a ValueError, so that the result is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from felice.pipelines.sql.functions.table import scalar

Lambda = Callable[..., Any]


@scalar(
    "TRANSFORM(array ARRAY<T>, each T => R) -> ARRAY<R>",
    "What the lambda makes of each element.",
    ("TRANSFORM(ARRAY[1, 2], x => x + 1)", "ARRAY[2, 3]"),
)
def transform_array(array: list[Any], each: Lambda) -> list[Any]:
    """A new element for each one."""
    return list(map(each, array))


@scalar(
    "TRANSFORM(map MAP<K, T>, key (K, T) => R, value (K, T) => S) -> MAP<R, S>",
    "A map with the keys and values that the lambdas make of the key and the value of each entry.",
    ("TRANSFORM(MAP('a' := 1), (k, v) => k + 'b', (k, v) => v + 1)", "MAP('ab' := 2)"),
)
def transform_map(given: Mapping[Any, Any], of_key: Lambda, of_value: Lambda) -> dict[Any, Any]:
    """A new entry for each one. Raises ValueError for a key that is there already, and for a null value."""
    found: dict[Any, Any] = {}
    for entry in given.items():
        key, value = of_key(*entry), of_value(*entry)
        if key in found:
            raise ValueError(f"TRANSFORM: two entries of the new map have the key {key!r}")
        found[key] = _present(key, value, "TRANSFORM")
    return found


def _present(key: Any, value: Any, name: str) -> Any:
    if value is None:
        raise ValueError(f"{name}: the new map has a null value, of the key {key!r}")
    return value


@scalar(
    "FILTER(array ARRAY<T>, is_wanted T => BOOLEAN) -> ARRAY<T>",
    "The elements for which the lambda is true.",
    ("FILTER(ARRAY[1, 5, 2], x => x > 1)", "ARRAY[5, 2]"),
)
def filter_array(array: list[Any], is_wanted: Lambda) -> list[Any]:
    """Some of the elements. Raises ValueError if the lambda is null."""
    return [one for one in array if _decided(is_wanted(one))]


@scalar(
    "FILTER(map MAP<K, T>, is_wanted (K, T) => BOOLEAN) -> MAP<K, T>",
    "The entries for whose key and value the lambda is true.",
    ("FILTER(MAP('a' := 1, 'b' := 2), (k, v) => v > 1)", "MAP('b' := 2)"),
)
def filter_map(given: Mapping[Any, Any], is_wanted: Lambda) -> dict[Any, Any]:
    """Some of the entries. Raises ValueError if the lambda, or a value that it wants, is null."""
    return {
        key: _present(key, value, "FILTER") for key, value in given.items() if _decided(is_wanted(key, value))
    }


def _decided(answer: bool | None) -> bool:
    if answer is None:
        raise ValueError("FILTER: the lambda must be true or false, and is null")
    return answer


@scalar(
    "REDUCE(array ARRAY<T>, initial S, next (S, T) => S) -> S",
    "Combines the elements to one value: the lambda returns the next state from a state and an element. The first "
    "state is `initial`, the last one is the result. Null if `initial` is null; `initial` if the array is null.",
    ("REDUCE(ARRAY[1, 2, 3], 10, (s, x) => s + x)", "16"),
    takes_nulls=True,
)
def reduce_array(array: list[Any] | None, state: Any, following: Lambda) -> Any:
    """One value of all elements."""
    for one in array or () if state is not None else ():
        state = following(state, one)
    return state


@scalar(
    "REDUCE(map MAP<K, T>, initial S, next (S, K, T) => S) -> S",
    "Combines the entries to one value: the lambda returns the next state from a state, a key and a value. The first "
    "state is `initial`, the last one is the result. Null if `initial` is null; `initial` if the map is null.",
    ("REDUCE(MAP('a' := 1, 'b' := 2), 10, (s, k, v) => s + v)", "13"),
    takes_nulls=True,
)
def reduce_map(given: Mapping[Any, Any] | None, state: Any, following: Lambda) -> Any:
    """One value of all entries."""
    for entry in (given or {}).items() if state is not None else ():
        state = following(state, *entry)
    return state
