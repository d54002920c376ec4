"""Aggregations of streams into tables, by key and without windows.

Records without key or value are skipped. A result carries the greatest timestamp of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from felice.pipelines.streams.record import Change, Record, Timestamped
from felice.pipelines.streams.stores import KeyValueStore

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
"""(key, value, aggregate) -> aggregate"""
Reducer = Callable[[Any, Any], Any]
"""(aggregate, value) -> aggregate"""


def value_of(row: Timestamped | None) -> Any:
    """The value of a table's row; None where there is none."""
    return None if row is None else row.value


@dataclass(slots=True)
class StreamAggregate:
    """One change of the table for each record of the stream."""

    store: KeyValueStore
    initializer: Initializer
    aggregator: Aggregator
    sends_old: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The change of the key's aggregate."""
        key, value, timestamp, headers = record
        if key is None or value is None:
            return ()
        row = self.store.get(key)
        # Looked up by itself: the aggregator may change the object that it gets.
        old = value_of(self.store.get(key)) if self.sends_old else None
        start, time = (
            (self.initializer(), timestamp) if row is None else (row.value, max(timestamp, row.timestamp))
        )
        new = self.aggregator(key, value, start)
        self.store.put(key, new, time)
        return (Record(key, Change(new, old), time, headers),)


@dataclass(slots=True)
class TableAggregate:
    """An aggregate of a table's rows: the old row is subtracted, then the new one is added."""

    store: KeyValueStore
    initializer: Initializer
    adder: Aggregator
    subtractor: Aggregator
    sends_old: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The change of the group's aggregate."""
        key, change, timestamp, headers = record
        row = self.store.get(key)
        old = value_of(self.store.get(key)) if self.sends_old else None
        new = value_of(row)
        time = timestamp
        if change.old is not None and new is not None:
            new = self.subtractor(key, change.old, new)
            time = max(time, row.timestamp)  # type: ignore[union-attr]
        if change.new is not None:
            new = self.adder(key, change.new, self.initializer() if new is None else new)
            time = max(time, row.timestamp) if row is not None else time
        self.store.put(key, new, time)
        return (Record(key, Change(new, old), time, headers),)


@dataclass(frozen=True, slots=True)
class RegroupTable:
    """Sends a table's old and new rows to their groups. `select` gives a row's group and its value there."""

    select: Callable[[Any, Any], tuple[Any, Any]]

    def process(self, record: Record) -> Iterable[Record]:
        """One change if the group stays the same, else one that removes and one that adds."""
        key, change, timestamp, headers = record
        if key is None:
            return
        old_group, old = (None, None) if change.old is None else self.select(key, change.old)
        new_group, new = (None, None) if change.new is None else self.select(key, change.new)
        if old_group is None or old is None:
            old_group = old = None
        if new_group is None or new is None:
            new_group = new = None
        if old_group is not None and old_group == new_group:
            yield Record(new_group, Change(new, old), timestamp, headers)
            return
        if old_group is not None:
            yield Record(old_group, Change(None, old), timestamp, headers)
        if new_group is not None:
            yield Record(new_group, Change(new, None), timestamp, headers)
