"""Aggregation of streams by key in sliding windows: for each record, the records at most a difference before it.

Two records share a window if their timestamps differ by at most `difference_ms`. A window either
ends at the timestamp of a record, or begins one millisecond after a record. Windows without records do not exist; both
ends of a window belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.operators.aggregate import Aggregator, Initializer
from felice.pipelines.streams.operators.windowed import close_windows
from felice.pipelines.streams.record import Change, Record, Timestamped, Window, Windowed
from felice.pipelines.streams.stores import Clocks
from felice.pipelines.streams.window_stores import SlidingStore
from felice.pipelines.streams.windows import SlidingWindows


@dataclass(slots=True)
class SlidingAggregate:
    """A record changes the windows that hold it, and may create up to three windows, with the bounds described above.

    `on_close`: each window gives one result, when it closes, instead of one for each record.
    """

    name: str
    clocks: Clocks
    store: SlidingStore
    windows: SlidingWindows
    initializer: Initializer
    aggregator: Aggregator
    sends_old: bool
    on_close: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The changes of the windows, in the order of Kafka Streams."""
        if record.key is None or record.value is None:
            return
        difference_ms = self.windows.difference_ms
        time = self.clocks.advance(self.name, record.timestamp)
        closed_until = time - self.windows.grace_ms
        if record.timestamp + 1 + difference_ms <= closed_until:
            return
        found = self.store.around(
            record.key, max(0, record.timestamp - 2 * difference_ms), record.timestamp + 1
        )
        visit = self._early if record.timestamp < difference_ms else self._usual
        for change in visit(record, found, closed_until):
            if change is not None and not self.on_close:
                yield change
        if self.on_close:
            # The end of a sliding window belongs to it, so it is closed one millisecond later than another window.
            yield from close_windows(self.name, self.clocks, self.store, difference_ms + 1, closed_until)
        # Kafka's store measures its retention from the start of the newest window, too.
        self.store.expire(self.clocks.get(self.store.newest))

    def _usual(
        self, record: Record, found: list[tuple[int, Timestamped]], closed_until: int
    ) -> Iterator[Record | None]:
        """The existing windows, the latest first; then the new ones."""
        timestamp, difference_ms = record.timestamp, self.windows.difference_ms
        starts: set[int] = set()
        before: int | None = None
        holding: Timestamped | None = None
        left: Timestamped | None = None
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
            value = left.value if is_shared and left is not None else self.initializer()
            row = Timestamped(value, timestamp)
            yield self._update(record, timestamp - difference_ms, row, closed_until)
        yield self._behind_this(record, holding, starts)

    def _early(
        self, record: Record, found: list[tuple[int, Timestamped]], closed_until: int
    ) -> Iterator[Record | None]:
        """No window begins before 0, so the first records share the window that begins at 0."""
        timestamp = record.timestamp
        starts = {start for start, _ in found}
        first = next((row for start, row in found if start == 0), None)
        holding: Timestamped | None = None
        for start, row in found:
            if 0 < start <= timestamp:
                holding = row
                yield self._update(record, start, row, closed_until)
        if holding is None and first is not None and first.timestamp > timestamp:
            holding = first
        yield self._behind_this(record, holding, starts)
        if first is not None and first.timestamp < timestamp:
            yield self._behind_previous(record, first.timestamp, starts, closed_until)
        yield self._update(record, 0, first or Timestamped(self.initializer(), timestamp), closed_until)

    def _behind_previous(
        self, record: Record, before: int | None, starts: set[int], closed_until: int
    ) -> Record | None:
        """The window just behind the record before this one; this record is its first."""
        if before is None or before + 1 in starts:
            return None
        if before + 1 + self.windows.difference_ms < record.timestamp:
            return None
        row = Timestamped(self.initializer(), record.timestamp)
        return self._update(record, before + 1, row, closed_until)

    def _behind_this(self, record: Record, holding: Timestamped | None, starts: set[int]) -> Record | None:
        """The window just behind this record, with what a window that holds this record had behind it."""
        start = record.timestamp + 1
        if start in starts or holding is None or holding.timestamp <= record.timestamp:
            return None
        self._keep(record.key, start, holding.value, holding.timestamp)
        return self._change(record, start, holding.value, None, holding.timestamp)

    def _update(self, record: Record, start: int, row: Timestamped, closed_until: int) -> Record | None:
        if start + self.windows.difference_ms < closed_until:
            return None
        key, value, timestamp, _ = record
        kept = self.store.fetch(key, start) if self.sends_old else None
        new = self.aggregator(key, value, row.value)
        time = max(timestamp, row.timestamp)
        self._keep(key, start, new, time)
        return self._change(record, start, new, kept.value if kept is not None else None, time)

    def _keep(self, key: Any, start: int, value: Any, time: int) -> None:
        self.clocks.advance(self.store.newest, start)
        self.store.put(key, start, value, time)

    def _change(self, record: Record, start: int, new: Any, old: Any, time: int) -> Record:
        window = Window(start, start + self.windows.difference_ms)
        return Record(Windowed(record.key, window), Change(new, old), time, record.headers)
