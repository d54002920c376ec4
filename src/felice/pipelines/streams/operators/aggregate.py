"""Aggregations of streams into tables, by key and without windows.

Records without key or value are skipped. A result carries the greatest timestamp of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Change, Group, Record, Timestamped
from felice.pipelines.streams.stores import KeyValueStore

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
"""(key, value, aggregate) -> aggregate"""
Reducer = Callable[[Any, Any], Any]
"""(aggregate, value) -> aggregate"""

NO_ROW = None, None


def value_of(row: Timestamped | None) -> Any:
    """The value of a table's row; None if there is no row."""
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
        # A second lookup, because the aggregator may change the object that it gets.
        old = value_of(self.store.get(key)) if self.sends_old else None
        start, time = (
            (self.initializer(), timestamp) if row is None else (row.value, max(timestamp, row.timestamp))
        )
        new = self.aggregator(key, value, start)
        self.store.put(key, new, time)
        return (Record(key, Change(new, old), time, headers),)

    def process_all(self, group: Group) -> Group:
        """The changes of the keys' aggregates."""
        group = group.where(
            [
                key is not None and value is not None
                for key, value in zip(group.keys, group.values, strict=True)
            ]
        )
        return self.store.aggregate_all(group, self.initializer, self.aggregator, sends_old=self.sends_old)


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
        new = self._changed(key, change, value_of(row))
        time = timestamp if row is None else max(timestamp, row.timestamp)
        self.store.put(key, new, time)
        return (Record(key, Change(new, old), time, headers),)

    def process_all(self, group: Group) -> Group:
        """The changes of the groups' aggregates."""
        return self.store.aggregate_all(group, _nothing, self._changed, sends_old=self.sends_old)

    def _changed(self, key: Any, change: Change, aggregate: Any) -> Any:
        new, old, _ = change
        if old is not None and aggregate is not None:
            aggregate = self.subtractor(key, old, aggregate)
        if new is not None:
            aggregate = self.adder(key, new, self.initializer() if aggregate is None else aggregate)
        return aggregate


def _nothing() -> None:
    """The aggregate of a group without rows."""


@dataclass(frozen=True, slots=True)
class RegroupTable:
    """Sends a table's old and new rows to their groups. `select` gives a row's group and its value there."""

    select: Callable[[Any, Any], tuple[Any, Any]]

    def process(self, record: Record) -> Iterable[Record]:
        """One change if the group stays the same, otherwise one change that removes the old row and one that adds the
        new row.
        """
        key, change, timestamp, headers = record
        return [Record(group, one, timestamp, headers) for group, one in self._regrouped(key, change)]

    def process_all(self, group: Group) -> Group:
        """The changes of the groups."""
        found = list(map(self._regrouped, group.keys, group.values))
        keys, changes = zip(*chain.from_iterable(found), strict=True) if any(found) else ((), ())
        repeated = group.repeated(list(map(len, found)))
        return repeated.with_keys(list(keys)).with_values(list(changes))

    def _regrouped(self, key: Any, change: Change) -> Sequence[tuple[Any, Change]]:
        if key is None:
            return ()
        new_value, old_value, _ = change
        old_group, old = NO_ROW if old_value is None else self.select(key, old_value)
        new_group, new = NO_ROW if new_value is None else self.select(key, new_value)
        has_old = old_group is not None and old is not None
        has_new = new_group is not None and new is not None
        if has_old and has_new and old_group == new_group:
            return ((new_group, Change(new, old)),)
        removed = ((old_group, Change(None, old)),) if has_old else ()
        return (*removed, (new_group, Change(new, None))) if has_new else removed
