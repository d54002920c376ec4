"""Lookups in a store: of one key, of a range of keys, of a key's windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain
from operator import itemgetter
from typing import Any

from felice.pipelines.errors import FormatError
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Timestamped, Window, Windowed
from felice.pipelines.streams.stores import NEVER, KeyValueStore, Rows
from felice.pipelines.streams.window_stores import FIRST_START, LAST_START, ExpiringStore, WindowStore


class RowsByKey(Mapping[Any, Any]):
    """Values by key, like a dict, but two keys are the same if their bytes are: not 1 and True, which a dict takes for
    one key.
    """

    def __init__(self, row_key: Callable[[Any], Any], items: Iterator[tuple[Any, Any]]) -> None:
        self._row_key = row_key
        self._rows = {row_key(key): (key, value) for key, value in items}

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._rows[self._row_key(key)][1]
        except FormatError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(key in self and self[key] == other[key] for key in other)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{key!r}: {value!r}" for key, value in self._rows.values()) + "}"


class StoreView:
    """A store with the rows of all its partitions. A windowed one has keys `Windowed(key, window)`.

    `batch` is the batch after which they were read; -1 if they are those of a `TestDriver`.
    """

    def __init__(self, name: str, stores: Sequence[Any], batch: int = NEVER) -> None:
        self.name, self.batch = name, batch
        # Each partition has all rows of a global table.
        self._stores = stores[:1] if stores[0].placed is Rows.EVERYWHERE else stores
        self._row_key: Callable[[Any], Any] = stores[0].row_key

    @property
    def is_windowed(self) -> bool:
        """Whether the keys are those of windows or sessions."""
        return isinstance(self._stores[0], ExpiringStore)

    @property
    def key_format(self) -> Format:
        """The format of the keys; in a windowed store of the keys without their windows."""
        return self._stores[0].key_format  # type: ignore[no-any-return]

    def place_of(self, key: Any) -> bytes:
        """Bytes that order the rows: by key, then by window."""
        row_key = self._row_key(key)
        if isinstance(row_key, bytes):
            return row_key
        data, *times = row_key
        return bytes(data) + b"".join(time.to_bytes(8, "big", signed=True) for time in times)

    def entry(self, key: Any) -> Timestamped | None:
        """The row of a key with its timestamp; None if it has none."""
        rows = (store.get(key) for store in self._stores)
        return next((row for row in rows if row is not None), None)

    def entries(self) -> Iterator[tuple[Any, Timestamped]]:
        """Keys and rows with their timestamps, in no certain order. Rows of a global table come once."""
        if self._stores[0].placed is Rows.ANYWHERE:
            # A processor may have put rows of one key into several partitions: the row of the first partition counts.
            return ((key, row) for _, key, row in self._merged(store.items() for store in self._stores))
        return chain.from_iterable(store.items() for store in self._stores)

    @property
    def is_in_order(self) -> bool:
        """Whether the rows are found by the bytes of their keys, so that `entries_from` can be called."""
        return isinstance(self._stores[0], KeyValueStore)

    def entries_from(self, first: bytes) -> Iterator[tuple[bytes, Any, Timestamped]]:
        """The rows with these bytes of the key or later ones, in order, each with its `place_of`."""
        return self._merged(store.items_from(first) for store in self._stores)

    def entries_of(self, key: Any, start: int, end: int) -> Iterator[tuple[Windowed, Timestamped]]:
        """The windows of a key whose starts are between `start` and `end`, both included, in no certain order."""
        key_bytes = self.key_format.key_bytes(key)
        if isinstance(self._stores[0], WindowStore):
            bounds = max(start, FIRST_START), min(end, LAST_START)
            found = [
                [(Windowed(key, window), row) for window, row in store.windows(key, *bounds)]
                for store in self._stores
            ]
            yield from ((at, row) for _, at, row in self._merged(found))
        else:
            for at, row in self.entries():
                if start <= at.window.start <= end and self.key_format.key_bytes(at.key) == key_bytes:
                    yield at, row

    def _merged(
        self, rows: Iterable[Iterable[tuple[Any, Timestamped]]]
    ) -> Iterator[tuple[bytes, Any, Timestamped]]:
        """Merge the ordered rows of several stores. Each row comes behind the bytes that order it; of several rows with
        one key only the first comes.
        """
        order, before = self._stores[0].disk_key, None
        placed = (((order(self._row_key(key)), key, row) for key, row in one) for one in rows)
        for place, key, row in merge(*placed, key=itemgetter(0)):
            if place != before:
                before = place
                yield place, key, row

    def get(self, key: Any) -> Any:
        """The value of a key; None if it has none. Raises `FormatError` for a key that is not in the store's format."""
        row = self.entry(key)
        return None if row is None else row.value

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values of all rows, in no certain order. Rows of a global table come once."""
        return ((key, row.value) for key, row in self.entries())

    def rows(self) -> Mapping[Any, Any]:
        """Values by key, as they are now."""
        return RowsByKey(self._row_key, self.items())

    def range(self, first: Any, last: Any) -> list[tuple[Any, Any]]:
        """Keys and values from the first to the last key, both included, in order.

        Keys of another type than these two, which have no order among them, are left out.
        """
        found = [item for item in self.items() if is_between(first, item[0], last)]
        return sorted(found, key=lambda item: item[0])

    def windows(self, key: Any, start: int, end: int) -> list[tuple[Window, Any]]:
        """The windows of a key that begin from `start` to `end`, both included, with their values, in order."""
        found = [(at.window, row.value) for at, row in self.entries_of(key, start, end)]
        return sorted(found, key=lambda one: one[0])

    def __len__(self) -> int:
        return sum(1 for _ in self.items())


def is_between(first: Any, key: Any, last: Any) -> bool:
    """Whether a key is between two others, or equal to one of them; False if their types have no order."""
    if not isinstance(key, bool) == isinstance(first, bool) == isinstance(last, bool):
        return False  # Python takes True for 1.
    try:
        return bool(first <= key <= last)
    except TypeError:
        return False
