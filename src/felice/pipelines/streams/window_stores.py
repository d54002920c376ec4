"""Stores of windows and sessions, which are removed when their retention has passed.

Keeps true: windows and sessions stay until their retention has passed and `expire` is called. Operators send the last
            result of a window before they call it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import suppress
from itertools import repeat
from operator import index
from struct import Struct
from typing import Any, NamedTuple, Protocol, runtime_checkable

from felice.pipelines.errors import FormatError
from felice.pipelines.streams.formats import UNWRITABLE, FixedSize, Format, WindowEnds
from felice.pipelines.streams.record import Change, Timestamped, Window, Windowed, made
from felice.pipelines.streams.stores import (
    NEVER,
    Clocks,
    Found,
    IndexedStore,
    OrderedRows,
    Row,
    Store,
    packed_in,
)
from felice.pipelines.streams.telling import shown

WindowChange = tuple[Windowed, Change, int]
"""Windowed key, change, and the row's time."""
WindowChanges = Callable[[bytes, Any, Iterable[Any], int, Iterable[Window]], Iterator[WindowChange]]
"""(bytes of the key, key, values, timestamp, windows) -> the change of each window"""
NO_TIME = 1 << 63
"""Greater than each time."""
FIRST_START, LAST_START = -NO_TIME, NO_TIME - 2
"""The earliest and the latest start of a window."""
_TIME = Struct(">Q")
_SHIFT = 1 << 63
"""Added to a time, so that the bytes of times before 1970 come first."""


class ByTime:
    """Keys of rows by a time, in its order: of windows by their start, of sessions by their end."""

    def __init__(self) -> None:
        self._keys: dict[int, set[Any]] = {}
        self._times: list[int] = []
        self._taken = 0
        """So many of `_times` are taken. They are removed together: removing from the front moves all others."""
        self.oldest = NO_TIME
        """The first time."""

    def add(self, time: int, key: Any) -> None:
        """Note a key."""
        keys = self._keys.get(time)
        if keys is not None:
            keys.add(key)
            return
        self._keys[time] = {key}
        if not self._times or time > self._times[-1]:
            self._times.append(time)
        else:
            insort(self._times, time, self._taken)
        if time < self.oldest:
            self.oldest = time

    def discard(self, time: int, key: Any) -> None:
        """Forget a key. Its time stays until it is taken."""
        if time in self._keys:
            self._keys[time].discard(key)

    def __iter__(self) -> Iterator[int]:
        """The times, in order."""
        return iter(self._times[self._taken :])

    def times(self, first: int, end: int) -> list[int]:
        """The times from `first` on and before `end`, in order."""
        times, taken = self._times, self._taken
        return times[bisect_left(times, first, taken) : bisect_left(times, end, taken)]

    def at(self, time: int) -> list[Any]:
        """The keys of a time, in order."""
        return sorted(self._keys.get(time, ()))

    def rows_at(self, time: int, rows: MutableMapping[Any, Any]) -> Iterator[Row]:
        """The keys of a time, in order, and their rows."""
        for key in self.at(time):
            if (row := rows.get((key, time))) is not None:
                yield key, row

    def take_before(self, end: int) -> list[tuple[int, set[Any]]]:
        """Remove the times before `end`; returns them with their keys."""
        before = bisect_left(self._times, end, self._taken)
        taken = [(time, self._keys.pop(time)) for time in self._times[self._taken : before]]
        self._taken = before
        if self._taken > len(self._times) // 2:
            del self._times[: self._taken]
            self._taken = 0
        self.oldest = self._times[self._taken] if self._taken < len(self._times) else NO_TIME
        return taken


def bytes_of_time(time: int) -> bytes:
    """Bytes whose order is that of times."""
    return _TIME.pack(time + _SHIFT)


@runtime_checkable
class TimedRows(Protocol):
    """Rows that know their times; a dict does not."""

    by_time: Times


