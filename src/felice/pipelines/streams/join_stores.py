"""State of joins: recent records of a stream, records without a partner, records that wait, and foreign keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Record
from felice.pipelines.streams.stores import IndexedStore, Store


class RecentRecords(Store):
    """One side's records by key and timestamp, for `retention_ms`. Equal ones are all kept, in order."""

    def __init__(self, name: str, key: Format, value: Format, retention_ms: int) -> None:
        super().__init__(name)
        self._key, self._value = key, value
        self._retention_ms = retention_ms
        self._of_key: dict[Any, list[tuple[int, int]]] = {}
        self._oldest: list[tuple[int, int, str, Any]] = []
        self._count = 0

    def _apply(self, key: Any, row: Any) -> None:
        super()._apply(key, row)
        packed, timestamp, number = key
        if row is None:
            places = self._of_key.get(packed, [])
            if (timestamp, number) in places:
                places.remove((timestamp, number))
            if not places:
                self._of_key.pop(packed, None)
            return
        self._count = max(self._count, number + 1)
        insort(self._of_key.setdefault(packed, []), (timestamp, number))
        # Records of several partitions may have one number, and keys of one store may differ in type.
        heappush(self._oldest, (timestamp, number, repr(packed), packed))

    def owner(self, row_key: Any) -> bytes | None:
        """That of the record's key."""
        return self._key.placed_by(self._key.unpack(row_key[0]))

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        """Keep a record."""
        self._set((self._key.pack(key), timestamp, self._count), self._value.pack(value))

    def fetch(self, key: Any, start: int, end: int, time: int) -> Iterator[tuple[int, Any]]:
        """Timestamp and value of a key's records from `start` to `end`, both included, that retention keeps."""
        packed = self._key.pack(key)
        places = self._of_key.get(packed, [])
        first = bisect_left(places, (max(start, time - self._retention_ms + 1),))
        last = bisect_right(places, (end, self._count))
        for timestamp, number in places[first:last]:
            yield timestamp, self._value.unpack(self.rows[packed, timestamp, number])

    def expire(self, time: int) -> None:
        """Remove records whose retention has passed."""
        while self._oldest and self._oldest[0][0] <= time - self._retention_ms:
            timestamp, number, _, packed = heappop(self._oldest)
            self._set((packed, timestamp, number), None)


Place = tuple[int, bool, Any]
"""Timestamp, whether it is the right side's, and packed key."""


def _in_order(place: Place) -> tuple[int, bool, str]:
    """By time, the left side's first. Keys of one store may differ in type; what counts is that the order is always the
    same.
    """
    return place[0], place[1], repr(place[2])


class Unjoined(NamedTuple):
    """Records of one side with one key and timestamp that have not been joined."""

    timestamp: int
    is_left: bool
    key: Any
    values: list[Any]


class UnjoinedRecords(IndexedStore):
    """Records of both sides that an outer join may have to send alone, by timestamp, the left side's first."""

    def __init__(self, name: str, key: Format, left: Format, right: Format) -> None:
        super().__init__(name)
        self._key, self._left, self._right = key, left, right
        self._places: list[Place] = []

    def _added(self, key: Any) -> None:
        insort(self._places, key, key=_in_order)

    def _removed(self, key: Any) -> None:
        del self._places[bisect_left(self._places, _in_order(key), key=_in_order)]

    def owner(self, row_key: Any) -> bytes | None:
        """That of the records' key."""
        return self._key.placed_by(self._key.unpack(row_key[2]))

    def add(self, is_left: bool, key: Any, value: Any, timestamp: int) -> None:
        """Keep a record that has no partner yet."""
        place = timestamp, not is_left, self._key.pack(key)
        packed = self._format(is_left).pack(value)
        self._set(place, (*self.rows.get(place, ()), packed))

    def joined(self, is_left: bool, key: Any, timestamp: int) -> None:
        """Remove these records, because they were joined."""
        place = timestamp, not is_left, self._key.pack(key)
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
            if place in self.rows:
                at += 1

    def take(self, place: Place) -> Unjoined:
        """Remove and return the records of a place."""
        timestamp, is_right, packed = place
        format_ = self._format(not is_right)
        values = [format_.unpack(one) for one in self.rows[place]]
        self._set(place, None)
        return Unjoined(timestamp, not is_right, self._key.unpack(packed), values)

    def _format(self, is_left: bool) -> Format:
        return self._left if is_left else self._right


class SubscriptionStore(IndexedStore):
    """Which left rows of a foreign-key join refer to a right row, each with its digest."""

    def __init__(self, name: str, right_key: Format, left_key: Format) -> None:
        super().__init__(name)
        self._right_key, self._left_key = right_key, left_key
        self._of: dict[Any, list[tuple[bytes, Any]]] = {}

    def _added(self, key: Any) -> None:
        right, left = key
        insort(self._of.setdefault(right, []), self._place(left), key=lambda one: one[0])

    def _removed(self, key: Any) -> None:
        right, left = key
        self._of[right].remove(self._place(left))
        if not self._of[right]:
            del self._of[right]

    def _place(self, left: Any) -> tuple[bytes, Any]:
        return self._left_key.write(self._left_key.unpack(left)), left

    def owner(self, row_key: Any) -> bytes | None:
        """That of the right row's key."""
        return self._right_key.placed_by(self._right_key.unpack(row_key[0]))

    def put(self, right: Any, left: Any, digest: bytes | None) -> None:
        """Keep the digest of a left row that refers to this right row; None removes it."""
        self._set((self._right_key.pack(right), self._left_key.pack(left)), digest)

    def of(self, right: Any) -> Iterator[tuple[Any, bytes]]:
        """Key and digest of the left rows that refer to a right row, by their keys' bytes."""
        packed = self._right_key.pack(right)
        for _, left in list(self._of.get(packed, ())):
            yield self._left_key.unpack(left), self.rows[packed, left]


class HeldRecords(IndexedStore):
    """Records that wait, by timestamp and then as they came."""

    def __init__(self, name: str, key: Format, value: Format) -> None:
        super().__init__(name)
        self._key, self._value = key, value
        self._places: list[tuple[int, int]] = []
        self._count = 0

    def _added(self, key: Any) -> None:
        insort(self._places, key)
        self._count = max(self._count, key[1] + 1)

    def _removed(self, key: Any) -> None:
        self._places.remove(key)

    def owner(self, row_key: Any) -> bytes | None:
        """That of the record's key."""
        return self._key.placed_by(self._key.unpack(self.rows[row_key][0]))

    def put(self, record: Record) -> None:
        """Let a record wait."""
        key = None if record.key is None else self._key.pack(record.key)
        row = key, self._value.pack(record.value), record.headers
        self._set((record.timestamp, self._count), row)

    def take_until(self, timestamp: int) -> Iterator[Record]:
        """Remove and return the records up to a time."""
        while self._places and self._places[0][0] <= timestamp:
            place = self._places[0]
            key, value, headers = self.rows[place]
            self._set(place, None)
            unpacked = None if key is None else self._key.unpack(key)
            yield Record(unpacked, self._value.unpack(value), place[0], headers)
