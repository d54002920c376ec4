"""Functions of maps."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from felice.pipelines.sql.functions.ordering import order_of
from felice.pipelines.sql.functions.table import scalar
from felice.pipelines.sql.types import STRING

_BY_TEXT = order_of(STRING)


@scalar(
    "AS_MAP(keys ARRAY<STRING>, values ARRAY<T>) -> MAP<STRING, T>",
    "The map of keys and values. A key without a value has null; a value without a key is left out.",
    ("AS_MAP(ARRAY['a', 'b'], ARRAY[1])", "MAP('a' := 1, 'b' := NULL)"),
)
def as_map(keys: list[str | None], values: list[Any]) -> dict[str | None, Any]:
    """Two arrays as a map; the last of equal keys counts."""
    return dict(zip_longest(keys, values[: len(keys)]))


@scalar(
    "ENTRIES(map MAP<STRING, T>, sorted BOOLEAN) -> ARRAY<STRUCT<K STRING, V T>>",
    "The entries of a map as structs of key and value, sorted by key if that is wanted.",
    ("ENTRIES(MAP('b' := 1, 'a' := 2), TRUE)", "ARRAY[STRUCT(K := 'a', V := 2), STRUCT(K := 'b', V := 1)]"),
)
def entries(given: Mapping[str, Any], is_sorted: bool) -> list[tuple[str, Any]]:
    """The entries of a map."""
    return sorted(given.items(), key=lambda entry: _BY_TEXT(entry[0])) if is_sorted else list(given.items())


@scalar(
    "MAP_KEYS(map MAP<K, T>) -> ARRAY<K>",
    "The keys of a map.",
    ("MAP_KEYS(MAP('a' := 1, 'b' := 2))", "ARRAY['a', 'b']"),
)
def map_keys(given: Mapping[Any, Any]) -> list[Any]:
    """The keys of a map."""
    return list(given)


@scalar(
    "MAP_VALUES(map MAP<K, T>) -> ARRAY<T>",
    "The values of a map.",
    ("MAP_VALUES(MAP('a' := 1, 'b' := 2))", "ARRAY[1, 2]"),
)
def map_values(given: Mapping[Any, Any]) -> list[Any]:
    """The values of a map."""
    return list(given.values())


@scalar(
    "MAP_UNION(one MAP<K, T>, other MAP<K, T>) -> MAP<K, T>",
    "The entries of both maps; where both have a key, that of the second. A null map counts as an empty one; two of "
    "them give null.",
    ("MAP_UNION(MAP('a' := 1, 'b' := 2), MAP('b' := 3))", "MAP('a' := 1, 'b' := 3)"),
    takes_nulls=True,
)
def map_union(one: Mapping[Any, Any] | None, other: Mapping[Any, Any] | None) -> dict[Any, Any] | None:
    """Both maps as one."""
    return None if one is None and other is None else {**(one or {}), **(other or {})}
