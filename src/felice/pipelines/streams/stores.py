"""The state of operators: rows of tables, held changes, and stream times. `window_stores` has windows and sessions.

Keeps true: a store holds packed values only (`formats`), so a caller that changes a value does not change the store.
            `take_changes` gives each row that changed since it was last called, with None for a deleted row; a new
            store that loads these changes in order holds the same rows. A runner persists stores in this way.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Change, Group, Record, Timestamped, changes_of

Row = tuple[Any, Any]
NEVER = -1
TASK_TIME = "task"
"""The clock of a task: the greatest timestamp of all records that it was given."""


class Rows(Enum):
    """How the rows of a store are divided among the partitions of its tasks."""

    BY_KEY = "by key"
    """Where the records of their keys are."""
    EVERYWHERE = "everywhere"
    """In each partition: the rows of a global table."""
    ANYWHERE = "anywhere"
    """Where a processor put them."""


class Store:
    """A named table of packed rows that remembers which rows changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.placed = Rows.BY_KEY
        self.rows: dict[Any, Any] = {}
        self._changed: set[Any] = set()

    def take_changes(self) -> list[Row]:
        """Rows that changed since the last call, with None for a removed row."""
        changes = [(key, self.rows.get(key)) for key in self._changed]
        self._changed.clear()
        return changes

    def load(self, changes: Iterable[Row]) -> None:
        """Apply changes that another store gave."""
        for key, row in changes:
            self._apply(key, row)

    def owner(self, row_key: Any) -> bytes | None:
        """The bytes of the record key whose partition a row belongs to; None if that is not known.

        Only stores whose rows are placed by record keys know it. The number of partitions of other stores cannot be
        changed.
        """
        return None

    def _apply(self, key: Any, row: Any) -> None:
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row

    def _set(self, key: Any, row: Any) -> None:
        self._changed.add(key)
        self._apply(key, row)


class IndexedStore(Store):
    """A store that also keeps its keys in another order. Subclasses are notified of each added or removed key."""

    def _apply(self, key: Any, row: Any) -> None:
        was_there = key in self.rows
        super()._apply(key, row)
        if row is None and was_there:
            self._removed(key)
        elif row is not None and not was_there:
            self._added(key)

    def _added(self, key: Any) -> None:
        raise NotImplementedError

    def _removed(self, key: Any) -> None:
        raise NotImplementedError


class Clocks(Store):
    """Stream times by name: the greatest timestamp that an operator has seen."""

    def get(self, name: str) -> int:
        """The time, or -1 before the first record."""
        time: int = self.rows.get(name, NEVER)
        return time

    def set(self, name: str, timestamp: int) -> None:
        """Set a time, which may be smaller than the previous one."""
        if timestamp != self.rows.get(name):
            self._set(name, timestamp)

    def advance(self, name: str, timestamp: int) -> int:
        """Raise the time to a timestamp if that is greater, and return the time."""
        time: int = self.rows.get(name, NEVER)
        if timestamp > time:
            self._set(name, timestamp)
            return timestamp
        return time


