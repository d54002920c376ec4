"""Operators that pass only changes: of a stream's value, or of a condition on a table's rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.operators.stateless import KeyValueFunction
from felice.pipelines.streams.record import Record
from felice.pipelines.streams.stores import KeyValueStore


@dataclass(frozen=True, slots=True)
class OnlyChanges:
    """Drops a record whose compared value is that of the last record of its key, byte by byte. Null is a value, too."""

    store: KeyValueStore
    compared: KeyValueFunction

    def process(self, record: Record) -> Iterable[Record]:
        """The record itself, or nothing."""
        if record.key is None:
            return ()
        # The value is wrapped in a list, because a store cannot hold null.
        now = [self.compared(record.key, record.value)]
        return (record,) if self.store.put_changed(record.key, now, record.timestamp) else ()


@dataclass(frozen=True, slots=True)
class Edges:
    """Sends a record when a change makes the predicate true that was false before."""

    predicate: KeyValueFunction

    def process(self, record: Record) -> Iterable[Record]:
        """The new row, or nothing."""
        key, change, timestamp, headers = record
        if not self._holds(key, change.new) or self._holds(key, change.old):
            return ()
        return (Record(key, change.new, timestamp, headers),)

    def _holds(self, key: Any, value: Any) -> bool:
        return value is not None and bool(self.predicate(key, value))
