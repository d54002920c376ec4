"""Aggregations of streams into tables, by key and without windows.

Records without key or value are skipped. A result carries the greatest timestamp of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.copies import own_copies
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import NULL, Change, Dropped, Step, Timestamped
from felice.pipelines.streams.stores import KeyValueStore

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
"""(key, value, aggregate) -> aggregate"""
Reducer = Callable[[Any, Any], Any]
"""(aggregate, value) -> aggregate"""

NO_ROW = None, None
_UPDATE = "value, timestamp = {update}(key, value, timestamp)"


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

    def step(self) -> Step:
        """The change of the key's aggregate."""
        initial = own_copies(self.initializer)
        update = self.store.updater(initial, self.aggregator, sends_old=self.sends_old)
        is_whole = "key is not None and value is not None"
        return Step(_UPDATE, {"update": update}, only_if=is_whole, drops=Dropped(NULL))


@dataclass(slots=True)
class TableAggregate:
    """An aggregate of a table's rows: the old row is subtracted, then the new one is added."""

    store: KeyValueStore
    initializer: Initializer
    adder: Aggregator
    subtractor: Aggregator
    sends_old: bool

    def step(self) -> Step:
        """The change of the group's aggregate."""
        adder, subtractor, initial = self.adder, self.subtractor, own_copies(self.initializer)

        def changed(key: Any, change: Change, aggregate: Any) -> Any:
            new, old, _ = change
            if old is not None and aggregate is not None:
                aggregate = subtractor(key, old, aggregate)
            if new is not None:
                aggregate = adder(key, new, initial() if aggregate is None else aggregate)
            return aggregate

        return Step(_UPDATE, {"update": self.store.updater(_nothing, changed, sends_old=self.sends_old)})


def _nothing() -> None:
    """The aggregate of a group without rows."""


@dataclass(frozen=True, slots=True)
class RegroupTable:
    """Sends a table's old and new rows to their groups. `select` gives a row's group and its value there."""

    select: Callable[[Any, Any], tuple[Any, Any]]
    group: Format

    def step(self) -> Step:
        """One change if the group stays the same, otherwise one change that removes the old row and one that adds the
        new row.
        """
        return Step(
            "found = {regrouped}(key, value)", {"regrouped": self._regrouped}, then="for key, value in found"
        )

    def _regrouped(self, key: Any, change: Change) -> Sequence[tuple[Any, Change]]:
        if key is None:
            return ()
        new_value, old_value, _ = change
        old_group, old = NO_ROW if old_value is None else self.select(key, old_value)
        new_group, new = NO_ROW if new_value is None else self.select(key, new_value)
        has_old = old_group is not None and old is not None
        has_new = new_group is not None and new is not None
        if has_old and has_new and self.group.is_same(old_group, new_group):
            return ((new_group, Change(new, old)),)
        removed = ((old_group, Change(None, old)),) if has_old else ()
        return (*removed, (new_group, Change(new, None))) if has_new else removed
