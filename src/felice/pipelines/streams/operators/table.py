"""Operators of tables. Their records carry a `Change`; a key's row is its last change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from felice.dataclass import dataclass
from felice.pipelines.streams.operators.aggregate import value_of
from felice.pipelines.streams.record import (
    LATE,
    NULL,
    Change,
    Dropped,
    Getter,
    GetterAt,
    Record,
    Step,
    Timestamped,
    change_of,
    made,
)
from felice.pipelines.streams.stores import KeyValueStore
from felice.pipelines.streams.versioned import VersionedStore


@dataclass(slots=True)
class TableSource:
    """Turns a topic's records into changes. Records without key are skipped, a null value deletes its key.

    A record replaces its key's row even if the record is older, because a table follows the order of the topic.
    """

    store: KeyValueStore | None
    sends_old: bool

    def step(self) -> Step:
        """The change of the key's row."""
        put = _keep_nothing if self.store is None else self.store.putter(sends_old=self.sends_old)
        return Step(
            "value = {change_of}(value, {put}(key, value, timestamp))",
            {"change_of": change_of, "put": put},
            only_if="key is not None",
            drops=Dropped(NULL),
        )


def _keep_nothing(key: Any, value: Any, timestamp: int) -> None:
    """In place of a store's `put`."""


@dataclass(slots=True)
class VersionedTableSource:
    """Like `TableSource`, but keeps the history of rows. A record that is older than the history is skipped."""

    drops: ClassVar[tuple[str, ...]] = (LATE, NULL)
    store: VersionedStore
    sends_old: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The change of the key's row, or of its history."""
        key, value, timestamp, headers = record
        if key is None:
            raise Dropped(NULL)
        old = value_of(self.store.get(key)) if self.sends_old else None
        is_latest = self.store.put(key, value, timestamp)
        if is_latest is None:
            raise Dropped(LATE)
        return (Record(key, Change(value, old, is_latest), timestamp, headers),)


@dataclass(frozen=True, slots=True)
class OnlyLatest:
    """Drops changes of a versioned table that are older than the key's row."""

    def process(self, record: Record) -> Iterable[Record]:
        """The change itself, or nothing."""
        return (record,) if record.value.is_latest else ()


Compute = Callable[[Any, Any], Any]
"""(key, value) -> value, None where the derived table has no row"""


@dataclass(slots=True)
class TableMap:
    """A table that computes each row from one row of another table: `filter` and `map_values`.

    `only_changes` drops changes from no row to no row; it needs old rows.
    """

    compute: Compute
    store: KeyValueStore | None
    sends_old: bool
    only_changes: bool

    def step(self) -> Step:
        """The change of the computed row."""
        if self.store is None and not self.sends_old:
            new = "None if value[0] is None else {compute}(key, value[0])"
            names = {"made": made, "Change": Change, "compute": self.compute}
            return Step(f"value = {{made}}({{Change}}, ({new}, None, value[2]))", names)
        return Step(
            "value = {changed}(key, value, timestamp)",
            {"changed": self._changed},
            then="if value is not None",
        )

    def _changed(self, key: Any, change: Change, timestamp: int) -> Change | None:
        """The change of the computed row; None for a change from no row to no row if `only_changes`."""
        new = None if change.new is None else self.compute(key, change.new)
        old = self._old(key, change) if self.sends_old else None
        if self.only_changes and self.sends_old and old is None and new is None:
            return None
        if self.store is not None:
            self.store.put(key, new, timestamp)
        # In a store without history every change is the latest.
        return Change(new, old, change.is_latest or self.store is not None)

    def _old(self, key: Any, change: Change) -> Any:
        if self.store is not None:
            return value_of(self.store.get(key))
        return None if change.old is None else self.compute(key, change.old)


def computed_getter(parent: Getter, compute: Compute) -> Getter:
    """Look up a computed table that has no store."""

    return lambda key: _computed(compute, key, parent(key))


def computed_getter_at(parent: GetterAt, compute: Compute) -> GetterAt:
    """As `computed_getter`, at a time."""
    return lambda key, timestamp: _computed(compute, key, parent(key, timestamp))


def _computed(compute: Compute, key: Any, row: Timestamped | None) -> Timestamped | None:
    value = None if row is None else compute(key, row.value)
    return None if row is None or value is None else Timestamped(value, row.timestamp)


@dataclass(frozen=True, slots=True)
class ToStream:
    """Each change of a table as a record: the new value, null for a deletion."""

    def step(self) -> Step:
        """One record."""
        return Step("value = value[0]")
