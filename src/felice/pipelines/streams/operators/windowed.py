"""Aggregations of streams by key and window of time.

Stream time is the greatest timestamp that the operator has seen in its partition. A window is closed once stream time
has reached its end and the grace period after it; a record is dropped if all its windows are closed. Records without
key are skipped. A record without value is aggregated, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, ClassVar

from felice.dataclass import dataclass
from felice.pipelines.streams.copies import copies, own_copies
from felice.pipelines.streams.formats import WindowEnds
from felice.pipelines.streams.operators.aggregate import Aggregator, Initializer
from felice.pipelines.streams.record import (
    LATE,
    NULL,
    Dropped,
    Step,
    Timestamped,
    Window,
    Windowed,
    change_of,
    made,
)
from felice.pipelines.streams.stores import Clocks
from felice.pipelines.streams.window_stores import SessionStore, WindowChange, WindowChanges, WindowStore
from felice.pipelines.streams.windows import CalendarWindows, SessionWindows, TimeWindows


def windowed_step(
    changes: Callable[[Any, Any, int], Iterable[WindowChange]],
    closed: Callable[[Any, Any, int], Iterable[WindowChange]],
    *,
    on_close: bool,
    only_if: str = "key is not None",
) -> Step:
    """The step of an aggregation: gives the changes of windows, or the windows that close if `on_close`.

    Both have the headers of the record that made or closed them.
    """
    loop = "for key, value, timestamp in {results}(key, value, timestamp)"
    results = closed if on_close else changes
    return Step(loop=loop, names={"results": results}, only_if=only_if, drops=Dropped(NULL))


EndingWindows = Callable[[int, int], Iterator[tuple[Windowed, Timestamped]]]
"""The rows of the windows whose last moment is from one time on and before another."""


def ending_windows(store: WindowStore, longest_ms: int, ends: WindowEnds | None = None) -> EndingWindows:
    """Windows that end as `ends` says, at most `longest_ms` after their start; without `ends`, all of them then. The
    end does not belong to them.
    """
    # Windows of one size are found by their starts alone: there may be many.
    latest_ms = longest_ms - 1 if ends is None else 0

    def ending(first: int, end: int) -> Iterator[tuple[Windowed, Timestamped]]:
        for start in store.starts(first - longest_ms + 1, end - latest_ms):
            if ends is None or first < ends.end_of(start) <= end:
                yield from store.starting_at(start)

    return ending


class Closing:
    """Gives the result of each window once, when it closes."""

    def __init__(self, name: str, clocks: Clocks, ending: EndingWindows) -> None:
        self._clock = f"{name} closed"
        """The clock that says until when the operator's windows are closed."""
        self._clocks, self._ending = clocks, ending

    def until(self, closed_until: int) -> Iterator[WindowChange]:
        """The results of the windows that have closed since the last call; `closed_until` is the operator's time."""
        done = self._clocks.get(self._clock)
        if closed_until <= done:
            return
        for key, row in self._ending(done, closed_until):
            yield key, change_of(row.value), row.timestamp
        self._clocks.advance(self._clock, closed_until)


@dataclass(slots=True)
class WindowAggregate:
    """Tumbling and hopping windows: a record changes each open window that contains its timestamp.

    `on_close`: each window gives one result, when it closes, instead of one for each record.
    """

    drops: ClassVar[tuple[str, ...]] = (LATE,)
    name: str
    clocks: Clocks
    store: WindowStore
    windows: TimeWindows | CalendarWindows
    initializer: Initializer
    aggregator: Aggregator
    sends_old: bool
    on_close: bool

    _updates: WindowChanges = field(init=False)
    _windows_of: Callable[[int], tuple[Window, ...]] = field(init=False)
    _closing: Closing = field(init=False)

    def __post_init__(self) -> None:
        self._updates = self.store.updater(
            own_copies(self.initializer), self.aggregator, self.clocks, sends_old=self.sends_old
        )
        self._windows_of = self.store.windows_of = self.windows.finder()
        ends = self.windows if isinstance(self.windows, CalendarWindows) else None
        self._closing = Closing(
            self.name, self.clocks, ending_windows(self.store, self.windows.size_ms, ends)
        )

    def step(self) -> Step:
        """The changes of the windows, the earliest first; or the windows that close."""
        return windowed_step(self._changes, self._closed, on_close=self.on_close)

    def _changes(self, key: Any, value: Any, timestamp: int) -> Iterator[WindowChange]:
        closed_until = self.clocks.advance(self.name, timestamp) - self.windows.grace_ms
        key_bytes, windows = self.store.key_bytes(key), self._windows_of(timestamp)
        if windows[0].end <= closed_until:
            windows = tuple(one for one in windows if one.end > closed_until)
            if not windows:
                raise Dropped(LATE, timestamp)
        yield from self._updates(key_bytes, key, copies(value, len(windows)), timestamp, windows)
        if not self.on_close:
            # Also if this record moves no clock: another stream's may have made its window too old to be kept.
            self.store.expire(self.clocks.get(self.store.newest))

    def _closed(self, key: Any, value: Any, timestamp: int) -> Iterator[WindowChange]:
        for _ in self._changes(key, value, timestamp):
            pass
        yield from self._closing.until(self.clocks.get(self.name) - self.windows.grace_ms)
        self.store.expire(self.clocks.get(self.store.newest))


