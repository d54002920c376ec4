"""State of joins: recent records of a stream, records without a partner, records that wait, and foreign keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Record
from felice.pipelines.streams.stores import IndexedStore, Row, Store, packed_in, plain_headers


class RecentRecords(Store):
    """One side's records by key and timestamp, for `retention_ms`. Equal ones are all kept, in order."""

    def __init__(self, name: str, key: Format, value: Format, retention_ms: int) -> None:
        super().__init__(name)
        self._key, self._value = key, value
        self._retention_ms = retention_ms
        self._of_key: dict[Any, list[tuple[int, int]]] = {}
        self._oldest: list[tuple[int, int, bytes]] = []
        self._count = 0

    def formats(self) -> tuple[Format, ...]:
        """The formats of keys and values."""
        return self._key, self._value

    def _apply(self, key: Any, row: Any) -> None:
        was_there = key in self.rows
        super()._apply(key, row)
        key_bytes, timestamp, number = key
        if row is None:
            places = self._of_key.get(key_bytes, [])
            if places and places[0] == (timestamp, number):
                del places[0]
            elif (timestamp, number) in places:
                places.remove((timestamp, number))
            if not places:
                self._of_key.pop(key_bytes, None)
            return
        if was_there:
            return
        self._count = max(self._count, number + 1)
        insort(self._of_key.setdefault(key_bytes, []), (timestamp, number))
        heappush(self._oldest, (timestamp, number, key_bytes))

    def upgraded(self, row: Row) -> Row:
        """The row, found by its key's bytes."""
        (packed, *place), kept = row
        return (self._key.bytes_of_packed(packed), *place), kept

    def owner(self, row_key: Any) -> bytes | None:
        """That of the record's key."""
        return self._key.placed_by(row_key[0])

    def key_bytes(self, key: Any) -> bytes:
        """The bytes of a key."""
        return self._key.key_bytes(key)

    def put(self, key_bytes: bytes, value: Any, timestamp: int) -> None:
        """Keep a record."""
        self._set((key_bytes, timestamp, self._count), packed_in(self._value, value))

    def fetch(self, key_bytes: bytes, start: int, end: int, time: int) -> list[tuple[int, Any]]:
        """Timestamp and value of a key's records from `start` to `end`, both included, that retention keeps."""
        places = self._of_key.get(key_bytes)
        if places is None:
            return []
        first = bisect_left(places, (max(start, time - self._retention_ms + 1),))
        last = bisect_right(places, (end, self._count))
        rows, unpack = self.rows, self._value.unpack
        return [(time, unpack(rows[key_bytes, time, number])) for time, number in places[first:last]]

    def expire(self, time: int) -> None:
        """Remove records whose retention has passed."""
        while self._oldest and self._oldest[0][0] <= time - self._retention_ms:
            timestamp, number, key_bytes = heappop(self._oldest)
            self._set((key_bytes, timestamp, number), None)


Place = tuple[int, bool, bytes]
"""Timestamp, whether it is the left side's, and the key's bytes: records are in the order of their places."""


class Unjoined(NamedTuple):
    """Records of one side with one key and timestamp that have not been joined."""

    timestamp: int
    is_left: bool
    key: Any
    values: list[Any]


class UnjoinedRecords(IndexedStore):
    """Records of both sides that an outer join may have to send alone, by timestamp, the right side's first.

    A row's key has whether it is the right side's, as in states that exist already.
    """

    def __init__(self, name: str, key: Format, left: Format, right: Format) -> None:
        super().__init__(name)
        self._key, self._left, self._right = key, left, right
        self._places: list[Place] = []

    def formats(self) -> tuple[Format, ...]:
        """The formats of keys and of both sides' values."""
        return self._key, self._left, self._right

    def _added(self, key: Any) -> None:
        insort(self._places, _swapped(key))

    def _removed(self, key: Any) -> None:
        del self._places[bisect_left(self._places, _swapped(key))]

    def upgraded(self, row: Row) -> Row:
        """The row, found by its key's bytes."""
        (timestamp, is_right, packed), kept = row
        return (timestamp, is_right, self._key.bytes_of_packed(packed)), kept

    def owner(self, row_key: Any) -> bytes | None:
        """That of the records' key."""
        return self._key.placed_by(row_key[2])

    def add(self, is_left: bool, key_bytes: bytes, value: Any, timestamp: int) -> None:
        """Keep a record that has no partner yet."""
        place = timestamp, not is_left, key_bytes
        packed = packed_in(self._format(is_left), value)
        self._set(place, (*self.rows.get(place, ()), packed))

    def joined(self, is_left: bool, key_bytes: bytes, timestamp: int) -> None:
        """Remove these records, because they were joined."""
        place = timestamp, not is_left, key_bytes
        if place in self.rows:
            self._set(place, None)

    def places(self) -> Iterator[Place]:
        """The places of all records, in order.

        During the iteration the caller may remove the records of the current place only.
        """
        at = 0
        while at < len(self._places):
            place = self._places[at]
            yield place
            if _swapped(place) in self.rows:
                at += 1

    def count(self, place: Place) -> int:
        """How many records a place has."""
        return len(self.rows[_swapped(place)])

    def take(self, place: Place) -> Unjoined:
        """Remove and return the records of a place."""
        timestamp, is_left, key_bytes = place
        format_ = self._format(is_left)
        values = [format_.unpack(one) for one in self.rows[_swapped(place)]]
        self._set(_swapped(place), None)
        return Unjoined(timestamp, is_left, self._key.read(key_bytes), values)

    def _format(self, is_left: bool) -> Format:
        return self._left if is_left else self._right