class KeyValueStore(Store):
    """A table: one value for each key, with the timestamp of its last change."""

    def __init__(self, name: str, key: Format, value: Format, placed: Rows = Rows.BY_KEY) -> None:
        super().__init__(name)
        self._key, self._value = key, value
        self._pack_key, self._pack, self._unpack = key.pack, value.pack, value.unpack
        self.placed = placed

    def owner(self, row_key: Any) -> bytes | None:
        """That of the row's key."""
        return self._key.placed_by(self._key.unpack(row_key)) if self.placed is Rows.BY_KEY else None

    def get(self, key: Any) -> Timestamped | None:
        """The row of a key."""
        row = self.rows.get(self._pack_key(key))
        return Timestamped(self._unpack(row[0]), row[1]) if row is not None else None

    def put(self, key: Any, value: Any, timestamp: int = 0) -> None:
        """Set the value of a key; None deletes it."""
        row = None if value is None else (self._pack(value), timestamp)
        self._set(self._pack_key(key), row)

    def put_all(self, group: Group, *, sends_old: bool) -> Group:
        """Calls `put` for each record in turn, and returns the changes."""
        rows, unpack, pack = self.rows, self._unpack, self._pack
        packed_keys = list(map(self._pack_key, group.keys))
        olds = []
        for packed, value, timestamp in zip(packed_keys, group.values, group.timestamps, strict=True):
            row = rows.get(packed) if sends_old else None
            olds.append(None if row is None else unpack(row[0]))
            if value is None:
                rows.pop(packed, None)
            else:
                rows[packed] = pack(value), timestamp
        self._changed.update(packed_keys)
        return group.with_values(changes_of(group.values, olds))

    def aggregate_all(
        self,
        group: Group,
        initial: Callable[[], Any],
        compute: Callable[[Any, Any, Any], Any],
        *,
        sends_old: bool,
    ) -> Group:
        """For each record in turn, puts the result of `compute(key, value, stored value)`, and returns the changes.

        A row keeps the greatest timestamp of its records. A key without row has the value `initial()`.
        """
        rows, unpack, pack = self.rows, self._unpack, self._pack
        packed_keys = list(map(self._pack_key, group.keys))
        news, olds, times = [], [], []
        columns = packed_keys, group.keys, group.values, group.timestamps
        for packed, key, value, timestamp in zip(*columns, strict=True):
            row, old, time = rows.get(packed), None, timestamp
            if row is None:
                so_far = initial()
            else:
                so_far = unpack(row[0])
                if row[1] > timestamp:
                    time = row[1]
                if sends_old:
                    # Unpacked again, because `compute` may change the object that it gets.
                    old = unpack(row[0])
            new = compute(key, value, so_far)
            news.append(new)
            olds.append(old)
            times.append(time)
            if new is not None:
                rows[packed] = pack(new), time
            elif row is not None:
                del rows[packed]
        self._changed.update(packed_keys)
        return replace(group, values=changes_of(news, olds), timestamps=times)

    def items(self) -> Iterator[tuple[Any, Timestamped]]:
        """All rows, in an order that depends on the keys only, not on the history of this process."""
        for key in sorted(self.rows, key=repr):
            value, timestamp = self.rows[key]
            yield self._key.unpack(key), Timestamped(self._value.unpack(value), timestamp)


class ChangeBuffer(Store):
    """One held change for each key, ordered by the time of its first held change, then by arrival."""

    def __init__(self, name: str, key: Format, value: Format) -> None:
        super().__init__(name)
        self._key, self._value = key, value
        self._places: list[tuple[int, str, Any]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def _apply(self, key: Any, row: Any) -> None:
        before = self.rows.get(key)
        super()._apply(key, row)
        if before is not None:
            self._places.pop(bisect_left(self._places, (before[0], repr(key))))
        if row is not None:
            insort(self._places, (row[0], repr(key), key))

    def owner(self, row_key: Any) -> bytes | None:
        """That of the row's key."""
        return self._key.placed_by(self._key.unpack(row_key))

    def put(self, due: int, record: Record) -> None:
        """Hold a change. It replaces the key's previous change, and keeps its place in the order."""
        key, change, timestamp, headers = record
        packed = self._key.pack(key)
        before = self.rows.get(packed)
        values = self._packed(change.new), self._packed(change.old)
        self._set(packed, (due if before is None else before[0], *values, timestamp, headers))

    def oldest(self) -> int | None:
        """The time of the first change."""
        return self._places[0][0] if self._places else None

    def take(self) -> Record:
        """Remove and return the first change."""
        packed = self._places[0][2]
        _, new, old, timestamp, headers = self.rows[packed]
        self._set(packed, None)
        change = Change(self._unpacked(new), self._unpacked(old))
        return Record(self._key.unpack(packed), change, timestamp, headers)

    def _packed(self, value: Any) -> Any:
        return None if value is None else self._value.pack(value)

    def _unpacked(self, packed: Any) -> Any:
        return None if packed is None else self._value.unpack(packed)