@dataclass(slots=True)
class SessionAggregate:
    """Sessions: a record starts a session, or extends and merges the sessions that are within the gap of it.

    When a session grows, its row under the old bounds is deleted first.
    """

    drops: ClassVar[tuple[str, ...]] = (LATE,)
    name: str
    clocks: Clocks
    store: SessionStore
    windows: SessionWindows
    initializer: Initializer
    aggregator: Aggregator
    merger: Callable[[Any, Any, Any], Any]
    sends_old: bool
    on_close: bool
    _initial: Initializer = field(init=False)
    _closing: Closing = field(init=False)

    def __post_init__(self) -> None:
        self._initial = own_copies(self.initializer)
        self._closing = Closing(self.name, self.clocks, self.store.ending)

    def step(self) -> Step:
        """Deletions of the sessions that are merged, then the session that they become; or the sessions that close."""
        return windowed_step(self._changes, self._closed, on_close=self.on_close)

    def _changes(self, key: Any, value: Any, timestamp: int) -> Sequence[WindowChange]:
        changes = self._changed(key, value, timestamp)
        self.store.expire(self.clocks.get(self.store.newest))
        return changes

    def _closed(self, key: Any, value: Any, timestamp: int) -> Sequence[WindowChange]:
        self._changed(key, value, timestamp)
        closed = list(self._closing.until(self._closed_until(self.clocks.get(self.name))))
        self.store.expire(self.clocks.get(self.store.newest))
        return closed

    def _closed_until(self, time: int) -> int:
        return time - self.windows.grace_ms - self.windows.gap_ms

    def _changed(self, key: Any, value: Any, timestamp: int) -> Sequence[WindowChange]:
        """Changes the store; returns the changes."""
        clocks, store, gap_ms = self.clocks, self.store, self.windows.gap_ms
        closed_until = self._closed_until(clocks.advance(self.name, timestamp))
        key_bytes = store.key_bytes(key)
        found = store.around(key_bytes, timestamp - gap_ms, timestamp + gap_ms, clocks.get(store.newest))
        start = end = timestamp
        for one in found:
            if one.start < start:
                start = one.start
            if one.end > end:
                end = one.end
        if end < closed_until:
            raise Dropped(LATE, timestamp)
        changes = self._merge(key_bytes, key, value, made(Window, (start, end)), found)
        clocks.advance(store.newest, end)
        return changes

    def _merge(
        self, key_bytes: bytes, key: Any, value: Any, merged: Window, found: Sequence[Window]
    ) -> Sequence[WindowChange]:
        aggregate, store = self._initial(), self.store
        for one in found:
            aggregate = self.merger(key, aggregate, store.value(key_bytes, one))
        aggregate = self.aggregator(key, value, aggregate)
        changes = []
        if merged.start != merged.end:  # Else the record's own session has these bounds, if there is one.
            for one in found:
                # A second lookup, because the merger may change the object that it gets.
                before = store.value(key_bytes, one) if self.sends_old else None
                changes.append((made(Windowed, (key, one)), change_of(None, before), one.end))
        # Compute before changing: if a function fails, or its result cannot be stored, the sessions stay as they are.
        store.put(key_bytes, merged, aggregate)
        for one in found:
            if one != merged:
                store.put(key_bytes, one, None)
        changes.append((made(Windowed, (key, merged)), change_of(aggregate), merged.end))
        return changes