class Times(Protocol):
    """What a store knows of the times of its rows; `ByTime` has it in memory."""

    oldest: int
    """No row has an earlier time; `NO_TIME` if there are none."""

    def add(self, time: int, key: Any) -> None:
        """Note a key."""

    def __iter__(self) -> Iterator[int]:
        """The times, in order."""

    def times(self, first: int, end: int) -> list[int]:
        """The times from `first` on and before `end`, in order."""

    def rows_at(self, time: int, rows: MutableMapping[Any, Any]) -> Iterator[Row]:
        """The keys of a time, in order, and their rows in `rows`, which have keys (key, time)."""

    def take_before(self, end: int) -> list[tuple[int, set[Any]]]:
        """Forget the times before `end`. Returns them with the keys that the store must remove."""


def _windowed(key: Any) -> Windowed:
    if not isinstance(key, Windowed):
        raise FormatError(f"{shown(key)} is no Windowed(key, window)")
    return key


class ExpiringStore(Store):
    """A store that removes rows `retention_ms` after their time. `around` of sliding windows and
    sessions finds a row for `found_ms`; after that it is only kept for queries.

    Its changes contain that time instead of each removed row, so a file of changes does not grow with removed rows.
    """

    def __init__(
        self, name: str, key: Format, value: Format, retention_ms: int, found_ms: int | None = None
    ) -> None:
        super().__init__(name)
        self.newest = f"{name} newest"
        """The clock of the newest time, from which the retention is measured, as by Kafka's store."""
        self._key, self._value, self._retention_ms = key, value, retention_ms
        self._found_ms = retention_ms if found_ms is None else found_ms
        self._by_time: Times = ByTime()
        self._gone_before: int | None = None

    @property
    def key_format(self) -> Format:
        """The format of the keys, without their windows."""
        return self._key

    def formats(self) -> tuple[Format, ...]:
        """The formats of keys and values. The retention may change."""
        return self._key, self._value

    def key_bytes(self, key: Any) -> bytes:
        """The bytes of a key."""
        return self._key.key_bytes(key)

    def take_changes(self) -> list[Row]:
        """The time before which rows were removed, with None as its key; then the rows that changed."""
        gone = [] if self._gone_before is None else [(None, self._gone_before)]
        self._gone_before = None
        return gone + super().take_changes()

    def upgraded(self, row: Row) -> Row:
        """The row, found by its key's bytes and its window."""
        row_key, kept = row
        if row_key is None:
            return row
        packed, *window = row_key
        return (self._key.bytes_of_packed(packed), *window), kept

    def owner(self, row_key: Any) -> bytes | None:
        """That of the row's key."""
        return self._key.placed_by(row_key[0])

    def load(self, changes: Iterable[Row]) -> None:
        """Apply changes that another store gave."""
        for key, row in self._read_ahead(changes):
            if key is None:
                self._remove_before(row)
            else:
                self._apply(key, row)

    def _row_keys(self, time: int, keys: Iterable[Any]) -> Iterable[Any]:
        """The keys of the rows that `_by_time` lists for this time."""
        return keys

    def _expire_before(self, time: int) -> None:
        # Once rows are gone, each later time is noted: so it does not matter how often this is called.
        if self._by_time.oldest < time:
            self._changed.difference_update(self._remove_before(time))
            self._gone_before = time
        elif self._gone_before is not None:
            self._gone_before = time

    def _remove_before(self, end: int) -> list[Any]:
        gone = [key for time, keys in self._by_time.take_before(end) for key in self._row_keys(time, keys)]
        self._remove_all(gone)
        return gone

    def _remove_all(self, gone: list[Any]) -> None:
        for key in gone:
            self._apply(key, None)


