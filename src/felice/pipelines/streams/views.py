"""Lookups in a store: of one key, of a range of keys, of a key's windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from felice.pipelines.streams.record import Window, Windowed


class StoreView:
    """A store with the rows of all its partitions. A windowed one has keys `Windowed(key, window)`."""

    def __init__(self, name: str, stores: Sequence[Any]) -> None:
        self.name, self._stores = name, stores

    def get(self, key: Any) -> Any:
        """The value of a key; None if it has none."""
        rows = (store.get(key) for store in self._stores)
        return next((row.value for row in rows if row is not None), None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values of all rows, in no certain order. Rows of a global table come once."""
        seen: set[Any] = set()
        for store in self._stores:
            for key, row in store.items():
                if (packed := repr(key)) not in seen:
                    seen.add(packed)
                    yield key, row.value

    def range(self, first: Any, last: Any) -> list[tuple[Any, Any]]:
        """Keys and values from the first to the last key, both included, in order."""
        return sorted((item for item in self.items() if first <= item[0] <= last), key=lambda item: item[0])

    def windows(self, key: Any, start: int, end: int) -> list[tuple[Window, Any]]:
        """The windows of a key that begin from `start` to `end`, both included, with their values, in order."""
        found = [
            (at.window, value) for at, value in self.items() if isinstance(at, Windowed) and at.key == key
        ]
        return sorted((one for one in found if start <= one[0].start <= end), key=lambda one: one[0])

    def __len__(self) -> int:
        return sum(1 for _ in self.items())
