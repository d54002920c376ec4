"""Aggregations of streams by key and window of time.

Stream time is the greatest timestamp that the operator has seen in its partition. A window is closed once stream time
has reached its end and the grace period after it; a record is dropped if all its windows are closed. Records without
key are skipped. A record without value is aggregated, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.operators.aggregate import Aggregator, Initializer
from felice.pipelines.streams.record import Change, Group, Record, Window, Windowed
from felice.pipelines.streams.stores import Clocks
from felice.pipelines.streams.window_stores import SessionStore, WindowStore
from felice.pipelines.streams.windows import SessionWindows, TimeWindows

NO_HEADERS = ()


@dataclass(slots=True)
class WindowAggregate:
    """Tumbling and hopping windows: a record changes each open window that contains its timestamp.

    `on_close`: each window gives one result, when it closes, instead of one for each record.
    """

    name: str
    clocks: Clocks
    store: WindowStore
    windows: TimeWindows
    initializer: Initializer
    aggregator: Aggregator
    sends_old: bool
    on_close: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The changes of the windows, the earliest first."""
        if record.key is None:
            return
        time = self.clocks.advance(self.name, record.timestamp)
        closed_until = time - self.windows.grace_ms
        for window in self.windows.windows_for(record.timestamp):
            if window.end > closed_until:
                change = self._update(record, window)
                if not self.on_close:
                    yield change
        if self.on_close:
            yield from self._closed(closed_until)
        self.store.expire(self.clocks.get(self.store.newest))

    def process_all(self, group: Group) -> Group:
        """The changes of the windows of each record in turn."""
        made, numbers = [], []
        time, newest = self.clocks.get(self.name), self.clocks.get(self.store.newest)
        update = self.store.updater(self.initializer, self.aggregator, sends_old=self.sends_old)
        packed_keys = self.store.packed(group.keys)
        for number, packed, record in zip(group.numbers, packed_keys, group.records(), strict=True):
            if record.key is None:
                continue
            time = max(time, record.timestamp)
            closed_until = time - self.windows.grace_ms
            changes = []
            for window in self.windows.windows_for(record.timestamp):
                if window.end > closed_until:
                    changes.append(update(packed, record, window))
                    newest = max(newest, window.start)
            if self.on_close:
                changes = self._closed(closed_until)
            self.store.expire(newest)
            made += changes
            numbers += [number] * len(changes)
        self.clocks.advance(self.name, time)
        self.clocks.advance(self.store.newest, newest)
        return replace(Group.of(made), numbers=numbers)

    def _closed(self, until: int) -> list[Record]:
        return list(close_windows(self.name, self.clocks, self.store, self.windows.size_ms, until))

    def _update(self, record: Record, window: Window) -> Record:
        key, value, timestamp, headers = record
        row = self.store.fetch(key, window.start)
        old = None
        if row is not None and self.sends_old:
            old = self.store.fetch(key, window.start).value  # type: ignore[union-attr]
        start, time = (
            (self.initializer(), timestamp) if row is None else (row.value, max(timestamp, row.timestamp))
        )
        new = self.aggregator(key, value, start)
        self.clocks.advance(self.store.newest, window.start)
        self.store.put(key, window.start, new, time)
        return Record(Windowed(key, window), Change(new, old), time, headers)


def close_windows(
    name: str, clocks: Clocks, store: WindowStore, size_ms: int, closed_until: int
) -> Iterator[Record]:
    """The result of each window that ends after the last call's `closed_until`, and not after this one's.

    A window ends `size_ms` after its start; its end does not belong to it.
    """
    done = clocks.get(f"{name} closed")
    if closed_until <= done:
        return
    for start in store.starts(done - size_ms + 1, closed_until - size_ms + 1):
        for key, row in store.starting_at(start):
            yield Record(key, Change(row.value, None), row.timestamp, NO_HEADERS)
    clocks.advance(f"{name} closed", closed_until)


@dataclass(slots=True)
class SessionAggregate:
    """Sessions: a record starts a session, or extends and merges the sessions that are within the gap of it.

    When a session grows, its row under the old bounds is deleted first.
    """

    name: str
    clocks: Clocks
    store: SessionStore
    windows: SessionWindows
    initializer: Initializer
    aggregator: Aggregator
    merger: Callable[[Any, Any, Any], Any]
    sends_old: bool
    on_close: bool

    def process(self, record: Record) -> Iterable[Record]:
        """Deletions of the sessions that are merged, then the session that they become."""
        if record.key is None:
            return ()
        time = self.clocks.advance(self.name, record.timestamp)
        (packed,) = self.store.packed([record.key])
        changes, newest = self._changes(packed, record, time, self.clocks.get(self.store.newest))
        self.clocks.advance(self.store.newest, newest)
        self.store.expire(newest)
        return changes

    def process_all(self, group: Group) -> Group:
        """The changes of the sessions of each record in turn."""
        made: list[Record] = []
        numbers = []
        time, newest = self.clocks.get(self.name), self.clocks.get(self.store.newest)
        packed_keys = self.store.packed(group.keys)
        for number, packed, record in zip(group.numbers, packed_keys, group.records(), strict=True):
            if packed is None:
                continue
            time = max(time, record.timestamp)
            changes, newest = self._changes(packed, record, time, newest)
            made += changes
            numbers += [number] * len(changes)
        self.clocks.advance(self.name, time)
        self.clocks.advance(self.store.newest, newest)
        # Once is enough: a session whose retention has passed is not found any more.
        self.store.expire(newest)
        return replace(Group.of(made), numbers=numbers)

    def _changes(self, packed: Any, record: Record, time: int, newest: int) -> tuple[list[Record], int]:
        """The results of a record, and the time of the newest end after it."""
        timestamp, gap_ms = record.timestamp, self.windows.gap_ms
        closed_until = time - self.windows.grace_ms - gap_ms
        found = self.store.around(packed, timestamp - gap_ms, timestamp + gap_ms, newest)
        start = end = timestamp
        for one in found:
            start, end = min(start, one.start), max(end, one.end)
        changes: list[Record] = []
        if end >= closed_until:
            changes = self._merge(packed, record, Window(start, end), found)
            newest = max(newest, end)
        return list(self._close(closed_until)) if self.on_close else changes, newest

    def _merge(self, packed: Any, record: Record, merged: Window, found: list[Window]) -> list[Record]:
        key, value, _, headers = record
        aggregate, store = self.initializer(), self.store
        for one in found:
            aggregate = self.merger(key, aggregate, store.value(packed, one))
        aggregate = self.aggregator(key, value, aggregate)
        changes = []
        if merged.start != merged.end:  # Else the record's own session has these bounds, if there is one.
            for one in found:
                # A second lookup, because the merger may change the object that it gets.
                before = store.value(packed, one) if self.sends_old else None
                changes.append(Record(Windowed(key, one), Change(None, before), one.end, headers))
        # Compute before changing: if a function fails, or its result cannot be stored, the sessions stay as they are.
        store.put(packed, merged, aggregate)
        for one in found:
            if one != merged:
                store.put(packed, one, None)
        changes.append(Record(Windowed(key, merged), Change(aggregate, None), merged.end, headers))
        return changes

    def _close(self, closed_until: int) -> Iterator[Record]:
        done = self.clocks.get(f"{self.name} closed")
        if closed_until <= done:
            return
        for key, row in self.store.ending(done, closed_until):
            yield Record(key, Change(row.value, None), row.timestamp, NO_HEADERS)
        self.clocks.advance(f"{self.name} closed", closed_until)
