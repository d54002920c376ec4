"""Joins in which one side is a table. Results carry the later one of both timestamps, or the stream's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import compress
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.join_stores import HeldRecords
from felice.pipelines.streams.operators.aggregate import value_of
from felice.pipelines.streams.record import Change, Getter, GetterAt, Group, Record, Timestamped
from felice.pipelines.streams.stores import Clocks, KeyValueStore

Joiner = Callable[[Any, Any], Any]
"""(left value, right value) -> value; an outer join gives None for the side that is missing"""


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """Looks each record of a stream up in a table. A change of the table alone gives no result.

    Records without value are skipped. `key_of` returns the key of the table's row. If that key is None, an inner join
    skips the record, and a left join joins it with None. `table_at` looks up the row of a versioned table as it was at
    the record's time.
    """

    table: Getter
    joiner: Joiner
    is_left: bool
    key_of: Callable[[Any, Any], Any]
    table_at: GetterAt | None = None

    def process(self, record: Record) -> Iterable[Record]:
        """One record with the key of the stream, or none."""
        key, value, timestamp, headers = record
        if value is None:
            return ()
        mapped = self.key_of(key, value)
        found = None if mapped is None else value_of(self._row(mapped, timestamp))
        if found is None and not self.is_left:
            return ()
        return (Record(key, self.joiner(value, found), timestamp, headers),)

    def process_all(self, group: Group) -> Group:
        """As many records with the keys of the stream, or fewer."""
        group = group.where([value is not None for value in group.values])
        found = self._found(group)
        if not self.is_left:
            kept = [value is not None for value in found]
            group, found = group.where(kept), list(compress(found, kept))
        return group.with_values(list(map(self.joiner, group.values, found)))

    def _found(self, group: Group) -> list[Any]:
        mapped = map(self.key_of, group.keys, group.values)
        rows = [
            None if key is None else self._row(key, timestamp)
            for key, timestamp in zip(mapped, group.timestamps, strict=True)
        ]
        return [None if row is None else row.value for row in rows]

    def _row(self, key: Any, timestamp: int) -> Timestamped | None:
        return self.table(key) if self.table_at is None else self.table_at(key, timestamp)


@dataclass(frozen=True, slots=True)
class TableTableJoin:
    """One side of a join of two tables by their key: looks up the row of the other table for each changed row.

    `needs_other`: there is no result without the other side's row. `needs_own`: there is none without this side's row.
    """

    other: Getter
    joiner: Joiner
    needs_own: bool
    needs_other: bool
    sends_old: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The change of the joined row."""
        key, change, timestamp, headers = record
        found = self._joined(key, change, timestamp)
        return () if found is None else (Record(key, *found, headers),)

    def process_all(self, group: Group) -> Group:
        """The changes of the joined rows."""
        found = list(map(self._joined, group.keys, group.values, group.timestamps))
        joined = [one for one in found if one is not None]
        group = group.where([one is not None for one in found])
        return replace(
            group, values=[change for change, _ in joined], timestamps=[time for _, time in joined]
        )

    def _joined(self, key: Any, change: Change, timestamp: int) -> tuple[Change, int] | None:
        """The change of the joined row, and its time."""
        if key is None:
            return None
        row = self.other(key)
        if row is None and (self.needs_other or (change.new is None and change.old is None)):
            return None
        time = timestamp if row is None else max(timestamp, row.timestamp)
        new = self._value(change.new, row)
        return Change(new, self._value(change.old, row) if self.sends_old else None), time

    def _value(self, own: Any, row: Timestamped | None) -> Any:
        if own is None and (self.needs_own or row is None):
            return None
        return self.joiner(own, value_of(row))


@dataclass(slots=True)
class JoinedTable:
    """The joined table: receives the results of both sides, and keeps them in the join's store, if it has one."""

    store: KeyValueStore | None
    sends_old: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The same change."""
        if self.store is None:
            return (record,)  # Both sides send old values only if this table does.
        key, change, timestamp, headers = record
        old = value_of(self.store.get(key)) if self.sends_old else None
        self.store.put(key, change.new, timestamp)
        return (Record(key, Change(change.new, old), timestamp, headers),)

    def process_all(self, group: Group) -> Group:
        """The same changes."""
        if self.store is None:
            return group
        return self.store.put_all(
            group.with_values([change.new for change in group.values]), sends_old=self.sends_old
        )


@dataclass(slots=True)
class HoldBack:
    """Holds each record of a stream until stream time is `grace_ms` later than the record's timestamp.

    Rows of a versioned table that arrive late have arrived by then, and the join finds them. A record that is already
    older when it arrives passes at once.
    """

    name: str
    clocks: Clocks
    held: HeldRecords
    grace_ms: int
    keeps_null_keys: bool

    def process(self, record: Record) -> Iterable[Record]:
        """The record itself, if it is too old to be held; then the records that are due, in the order of their
        timestamps.
        """
        if record.value is None or (record.key is None and not self.keeps_null_keys):
            return
        time = self.clocks.get(self.name)
        if record.timestamp < time - self.grace_ms:
            yield record
        else:
            self.held.put(record)
            time = self.clocks.advance(self.name, record.timestamp)
        yield from self.held.take_until(time - self.grace_ms)
