"""Aggregation of streams by key in sliding windows: for each record, the records at most a difference before it.

Two records share a window if their timestamps differ by at most `difference_ms`. A window either
ends at the timestamp of a record, or begins one millisecond after a record. Windows without records do not exist; both
ends of a window belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

from felice.dataclass import dataclass
from felice.pipelines.streams.copies import copier, own_copies
from felice.pipelines.streams.operators.aggregate import Aggregator, Initializer
from felice.pipelines.streams.operators.windowed import Closing, ending_windows, windowed_step
from felice.pipelines.streams.record import LATE, Dropped, Step, Window, Windowed, change_of, made
from felice.pipelines.streams.stores import Clocks
from felice.pipelines.streams.window_stores import SlidingStore, StoredRow, WindowChange
from felice.pipelines.streams.windows import SlidingWindows


class Taken(NamedTuple):
    """A record that is aggregated. Each call of `value_now` gives a copy of its value."""

    key: Any
    key_bytes: bytes
    value_now: Callable[[], Any]
    timestamp: int


@dataclass(slots=True)
class SlidingAggregate:
    """A record changes the windows that hold it, and may create up to three windows, with the bounds described above.

    `on_close`: each window gives one result, when it closes, instead of one for each record.
    """

    drops: ClassVar[tuple[str, ...]] = (LATE,)
    name: str
    clocks: Clocks
    store: SlidingStore
    windows: SlidingWindows
    initializer: Initializer
    aggregator: Aggregator
    sends_old: bool
    on_close: bool
    _initial: Initializer = field(init=False)
    _closing: Closing = field(init=False)

    def __post_init__(self) -> None:
        self._initial = own_copies(self.initializer)
        # The end of a sliding window belongs to it, so it is closed one millisecond later than another window.
        ending = ending_windows(self.store, self.windows.difference_ms + 1)
        self._closing = Closing(self.name, self.clocks, ending)

    def step(self) -> Step:
        """The changes of the windows, in the order of Kafka Streams; or the windows that close."""
        is_taken = "key is not None and value is not None"
        return windowed_step(self._changes, self._closed, on_close=self.on_close, only_if=is_taken)

    def _changes(self, key: Any, value: Any, timestamp: int) -> Iterator[WindowChange]:
        closed_until = self._closed_until(timestamp)
        yield from self._changed(key, value, timestamp, closed_until)
        # Kafka's store measures its retention from the start of the newest window, too.
        self.store.expire(self.clocks.get(self.store.newest))

    def _closed(self, key: Any, value: Any, timestamp: int) -> Iterator[WindowChange]:
        closed_until = self._closed_until(timestamp)
        for _ in self._changed(key, value, timestamp, closed_until):
            pass
        yield from self._closing.until(closed_until)
        self.store.expire(self.clocks.get(self.store.newest))

    def _closed_until(self, timestamp: int) -> int:
        return self.clocks.advance(self.name, timestamp) - self.windows.grace_ms

    def _changed(self, key: Any, value: Any, timestamp: int, closed_until: int) -> Iterator[WindowChange]:
        """Changes the windows; gives the changes."""
        difference_ms, key_bytes = self.windows.difference_ms, self.store.key_bytes(key)
        newest = self.clocks.get(self.store.newest)
        if timestamp + 1 + difference_ms <= closed_until:
            raise Dropped(LATE, timestamp)
        found = self.store.around(key_bytes, max(0, timestamp - 2 * difference_ms), timestamp + 1, newest)
        visit = self._early if timestamp < difference_ms else self._usual
        taken = Taken(key, key_bytes, copier(value), timestamp)
        return (change for change in visit(taken, found, closed_until) if change is not None)

    def _usual(
        self, record: Taken, found: list[tuple[int, StoredRow]], closed_until: int
    ) -> Iterator[WindowChange | None]:
        """The existing windows, the latest first; then the new ones."""
        timestamp, difference_ms = record.timestamp, self.windows.difference_ms
        starts: set[int] = set()
        before: int | None = None
        holding: StoredRow | None = None
        left: StoredRow | None = None
        for start, row in reversed(found):
            starts.add(start)
            end = start + difference_ms
            if start == timestamp + 1:
                continue
            if end < timestamp:
                left, before = row, row.timestamp
                break
            if end > timestamp:
                holding = holding or row
            elif row.timestamp < timestamp:
                before = row.timestamp
            yield self._update(record, start, row, closed_until)
        yield self._behind_previous(record, before, starts, closed_until)
        if timestamp - difference_ms not in starts:
            # Records between the window's start and this record are those of the last window before it.
            is_shared = left is not None and before is not None and timestamp - difference_ms <= before
            yield self._update(record, timestamp - difference_ms, left if is_shared else None, closed_until)
        yield self._behind_this(record, holding, starts)

    def _early(
        self, record: Taken, found: list[tuple[int, StoredRow]], closed_until: int
    ) -> Iterator[WindowChange | None]:
        """No window begins before 0, so the first records share the window that begins at 0."""
        timestamp = record.timestamp
        starts = {start for start, _ in found}
        first = next((row for start, row in found if start == 0), None)
        holding: StoredRow | None = None
        for start, row in found:
            if 0 < start <= timestamp:
                holding = row
                yield self._update(record, start, row, closed_until)
        if holding is None and first is not None and first.timestamp > timestamp:
            holding = first
        yield self._behind_this(record, holding, starts)
        if first is not None and first.timestamp < timestamp:
            yield self._behind_previous(record, first.timestamp, starts, closed_until)
        yield self._update(record, 0, first, closed_until)

    def _behind_previous(
        self, record: Taken, before: int | None, starts: set[int], closed_until: int
    ) -> WindowChange | None:
        """The window just behind the record before this one; this record is its first."""
        if before is None or before + 1 in starts:
            return None
        if before + 1 + self.windows.difference_ms < record.timestamp:
            return None
        return self._update(record, before + 1, None, closed_until)

    def _behind_this(self, record: Taken, holding: StoredRow | None, starts: set[int]) -> WindowChange | None:
        """The window just behind this record, with what a window that holds this record had behind it."""
        start = record.timestamp + 1
        if start in starts or holding is None or holding.timestamp <= record.timestamp:
            return None
        value = self.store.unpacked(holding)
        self._keep(record, start, value, holding.timestamp)
        return self._change(record, start, value, None, holding.timestamp)

    def _update(
        self, record: Taken, start: int, row: StoredRow | None, closed_until: int
    ) -> WindowChange | None:
        """Set a window to the value of a row and the record's."""
        if start + self.windows.difference_ms < closed_until:
            return None
        key, key_bytes, value_now, timestamp = record
        kept = self.store.rows.get((key_bytes, start)) if self.sends_old else None
        # Several windows may need this row and this value, and the aggregator may change what it gets.
        so_far = self._initial() if row is None else self.store.unpacked(row)
        new = self.aggregator(key, value_now(), so_far)
        time = timestamp if row is None else max(timestamp, row.timestamp)
        old = self.store.unpacked(StoredRow(*kept)) if kept is not None else None
        self._keep(record, start, new, time)
        return self._change(record, start, new, old, time)

    def _keep(self, record: Taken, start: int, value: Any, time: int) -> None:
        self.clocks.advance(self.store.newest, start)
        self.store.put_at(record.key_bytes, start, value, time)

    def _change(self, record: Taken, start: int, new: Any, old: Any, time: int) -> WindowChange:
        window = made(Window, (start, start + self.windows.difference_ms))
        return made(Windowed, (record.key, window)), change_of(new, old), time
