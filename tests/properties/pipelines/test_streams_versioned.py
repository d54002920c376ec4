"""The store of a versioned table against its definition: all that was ever put, seen through the history."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.streams.formats import format_of
from felice.pipelines.streams.versioned import VersionedStore

HISTORY_MS = 15
Put = tuple[str, int | None, int]
puts = st.lists(
    st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 9), st.integers(0, 60)), max_size=40
)


def new_store() -> VersionedStore:
    return VersionedStore("rows", format_of("string"), format_of("json"), HISTORY_MS)


class Definition:
    """Every value with its key and time. Beyond the history, puts are refused, and lookups see the last row only."""

    def __init__(self) -> None:
        self.time = -1
        self.values: dict[str, dict[int, int | None]] = {"a": {}, "b": {}}

    def put(self, key: str, value: int | None, timestamp: int) -> bool | None:
        if timestamp < self.time - HISTORY_MS:
            return None
        self.time = max(self.time, timestamp)
        self.values[key][timestamp] = value
        return timestamp == max(self.values[key])

    def get_at(self, key: str, timestamp: int) -> int | None:
        times = [time for time in self.values[key] if time <= timestamp]
        is_last = len(times) == len(self.values[key])
        if not times or (timestamp < self.time - HISTORY_MS and not is_last):
            return None
        return self.values[key][max(times)]


def looked_up(store: Any, timestamps: range) -> list[Any]:
    rows = [store.get_at(key, timestamp) for key in "ab" for timestamp in timestamps]
    return [getattr(row, "value", row) for row in rows]


@given(puts)
def test_lookups_are_those_of_the_definition_also_after_a_restart(given: list[Put]) -> None:
    store, definition, saved = new_store(), Definition(), []
    for key, value, timestamp in given:
        # A deletion of a row that was forgotten may be the latest again; no lookup can tell.
        expected, found = definition.put(key, value, timestamp), store.put(key, value, timestamp)
        assert (found is None) == (expected is None)
        saved += store.take_changes()
        loaded = new_store()
        loaded.load(saved)
        span = range(62)
        assert looked_up(store, span) == looked_up(definition, span) == looked_up(loaded, span)
        if found is not None:
            assert found == expected


@given(puts)
def test_what_was_replaced_long_ago_is_forgotten(given: list[Put]) -> None:
    store = new_store()
    for key, value, timestamp in given:
        store.put(key, value, timestamp)
    store.put("a", 1, 1_000)
    store.put("a", 2, 1_000 + HISTORY_MS)
    store.put("b", None, 1_001 + HISTORY_MS)
    store.put("a", None, 1_002 + HISTORY_MS)
    store.put("c", 1, 2_000)
    assert set(store.rows) == {b"c"}
    for timestamp in range(2_000, 2_100):
        store.put("c", 1, timestamp)
        # The versions of the history, and the one that was the row when it began.
        assert len(store.rows[b"c"]) <= HISTORY_MS + 1
