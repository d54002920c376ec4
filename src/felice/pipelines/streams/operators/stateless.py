"""Operators without state. A function gets key and value, and a null value like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Group, Record

KeyValueFunction = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Filter:
    """Drops records for which the predicate is false."""

    predicate: KeyValueFunction

    def process(self, record: Record) -> Iterable[Record]:
        """The record itself, or nothing."""
        return (record,) if self.predicate(record.key, record.value) else ()

    def process_all(self, group: Group) -> Group:
        """The records that are passed."""
        return group.where(list(map(bool, map(self.predicate, group.keys, group.values))))


@dataclass(frozen=True, slots=True)
class MapValues:
    """Replaces the value."""

    function: KeyValueFunction

    def process(self, record: Record) -> Iterable[Record]:
        """One record with the same key."""
        key, value, timestamp, headers = record
        return (Record(key, self.function(key, value), timestamp, headers),)

    def process_all(self, group: Group) -> Group:
        """As many records, with the same keys."""
        return group.with_values(list(map(self.function, group.keys, group.values)))


@dataclass(frozen=True, slots=True)
class FlatMapValues:
    """Replaces the record by one for each value that the function returns."""

    function: KeyValueFunction

    def process(self, record: Record) -> Iterable[Record]:
        """Records with the same key."""
        key, value, timestamp, headers = record
        return [Record(key, one, timestamp, headers) for one in self.function(key, value)]

    def process_all(self, group: Group) -> Group:
        """Records with the same keys."""
        found = list(map(list, map(self.function, group.keys, group.values)))
        return group.repeated(list(map(len, found))).with_values(list(chain.from_iterable(found)))


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Replaces the record by one for each pair of key and value that the function returns."""

    function: KeyValueFunction

    def process(self, record: Record) -> Iterable[Record]:
        """Records with new keys."""
        _, _, timestamp, headers = record
        return [
            Record(key, value, timestamp, headers) for key, value in self.function(record.key, record.value)
        ]

    def process_all(self, group: Group) -> Group:
        """Records with new keys."""
        found = list(map(list, map(self.function, group.keys, group.values)))
        pairs = [(key, value) for key, value in chain.from_iterable(found)]
        repeated = group.repeated(list(map(len, found)))
        return repeated.with_keys([key for key, _ in pairs]).with_values([value for _, value in pairs])


@dataclass(frozen=True, slots=True)
class SelectKey:
    """Replaces the key."""

    function: KeyValueFunction

    def process(self, record: Record) -> Iterable[Record]:
        """One record with the same value."""
        key, value, timestamp, headers = record
        return (Record(self.function(key, value), value, timestamp, headers),)

    def process_all(self, group: Group) -> Group:
        """As many records, with the same values."""
        return group.with_keys(list(map(self.function, group.keys, group.values)))


@dataclass(frozen=True, slots=True)
class Peek:
    """Calls a function for its effect."""

    function: KeyValueFunction

    def process(self, record: Record) -> Iterable[Record]:
        """The record itself."""
        self.function(record.key, record.value)
        return (record,)


@dataclass(frozen=True, slots=True)
class Branch:
    """Passes records that match this predicate and none of the earlier ones."""

    earlier: Sequence[KeyValueFunction]
    predicate: KeyValueFunction | None

    def process(self, record: Record) -> Iterable[Record]:
        """The record itself, or nothing."""
        return (record,) if self._passes(record.key, record.value) else ()

    def process_all(self, group: Group) -> Group:
        """The records that are passed."""
        return group.where(list(map(self._passes, group.keys, group.values)))

    def _passes(self, key: Any, value: Any) -> bool:
        if any(matches(key, value) for matches in self.earlier):
            return False
        return self.predicate is None or bool(self.predicate(key, value))


@dataclass(frozen=True, slots=True)
class Pass:
    """Passes every record: joins the branches, or the inputs, of a stream."""

    def process(self, record: Record) -> Iterable[Record]:
        """The record itself."""
        return (record,)

    def process_all(self, group: Group) -> Group:
        """The same records."""
        return group


@dataclass(frozen=True, slots=True)
class DropNullKeys:
    """Drops records that a repartition by key cannot place."""

    def process(self, record: Record) -> Iterable[Record]:
        """The record itself, or nothing."""
        return (record,) if record.key is not None else ()

    def process_all(self, group: Group) -> Group:
        """The records that are passed."""
        return group.where([key is not None for key in group.keys])


def by(key_of: KeyValueFunction | str) -> KeyValueFunction:
    """The function that chooses a key; a field's name becomes the function that returns this field of the value."""
    if not isinstance(key_of, str):
        return key_of
    field = key_of

    def of_field(_: Any, value: Any) -> Any:
        return None if value is None else value.get(field)

    return of_field