class WindowStore(ExpiringStore):
    """Values by key and start of a window, kept for `retention_ms` after their start."""

    found = Found.BY_TIME

    def __init__(
        self,
        name: str,
        key: Format,
        value: Format,
        size_ms: int,
        retention_ms: int,
        ends: WindowEnds | None = None,
        found_ms: int | None = None,
    ) -> None:
        super().__init__(name, key, value, retention_ms, found_ms)
        self._size_ms, self._end_of = size_ms, (ends or FixedSize(size_ms)).end_of
        self.windows_of: Callable[[int], Iterable[Window]] | None = None
        """The windows of a timestamp."""

    def keep_in(self, rows: MutableMapping[Any, Any]) -> None:
        """With the times that the rows have."""
        super().keep_in(rows)
        if self.found is Found.BY_TIME:
            assert isinstance(rows, TimedRows), "rows of this order know their times"
            self._by_time = rows.by_time

    def disk_key(self, row_key: tuple[bytes, int]) -> bytes:
        """The start, then the key."""
        key_bytes, start = row_key
        return bytes_of_time(start) + key_bytes

    def row_key_of(self, disk_key: bytes) -> tuple[bytes, int]:
        """Key and start."""
        return disk_key[_TIME.size :], _TIME.unpack_from(disk_key)[0] - _SHIFT

    def shape(self) -> str:
        """With the size of the windows."""
        return f"{super().shape()}, {self._size_ms} ms"

    def _remove_all(self, gone: list[Any]) -> None:
        if self.found is not Found.BY_TIME:
            super()._remove_all(gone)
            return
        # No other index has these rows, and `gone` may have as many rows as there are records.
        pop = self.rows.pop
        for key in gone:
            pop(key, None)

    def _apply(self, key: Any, row: Any) -> None:
        super()._apply(key, row)
        key_bytes, start = key
        if row is not None:
            self._by_time.add(start, key_bytes)

    def row_key(self, key: Windowed) -> Any:
        """What the row of a window is found by."""
        return self._key.key_bytes(_windowed(key).key), key.window.start

    def fetch(self, key: Any, start: int) -> Timestamped | None:
        """The value of a key in the window that begins then."""
        row = self.rows.get((self._key.key_bytes(key), start))
        return Timestamped(self._value.unpack(row[0]), row[1]) if row is not None else None

    def get(self, key: Windowed) -> Timestamped | None:
        """`fetch` by the key of the windowed table."""
        return self.fetch(_windowed(key).key, key.window.start)

    def put(self, key: Any, start: int, value: Any, timestamp: int) -> None:
        """Set the value of a key in a window; None deletes it."""
        self.put_at(self._key.key_bytes(key), start, value, timestamp)

    def put_at(self, key_bytes: bytes, start: int, value: Any, timestamp: int) -> None:
        """`put` by the bytes of the key."""
        row = None if value is None else (packed_in(self._value, value), index(timestamp))
        self._set((key_bytes, index(start)), row)

    def updater(
        self,
        initial: Callable[[], Any],
        compute: Callable[[Any, Any, Any], Any],
        clocks: Clocks,
        *,
        sends_old: bool,
    ) -> WindowChanges:
        """A function that calls `compute` with the key, the value and the value of each window, and stores the result
        in the window. It yields each change before it makes the next change, and advances the clock `newest`.

        A row keeps the greatest timestamp of its records. A window without row has the value `initial()`.
        """
        rows, changed, by_time, newest_clock = self.rows, self._changed, self._by_time, self.newest
        pack, unpack, plain = self._value.pack, self._value.unpack, self._value.plain

        def updates(
            key_bytes: bytes, key: Any, values: Iterable[Any], timestamp: int, windows: Iterable[Window]
        ) -> Iterator[WindowChange]:
            newest = clocks.get(newest_clock)
            for window, value in zip(windows, values, strict=True):
                start = window[0]
                place, old, time = (key_bytes, start), None, timestamp
                row = rows.get(place)
                if row is None:
                    so_far = initial()
                else:
                    packed, before = row
                    so_far = packed if type(packed) is plain else unpack(packed)
                    if before > time:
                        time = before
                    if sends_old:
                        # Unpack the row again, because `compute` may change `so_far`.
                        old = unpack(packed)
                new = compute(key, value, so_far)
                changed.add(place)
                if new is not None:
                    try:
                        rows[place] = new if type(new) is plain else pack(new), time
                    except UNWRITABLE as error:
                        raise self._value.refusal(new, error) from None
                    if row is None:
                        by_time.add(start, key_bytes)
                elif row is not None:
                    del rows[place]
                if start > newest:
                    newest = clocks.advance(newest_clock, start)
                yield made(Windowed, (key, window)), made(Change, (new, old, True)), time

        return updates

    def items(self) -> Iterator[tuple[Windowed, Timestamped]]:
        """All rows by start, then by their keys' bytes."""
        for start in self._by_time:
            yield from self.starting_at(start)

    def windows(
        self, key: Any, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[Window, Timestamped]]:
        """The windows of a key that begin from `first` to `last`, both included, the earliest first."""
        key_bytes, starts = self._key.key_bytes(key), self._by_time.times(first, last + 1)
        for start in reversed(starts) if reverse else starts:
            if (row := self.rows.get((key_bytes, start))) is not None:
                yield (
                    Window(start, self._end_of(start)),
                    Timestamped(self._value.unpack(row[0]), row[1]),
                )

    def starting_at(self, start: int) -> Iterator[tuple[Windowed, Timestamped]]:
        """The rows of the windows that begin then."""
        window = Window(start, self._end_of(start))
        for key_bytes, row in self._by_time.rows_at(start, self.rows):
            yield (
                Windowed(self._key.read(key_bytes), window),
                Timestamped(self._value.unpack(row[0]), row[1]),
            )

    def look_ahead(self, keys: Iterable[bytes | None], timestamps: Iterable[int]) -> None:
        """The rows of the keys in the windows of their timestamps, if an operator has given `windows_of`."""
        if self.windows_of is None or not isinstance(self.rows, OrderedRows):
            return
        with suppress(ValueError, OverflowError):  # A time without window, such as one after the year 9999.
            self.rows.read_ahead(
                (key, window.start)
                for key, timestamp in zip(keys, timestamps, strict=True)
                if key is not None and timestamp >= 0
                for window in self.windows_of(timestamp)
            )

    def starts(self, first: int, end: int) -> list[int]:
        """The starts of windows from `first` on and before `end`, in order."""
        return self._by_time.times(first, end)

    def expire(self, time: int) -> None:
        """Remove windows whose retention has passed at this stream time."""
        self._expire_before(time - self._retention_ms + 1)

    def _row_keys(self, time: int, keys: Iterable[Any]) -> Iterable[Any]:
        return zip(keys, repeat(time))


