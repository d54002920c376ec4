"""The rows of a store in RocksDB, on a disk of the machine. Rows that changed or were read lately are in memory, too.

Keeps true: RocksDB has the rows of one version of a task's state (`large_state`). What the task changes after it is in
            memory only, until `write` adds it to the changes that take RocksDB to a later version. So a batch that
            fails leaves RocksDB as it was.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from heapq import merge
from typing import TYPE_CHECKING, Any, NamedTuple

from felice.pipelines.errors import OutsideError
from felice.pipelines.streams.stores import KEY_MARSHAL, Found, Row, Store
from felice.pipelines.streams.window_stores import NO_TIME, ByTime, bytes_of_time

if TYPE_CHECKING:
    from rocksdict import Rdict, RdictIter, WriteBatch

ALL_TIMES = -(1 << 63)
"""No time is before it."""
_READ_AT_ONCE = 10_000
_UNKNOWN: Any = object()


class Kept(NamedTuple):
    """What RocksDB's version knows of a store."""

    prefix: bytes
    """Of the store's keys."""
    size: int = 0
    """The number of its rows."""
    floor: int = ALL_TIMES
    """Rows before this time are removed; RocksDB may still have them until the next write."""


class Database:
    """RocksDB, whose errors become an `OutsideError`: they concern no record."""

    def __init__(self, rocks: Rdict, on_error: Callable[[], None]) -> None:
        self.rocks, self._on_error = rocks, on_error

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        try:
            return self.rocks.get(key)
        except Exception as error:  # RocksDB's errors have no class of their own.
            raise self._failure(error) from None

    def get_all(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of keys."""
        try:
            return self.rocks.get(keys)  # type: ignore[arg-type, return-value]
        except Exception as error:
            raise self._failure(error) from None

    def scan(self, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `low` on and before `high` with their values, in the version of this moment."""
        rows = self.rocks.iter()
        rows.seek_for_prev(high) if reverse else rows.seek(low)
        step = rows.prev if reverse else rows.next
        while rows.valid():
            key = rows.key()
            if key < low if reverse else key >= high:
                return
            if key != high:
                yield key, rows.value()
            step()
        self._check(rows)

    def first(self, low: bytes, high: bytes) -> bytes | None:
        """The first key from `low` on and before `high`."""
        rows = self.rocks.iter()
        rows.seek(low)
        if rows.valid():
            return key if (key := rows.key()) < high else None
        self._check(rows)
        return None

    def _check(self, rows: RdictIter) -> None:
        """An iterator ends at a damaged block as at the end of all rows."""
        try:
            rows.status()
        except Exception as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> OutsideError:
        self._on_error()
        return OutsideError(
            f"the rows on this machine's disk in {self.rocks.path()} cannot be read: {error}. The next start reads the "
            "state from the checkpoint"
        )


class DiskRows(MutableMapping[Any, Any]):
    """The rows of a store."""

    def __init__(self, database: Database, store: Store, kept: Kept) -> None:
        self._database, self._prefix, self._count = database, kept.prefix, kept.size
        self._disk_key, self._row_key = store.disk_key, store.row_key_of
        self._held: dict[Any, Any] = {}
        """Rows in memory; None for those that do not exist."""
        self._changed: set[Any] = set()
        """The keys whose row in memory differs from RocksDB's."""

    @property
    def kept(self) -> Kept:
        """What RocksDB's next version knows."""
        return Kept(self._prefix, self._count)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many rows have changed since RocksDB's version, and how many are in memory."""
        return len(self._changed), len(self._held)

    def get(self, key: Any, default: Any = None) -> Any:
        """The row of a key."""
        try:
            row = self._held[key]
        except KeyError:
            row = self._read(key)
        return default if row is None else row

    def __getitem__(self, key: Any) -> Any:
        if (row := self.get(key)) is None:
            raise KeyError(key)
        return row

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: Any, row: Any) -> None:
        assert row is not None, "a row that does not exist is deleted"
        try:
            before = self._held[key]
        except KeyError:
            before = self._read(key)
        if before is None:
            self._count += 1
            self._hold(key, row)
        else:
            self._held[key] = row
        self._changed.add(key)

    def __delitem__(self, key: Any) -> None:
        if self.get(key) is None:
            raise KeyError(key)
        self._count -= 1
        self._held[key] = None
        self._changed.add(key)

    def pop(self, key: Any, default: Any = _UNKNOWN) -> Any:
        """Remove a row."""
        row = self.get(key)
        if row is not None:
            del self[key]
            return row
        if default is _UNKNOWN:
            raise KeyError(key)
        return default

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.in_order())

    def items(self) -> Any:
        """Keys and rows, in order."""
        return self.in_order()

    def in_order(
        self, first: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        """See `OrderedRows`."""
        keys = {key: self._disk_key(key) for key in self._held}
        here = sorted(
            (
                (disk_key, key)
                for key, disk_key in keys.items()
                if (first is None or disk_key >= first) and (end is None or disk_key < end)
            ),
            reverse=reverse,
        )
        on_disk = self._scan(first or b"", end, reverse=reverse)
        for disk_key, key, written in merge(
            ((disk_key, key, None) for disk_key, key in here),
            ((disk_key, None, written) for disk_key, written in on_disk),
            key=lambda one: one[0],
            reverse=reverse,
        ):
            if written is not None:
                key = self._row_key(disk_key)
                if key in keys or self._is_gone(key):
                    continue
                row = self._held.get(key, _UNKNOWN)
                row = marshal.loads(written) if row is _UNKNOWN else row
            else:
                row = self._held.get(key)
            if row is not None:
                yield key, row

    def read_ahead(self, row_keys: Iterable[Any]) -> None:
        """See `OrderedRows`."""
        wanted = {
            self._disk_key(key): key for key in row_keys if key not in self._held and not self._is_gone(key)
        }
        disk_keys = sorted(wanted)  # Neighbours are in one block.
        for start in range(0, len(disk_keys), _READ_AT_ONCE):
            some = disk_keys[start : start + _READ_AT_ONCE]
            found = self._database.get_all([self._prefix + disk_key for disk_key in some])
            for disk_key, written in zip(some, found, strict=True):
                self._hold(wanted[disk_key], None if written is None else marshal.loads(written))

    def write(self, batch: WriteBatch) -> None:
        """Add what has changed since RocksDB's version to the changes of the next one; `is_written` follows."""
        held, disk_key_of, prefix = self._held, self._disk_key, self._prefix
        for key in self._changed:
            row = held[key]
            if row is None:
                batch.delete(prefix + disk_key_of(key))
            else:
                batch.put(prefix + disk_key_of(key), marshal.dumps(row, KEY_MARSHAL))

    def is_written(self) -> None:
        """RocksDB has what has changed."""
        self._changed.clear()

    def forget(self) -> None:
        """Keep nothing in memory."""
        assert not self._changed, "what has changed is written first"
        self._held.clear()

    def written(self, first: bytes) -> Iterator[tuple[bytes, Row]]:
        """The rows of RocksDB's version from a key on, with their keys there."""
        for disk_key, written in self._scan(first, None, reverse=False):
            key = self._row_key(disk_key)
            if not self._is_gone(key):
                yield disk_key, (key, marshal.loads(written))

    def _read(self, key: Any) -> Any:
        if self._is_gone(key):
            return None
        written = self._database.get(self._prefix + self._disk_key(key))
        row = None if written is None else marshal.loads(written)
        self._hold(key, row)
        return row

    def _hold(self, key: Any, row: Any) -> None:
        self._held[key] = row

    def _is_gone(self, key: Any) -> bool:
        return False

    def _scan(self, first: bytes, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Keys and what is written for them, in the version of this moment."""
        prefix = self._prefix
        high = _end_of(prefix) if end is None else prefix + end
        for key, written in self._database.scan(prefix + first, high, reverse=reverse):
            yield key[len(prefix) :], written


def _end_of(prefix: bytes) -> bytes:
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


class TimedDiskRows(DiskRows):
    """Rows with keys (bytes, time), in the order of times. They are removed by time: no list of them is in memory."""

    def __init__(self, database: Database, store: Store, kept: Kept) -> None:
        super().__init__(database, store, kept)
        self._floor = self._floor_on_disk = kept.floor
        self.by_time = DiskTimes(self)
        self.held_times = ByTime()
        """The times of the rows in memory."""
        self.by_time.oldest = self._oldest()

    @property
    def kept(self) -> Kept:
        """With the time before which rows are gone."""
        return Kept(self._prefix, self._count, self._floor)

    def write(self, batch: WriteBatch) -> None:
        """The earlier rows are removed as one range."""
        super().write(batch)
        if self._floor > self._floor_on_disk:
            batch.delete_range(self._at(self._floor_on_disk), self._at(self._floor))

    def is_written(self) -> None:
        """The earlier rows, too."""
        super().is_written()
        self._floor_on_disk = self._floor

    def forget(self) -> None:
        """Keep nothing in memory."""
        super().forget()
        self.held_times = ByTime()
        self.by_time.oldest = self._oldest()

    def remove_before(self, end: int) -> list[tuple[int, set[Any]]]:
        """Remove the rows before a time. Returns the keys of those in memory, by time."""
        if end > self._floor:
            first = bytes_of_time(self._floor)
            for disk_key, _ in self._scan(first, bytes_of_time(end), reverse=False):
                self._count -= self._row_key(disk_key) not in self._held
            self._floor = end
        taken = self.held_times.take_before(end)
        gone = [(key, time) for time, keys in taken for key in keys]
        self._count -= sum(self._held.pop(key) is not None for key in gone)
        self._changed.difference_update(gone)
        self.by_time.oldest = self._oldest()
        return taken

    def times(self, first: int, end: int | None) -> Iterator[int]:
        """The times of rows in RocksDB from one time on and before another. Their rows may be deleted since."""
        time, high = max(first, self._floor), _end_of(self._prefix) if end is None else self._at(end)
        while (key := self._database.first(self._at(time), high)) is not None:
            time = self._row_key(key[len(self._prefix) :])[1]
            yield time
            time += 1

    def _oldest(self) -> int:
        return min(next(self.times(self._floor, None), NO_TIME), self.held_times.oldest)

    def _at(self, time: int) -> bytes:
        return self._prefix + bytes_of_time(time)

    def _hold(self, key: Any, row: Any) -> None:
        key_bytes, time = key
        self._held[key] = row
        self.held_times.add(time, key_bytes)
        self.by_time.oldest = min(self.by_time.oldest, time)

    def _is_gone(self, key: Any) -> bool:
        """Whether the key's time is below the floor, so that a row in RocksDB does not count. A late row may be in
        memory until the next removal.
        """
        return key[1] < self._floor  # type: ignore[no-any-return]


class DiskTimes:
    """The times of rows, in memory and in RocksDB; see `window_stores.Times`."""

    def __init__(self, rows: TimedDiskRows) -> None:
        self._rows = rows
        self.oldest = NO_TIME

    def add(self, time: int, key: Any) -> None:
        """The rows have noted it."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self._rows.held_times, *self._rows.times(ALL_TIMES, None)}))

    def times(self, first: int, end: int) -> list[int]:
        """The times from `first` on and before `end`, in order."""
        return sorted({*self._rows.held_times.times(first, end), *self._rows.times(first, end)})

    def rows_at(self, time: int, rows: MutableMapping[Any, Any]) -> Iterator[Row]:
        """The keys of a time, in order, and their rows."""
        found = self._rows.in_order(bytes_of_time(time), bytes_of_time(time + 1))
        return ((key_bytes, row) for (key_bytes, _), row in found)

    def take_before(self, end: int) -> list[tuple[int, set[Any]]]:
        """Remove the rows before a time; returns the keys that were in memory."""
        return self._rows.remove_before(end)


def disk_rows(database: Database, store: Store, kept: Kept) -> DiskRows:
    """The rows of a store."""
    return (TimedDiskRows if store.found is Found.BY_TIME else DiskRows)(database, store, kept)
