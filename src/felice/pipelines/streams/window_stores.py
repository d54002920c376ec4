"""Stores of windows and sessions, which are removed when their retention has passed.

Keeps true: windows and sessions stay until their retention has passed and `expire` is called. Operators send the last
            result of a window before they call it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Change, Record, Timestamped, Window, Windowed
from felice.pipelines.streams.stores import NEVER, IndexedStore, Row, Store


class ByTime:
    """Keys of rows by a time, in its order: of windows by their start, of sessions by their end."""

    def __init__(self) -> None:
        self._keys: dict[int, set[Any]] = {}
        self._times: list[int] = []

    def add(self, time: int, key: Any) -> None:
        """Note a key."""
        keys = self._keys.get(time)
        if keys is not None:
            keys.add(key)
            return
        self._keys[time] = {key}
        insort(self._times, time)

    def discard(self, time: int, key: Any) -> None:
        """Forget a key. Its time stays until it is taken."""
        if time in self._keys:
            self._keys[time].discard(key)

    def __iter__(self) -> Iterator[int]:
        """The times, in order."""
        return iter(self._times.copy())

    def times(self, first: int, end: int) -> list[int]:
        """The times from `first` on and before `end`, in order."""
        return self._times[bisect_left(self._times, first) : bisect_left(self._times, end)]

    def at(self, time: int) -> list[Any]:
        """The keys of a time, in an order that depends on them only."""
        return sorted(self._keys.get(time, ()), key=repr)

    def take_before(self, end: int) -> list[tuple[int, set[Any]]]:
        """Remove the times before `end`; returns them with their keys."""
        if not self._times or self._times[0] >= end:
            return []
        count = bisect_left(self._times, end)
        taken = [(time, self._keys.pop(time)) for time in self._times[:count]]
        del self._times[:count]
        return taken


class ExpiringStore(Store):
    """A store that removes rows `retention_ms` after their time.

    Its changes contain that time instead of each removed row, so a file of changes does not grow with removed rows.
    """

    def __init__(self, name: str, key: Format, value: Format, retention_ms: int) -> None:
        super().__init__(name)
        self.newest = f"{name} newest"
        """The clock of the newest time, from which the retention is measured, as by Kafka's store."""
        self._key, self._value, self._retention_ms = key, value, retention_ms
        self._by_time = ByTime()
        self._gone_before: int | None = None

    def packed(self, keys: list[Any]) -> list[Any]:
        """The packed form of each key; None of none."""
        pack = self._key.pack
        return [None if key is None else pack(key) for key in keys]

    def take_changes(self) -> list[Row]:
        """The time before which rows were removed, with None as its key; then the rows that changed."""
        gone = [] if self._gone_before is None else [(None, self._gone_before)]
        self._gone_before = None
        return gone + super().take_changes()

    def load(self, changes: Iterable[Row]) -> None:
        """Apply changes that another store gave."""
        for key, row in changes:
            if key is None:
                self._remove_before(row)
            else:
                self._apply(key, row)

    def _row_key(self, time: int, key: Any) -> Any:
        """The key of the row that `_by_time` has under a time."""
        return key

    def _expire_before(self, time: int) -> None:
        gone = self._remove_before(time)
        # Once rows are gone, each later time is noted: so it does not matter how often this is called.
        if gone or self._gone_before is not None:
            self._gone_before = time
            self._changed.difference_update(gone)

    def _remove_before(self, end: int) -> list[Any]:
        gone = [self._row_key(time, key) for time, keys in self._by_time.take_before(end) for key in keys]
        for key in gone:
            self._apply(key, None)
        return gone


class WindowStore(ExpiringStore):
    """Values by key and start of a window, kept for `retention_ms` after their start."""

    def __init__(self, name: str, key: Format, value: Format, size_ms: int, retention_ms: int) -> None:
        super().__init__(name, key, value, retention_ms)
        self._size_ms = size_ms

    def _apply(self, key: Any, row: Any) -> None:
        super()._apply(key, row)
        packed, start = key
        if row is not None:
            self._by_time.add(start, packed)

    def owner(self, row_key: Any) -> bytes | None:
        """That of the row's key."""
        return self._key.placed_by(self._key.unpack(row_key[0]))

    def fetch(self, key: Any, start: int) -> Timestamped | None:
        """The value of a key in the window that begins then."""
        row = self.rows.get((self._key.pack(key), start))
        return Timestamped(self._value.unpack(row[0]), row[1]) if row is not None else None

    def get(self, key: Windowed) -> Timestamped | None:
        """`fetch` by the key of the windowed table."""
        return self.fetch(key.key, key.window.start)

    def put(self, key: Any, start: int, value: Any, timestamp: int) -> None:
        """Set the value of a key in a window; None deletes it."""
        row = None if value is None else (self._value.pack(value), timestamp)
        self._set((self._key.pack(key), start), row)

    def updater(
        self,
        initial: Callable[[], Any],
        compute: Callable[[Any, Any, Any], Any],
        *,
        sends_old: bool,
    ) -> Callable[[Any, Record, Window], Record]:
        """A function (packed key, record, window) that does `put` with what `compute` makes of the record's key and
        value and of the window's value, and returns the change.

        A row keeps the greatest timestamp of its records. A window without row has the value `initial()`.
        """
        rows, changed, by_time = self.rows, self._changed, self._by_time
        pack, unpack = self._value.pack, self._value.unpack

        def update(packed: Any, record: Record, window: Window) -> Record:
            key, value, timestamp, headers = record
            place = packed, window[0]
            row, old = rows.get(place), None
            if row is None:
                so_far = initial()
            else:
                so_far = unpack(row[0])
                if row[1] > timestamp:
                    timestamp = row[1]
                if sends_old:
                    old = unpack(row[0])
            new = compute(key, value, so_far)
            changed.add(place)
            if new is not None:
                rows[place] = pack(new), timestamp
                if row is None:
                    by_time.add(window[0], packed)
            elif row is not None:
                del rows[place]
            return Record(Windowed(key, window), Change(new, old), timestamp, headers)

        return update

    def items(self) -> Iterator[tuple[Windowed, Timestamped]]:
        """All rows by start, then as they came."""
        for start in self._by_time:
            yield from self.starting_at(start)

    def starting_at(self, start: int) -> Iterator[tuple[Windowed, Timestamped]]:
        """The rows of the windows that begin then."""
        window = Window(start, start + self._size_ms)
        for key in self._by_time.at(start):
            if (row := self.rows.get((key, start))) is not None:
                yield Windowed(self._key.unpack(key), window), Timestamped(self._value.unpack(row[0]), row[1])

    def starts(self, first: int, end: int) -> list[int]:
        """The starts of windows from `first` on and before `end`, in order."""
        return self._by_time.times(first, end)

    def expire(self, time: int) -> None:
        """Remove windows whose retention has passed at this stream time."""
        self._expire_before(time - self._retention_ms + 1)

    def _row_key(self, time: int, key: Any) -> Any:
        return key, time


