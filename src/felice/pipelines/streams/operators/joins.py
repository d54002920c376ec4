"""Joins in which one side is a table. Results carry the later one of both timestamps, or the stream's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from felice.dataclass import dataclass
from felice.pipelines.streams.join_stores import HeldRecords
from felice.pipelines.streams.operators.aggregate import value_of
from felice.pipelines.streams.record import (
    NULL,
    Change,
    Dropped,
    Getter,
    GetterAt,
    Record,
    Step,
    Timestamped,
    change_of,
)
from felice.pipelines.streams.stores import Clocks, KeyValueStore

Joiner = Callable[[Any, Any], Any]
"""(left value, right value) -> value; an outer join gives None for the side that is missing"""


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """Looks each record of a stream up in a table. A change of the table alone gives no result.

    Records without value are skipped. `key_of` returns the key of the table's row; without it, that is the record's
    key. If that key is None, an inner join skips the record, and a left join joins it with None. `table_at` looks up
    the row of a versioned table as it was at the record's time.
    """

    table: Getter
    joiner: Joiner
    is_left: bool
    key_of: Callable[[Any, Any], Any] | None = None
    table_at: GetterAt | None = None

    def step(self) -> Step:
        """One record with the key of the stream, or none."""
        mapped = "key" if self.key_of is None else "{key_of}(key, value)"
        row = "{table}(mapped)" if self.table_at is None else "{table_at}(mapped, timestamp)"
        passes = "True" if self.is_left else "found is not None"
        return Step(
            f"mapped = {mapped}\n"
            f"row = None if mapped is None else {row}\n"
            "found = None if row is None else row[0]\n"
            f"passes = {passes}\n"
            "if passes:\n    value = {joiner}(value, found)",
            {"joiner": self.joiner, "key_of": self.key_of, "table": self.table, "table_at": self.table_at},
            only_if="value is not None",
            drops=Dropped(NULL),
            then="if passes",
            targets="value",
        )


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

    def step(self) -> Step:
        """The change of the joined row."""
        return Step(
            "found = {joined}(key, value, timestamp)",
            {"joined": self._joined},
            then="for value, timestamp in found",
        )

    def _joined(self, key: Any, change: Change, timestamp: int) -> Sequence[tuple[Change, int]]:
        """The change of the joined row, and its time; or nothing."""
        if key is None:
            return ()
        row = self.other(key)
        if row is None and (self.needs_other or (change.new is None and change.old is None)):
            return ()
        time = timestamp if row is None else max(timestamp, row.timestamp)
        new = self._value(change.new, row)
        return ((change_of(new, self._value(change.old, row) if self.sends_old else None), time),)

    def _value(self, own: Any, row: Timestamped | None) -> Any:
        if own is None and (self.needs_own or row is None):
            return None
        return self.joiner(own, value_of(row))


@dataclass(slots=True)
class JoinedTable:
    """The joined table: receives the results of both sides, and keeps them in the join's store, if it has one."""

    store: KeyValueStore | None
    sends_old: bool

    def step(self) -> Step:
        """The same change."""
        if self.store is None:
            return Step("")  # Both sides send old values only if this table does.
        names = {"put": self.store.putter(sends_old=self.sends_old), "change_of": change_of}
        return Step("value = {change_of}(value[0], {put}(key, value[0], timestamp))", names)


@dataclass(slots=True)
class HoldBack:
    """Holds each record of a stream until stream time is `grace_ms` later than the record's timestamp.

    Rows of a versioned table that arrive late have arrived by then, and the join finds them. A record that is already
    older when it arrives passes at once.
    """

    drops: ClassVar[tuple[str, ...]] = (NULL,)
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
            raise Dropped(NULL)
        time = self.clocks.get(self.name)
        if record.timestamp < time - self.grace_ms:
            yield record
        else:
            self.held.put(record)
            time = self.clocks.advance(self.name, record.timestamp)
        yield from self.held.take_until(time - self.grace_ms)