class StoredRow(NamedTuple):
    """A row of a store, as it is kept: each `unpacked` gives a value of its own."""

    packed: Any
    timestamp: int


class SlidingStore(IndexedStore, WindowStore):
    """A `WindowStore` that finds the windows of a key by a span of starts."""

    found = Found.BY_INDEX

    def __init__(
        self,
        name: str,
        key: Format,
        value: Format,
        size_ms: int,
        retention_ms: int,
        found_ms: int | None = None,
    ) -> None:
        super().__init__(name, key, value, size_ms, retention_ms, found_ms=found_ms)
        self._of_key: dict[bytes, list[int]] = {}

    def _added(self, key: Any) -> None:
        key_bytes, start = key
        insort(self._of_key.setdefault(key_bytes, []), start)

    def _removed(self, key: Any) -> None:
        key_bytes, start = key
        self._of_key[key_bytes].remove(start)
        if not self._of_key[key_bytes]:
            del self._of_key[key_bytes]

    def around(self, key_bytes: bytes, first: int, last: int, newest: int) -> list[tuple[int, StoredRow]]:
        """The windows of a key that begin from `first` to `last`, both included, in order. Those that began `found_ms`
        before the newest window are left out.
        """
        first = max(first, newest - self._found_ms + 1)
        starts = self._of_key.get(key_bytes)
        if starts is None:
            return []
        found = starts[bisect_left(starts, first) : bisect_right(starts, last)]
        return [(start, made(StoredRow, self.rows[key_bytes, start])) for start in found]

    def unpacked(self, row: StoredRow) -> Any:
        """The value of a row."""
        return self._value.unpack(row.packed)