class SlidingStore(IndexedStore, WindowStore):
    """A `WindowStore` that finds the windows of a key by a span of starts."""

    def __init__(self, name: str, key: Format, value: Format, size_ms: int, retention_ms: int) -> None:
        super().__init__(name, key, value, size_ms, retention_ms)
        self._of_key: dict[Any, list[int]] = {}

    def _added(self, key: Any) -> None:
        packed, start = key
        insort(self._of_key.setdefault(packed, []), start)

    def _removed(self, key: Any) -> None:
        packed, start = key
        self._of_key[packed].remove(start)
        if not self._of_key[packed]:
            del self._of_key[packed]

    def around(self, key: Any, first: int, last: int) -> list[tuple[int, Timestamped]]:
        """The windows of a key that begin from `first` to `last`, both included, in order."""
        starts = self._of_key.get(self._key.pack(key), [])
        found = starts[bisect_left(starts, first) : bisect_right(starts, last)]
        rows = [(start, self.fetch(key, start)) for start in found]
        return [(start, row) for start, row in rows if row is not None]


class SessionStore(ExpiringStore):
    """Sessions by key, start and end, kept for `retention_ms` after their end."""

    def __init__(self, name: str, key: Format, value: Format, retention_ms: int) -> None:
        super().__init__(name, key, value, retention_ms)
        self._of_key: dict[Any, list[tuple[int, int]]] = {}
        """The end and start of each session of a key, in order."""

    def _apply(self, key: Any, row: Any) -> None:
        packed, start, end = key
        if row is None:
            if self.rows.pop(key, None) is not None:
                self._by_time.discard(end, key)
                self._forget(packed, start, end)
            return
        if key not in self.rows:
            sessions = self._of_key.get(packed)
            if sessions is None:
                self._of_key[packed] = [(end, start)]
            else:
                insort(sessions, (end, start))
            self._by_time.add(end, key)
        self.rows[key] = row

    def _forget(self, packed: Any, start: int, end: int) -> None:
        sessions = self._of_key[packed]
        if len(sessions) == 1:
            del self._of_key[packed]
        else:
            del sessions[bisect_left(sessions, (end, start))]

    def owner(self, row_key: Any) -> bytes | None:
        """That of the row's key."""
        return self._key.placed_by(self._key.unpack(row_key[0]))

    def around(self, packed: Any, earliest_end: int, latest_start: int, newest: int) -> list[Window]:
        """The sessions of a packed key that overlap a span and are within retention, by end and then start."""
        sessions = self._of_key.get(packed)
        if sessions is None:
            return []
        least_end = max(earliest_end, newest - self._retention_ms + 1)
        found = sessions[bisect_left(sessions, (least_end, NEVER)) :]
        return [Window(start, end) for end, start in found if start <= latest_start]

    def value(self, packed: Any, session: Window) -> Any:
        """The value of a session of a packed key, which exists."""
        return self._value.unpack(self.rows[packed, *session])

    def get(self, key: Windowed) -> Timestamped | None:
        """The value of one session."""
        value = self.rows.get((self._key.pack(key.key), *key.window))
        return None if value is None else Timestamped(self._value.unpack(value), key.window.end)

    def put(self, packed: Any, session: Window, value: Any) -> None:
        """Set the value of a session of a packed key; None removes the session."""
        self._set((packed, *session), None if value is None else self._value.pack(value))

    def items(self) -> Iterator[tuple[Windowed, Timestamped]]:
        """All sessions, by end."""
        return self._of_ends(self._by_time)

    def ending(self, first: int, end: int) -> Iterator[tuple[Windowed, Timestamped]]:
        """The sessions that end from `first` on and before `end`, by end."""
        return self._of_ends(self._by_time.times(first, end))

    def _of_ends(self, ends: Iterable[int]) -> Iterator[tuple[Windowed, Timestamped]]:
        for end in ends:
            for key in self._by_time.at(end):
                packed, start, _ = key
                session = Windowed(self._key.unpack(packed), Window(start, end))
                yield session, Timestamped(self._value.unpack(self.rows[key]), end)

    def expire(self, time: int) -> None:
        """Remove sessions whose retention has passed at this stream time."""
        # `around` no longer returns a session that ended exactly then, but the session is not closed yet.
        self._expire_before(time - self._retention_ms)