def _swapped(place: Place) -> Place:
    """A place with the other side's flag: of a row's key, or of a place for a row."""
    timestamp, flag, key_bytes = place
    return timestamp, not flag, key_bytes


class SubscriptionStore(IndexedStore):
    """Which left rows of a foreign-key join refer to a right row, each with its digest."""

    def __init__(self, name: str, right_key: Format, left_key: Format) -> None:
        super().__init__(name)
        self._right_key, self._left_key = right_key, left_key
        self._of: dict[bytes, list[bytes]] = {}

    def formats(self) -> tuple[Format, ...]:
        """The formats of both tables' keys."""
        return self._right_key, self._left_key

    def _added(self, key: Any) -> None:
        right, left = key
        insort(self._of.setdefault(right, []), left)

    def _removed(self, key: Any) -> None:
        right, left = key
        lefts = self._of[right]
        del lefts[bisect_left(lefts, left)]
        if not lefts:
            del self._of[right]

    def upgraded(self, row: Row) -> Row:
        """The row, found by the bytes of both keys."""
        (right, left), digest = row
        return (self._right_key.bytes_of_packed(right), self._left_key.bytes_of_packed(left)), digest

    def owner(self, row_key: Any) -> bytes | None:
        """That of the right row's key."""
        return self._right_key.placed_by(row_key[0])

    def put(self, right: Any, left: Any, digest: bytes | None) -> None:
        """Keep the digest of a left row that refers to this right row; None removes it."""
        self._set((self._right_key.key_bytes(right), self._left_key.key_bytes(left)), digest)

    def of(self, right: Any) -> Iterator[tuple[Any, bytes]]:
        """Key and digest of the left rows that refer to a right row, by their keys' bytes."""
        key_bytes = self._right_key.key_bytes(right)
        for left in list(self._of.get(key_bytes, ())):
            yield self._left_key.read(left), self.rows[key_bytes, left]


class HeldRecords(IndexedStore):
    """Records that wait, by timestamp and then as they came."""

    def __init__(self, name: str, key: Format, value: Format) -> None:
        super().__init__(name)
        self._key, self._value = key, value
        self._places: list[tuple[int, int]] = []
        self._count = 0

    def formats(self) -> tuple[Format, ...]:
        """The formats of keys and values."""
        return self._key, self._value

    def _added(self, key: Any) -> None:
        insort(self._places, key)
        self._count = max(self._count, key[1] + 1)

    def _removed(self, key: Any) -> None:
        self._places.remove(key)

    def upgraded(self, row: Row) -> Row:
        """The row, with its key's bytes."""
        place, kept = row
        if kept is None or kept[0] is None:
            return row
        packed, *rest = kept
        return place, (self._key.bytes_of_packed(packed), *rest)

    def owner(self, row_key: Any) -> bytes | None:
        """That of the record's key."""
        key_bytes = self.rows[row_key][0]
        return None if key_bytes is None else self._key.placed_by(key_bytes)

    def put(self, record: Record) -> None:
        """Let a record wait."""
        row = (
            self._key.encode(record.key),
            packed_in(self._value, record.value),
            plain_headers(record.headers),
        )
        self._set((record.timestamp, self._count), row)

    def take_until(self, timestamp: int) -> Iterator[Record]:
        """Remove and return the records up to a time."""
        while self._places and self._places[0][0] <= timestamp:
            place = self._places[0]
            key_bytes, value, headers = self.rows[place]
            self._set(place, None)
            yield Record(self._key.decode(key_bytes), self._value.unpack(value), place[0], headers)