class SessionStore(ExpiringStore):
    """Sessions by key, start and end, kept for `retention_ms` after their end."""

    def __init__(
        self, name: str, key: Format, value: Format, retention_ms: int, found_ms: int | None = None
    ) -> None:
        super().__init__(name, key, value, retention_ms, found_ms)
        self._by_time: ByTime
        self._of_key: dict[bytes, list[tuple[int, int]]] = {}
        """The end and start of each session of a key, in order."""

    def _apply(self, key: Any, row: Any) -> None:
        key_bytes, start, end = key
        if row is None:
            if self.rows.pop(key, None) is not None:
                self._by_time.discard(end, key)
                self._forget(key_bytes, start, end)
            return
        if key not in self.rows:
            sessions = self._of_key.get(key_bytes)
            if sessions is None:
                self._of_key[key_bytes] = [(end, start)]
            else:
                insort(sessions, (end, start))
            self._by_time.add(end, key)
        self.rows[key] = row

    def _forget(self, key_bytes: bytes, start: int, end: int) -> None:
        sessions = self._of_key[key_bytes]
        if len(sessions) == 1:
            del self._of_key[key_bytes]
        else:
            del sessions[bisect_left(sessions, (end, start))]

    def row_key(self, key: Windowed) -> Any:
        """What a session is found by."""
        return self._key.key_bytes(_windowed(key).key), *key.window

    def around(self, key_bytes: bytes, earliest_end: int, latest_start: int, newest: int) -> list[Window]:
        """The sessions of a key that overlap a span and are within retention, by end and then start."""
        sessions = self._of_key.get(key_bytes)
        if sessions is None:
            return []
        least_end = max(earliest_end, newest - self._found_ms + 1)
        found = sessions[bisect_left(sessions, (least_end, NEVER)) :]
        return [made(Window, (start, end)) for end, start in found if start <= latest_start]

    def value(self, key_bytes: bytes, session: Window) -> Any:
        """The value of a session that exists."""
        return self._value.unpack(self.rows[key_bytes, *session])

    def get(self, key: Windowed) -> Timestamped | None:
        """The value of one session."""
        value = self.rows.get(self.row_key(key))
        return None if value is None else Timestamped(self._value.unpack(value), key.window.end)

    def put(self, key_bytes: bytes, session: Window, value: Any) -> None:
        """Set the value of a session; None removes the session."""
        self._set((key_bytes, *session), None if value is None else packed_in(self._value, value))

    def items(self) -> Iterator[tuple[Windowed, Timestamped]]:
        """All sessions, by end."""
        return self._of_ends(self._by_time)

    def ending(self, first: int, end: int) -> Iterator[tuple[Windowed, Timestamped]]:
        """The sessions that end from `first` on and before `end`, by end."""
        return self._of_ends(self._by_time.times(first, end))

    def _of_ends(self, ends: Iterable[int]) -> Iterator[tuple[Windowed, Timestamped]]:
        for end in ends:
            for key in self._by_time.at(end):
                key_bytes, start, _ = key
                session = Windowed(self._key.read(key_bytes), Window(start, end))
                yield session, Timestamped(self._value.unpack(self.rows[key]), end)

    def expire(self, time: int) -> None:
        """Remove sessions whose retention has passed at this stream time."""
        # `around` no longer returns a session that ended exactly then, but the session is not closed yet.
        self._expire_before(time - self._retention_ms)
