"""A table that keeps the history of its rows, so that a stream can look up earlier values (KIP-889, KIP-914)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Timestamped
from felice.pipelines.streams.stores import NEVER, KeyedStore, in_order, packed_in

Version = tuple[int, Any]
"""From when on, and the packed value; None if the row was deleted then."""


class VersionedStore(KeyedStore):
    """The versions of each key, by their timestamps, for `history_ms` of stream time after they were replaced.

    The store's stream time is the greatest timestamp that was put.
    """

    def __init__(self, name: str, key: Format, value: Format, history_ms: int) -> None:
        super().__init__(name, key, value)
        self._history_ms = history_ms
        self._time = NEVER
        self._deleted: list[tuple[int, bytes]] = []

    def _apply(self, key: Any, row: Any) -> None:
        super()._apply(key, row)
        if row is not None:
            # The newest version always stays, because no version has replaced it.
            self._time = max(self._time, row[-1][0])
            if row[-1][1] is None:
                heappush(self._deleted, (row[-1][0], key))

    def get(self, key: Any) -> Timestamped | None:
        """The row of a key now."""
        versions: tuple[Version, ...] = self.rows.get(self._key.key_bytes(key), ())
        return self._row(versions[-1]) if versions else None

    def get_at(self, key: Any, timestamp: int) -> Timestamped | None:
        """The row of a key at a time. For a time before the history, only a row that has not changed since is known."""
        versions: tuple[Version, ...] = self.rows.get(self._key.key_bytes(key), ())
        place = bisect_right(versions, timestamp, key=lambda version: version[0])
        is_beyond = timestamp < self._time - self._history_ms and place < len(versions)
        return self._row(versions[place - 1]) if place and not is_beyond else None

    def put(self, key: Any, value: Any, timestamp: int) -> bool | None:
        """Set the value of a key from a time on; None deletes it.

        Returns whether this is now the key's latest version; None if the time is before the history, so that the value
        is not kept.
        """
        if timestamp < self._time - self._history_ms:
            return None
        row_key = self._key.key_bytes(key)
        versions = list(self.rows.get(row_key, ()))
        place = bisect_left(versions, timestamp, key=lambda version: version[0])
        replaces = place < len(versions) and versions[place][0] == timestamp
        versions[place : place + replaces] = [
            (timestamp, None if value is None else packed_in(self._value, value))
        ]
        is_latest = place == len(versions) - 1
        time = max(self._time, timestamp)
        self._set(row_key, self._kept(versions, time))
        self._expire(time)
        return is_latest

    def items(self) -> Iterator[tuple[Any, Timestamped]]:
        """All rows as they are now."""
        for row_key, versions in in_order(self.rows):
            if (row := self._row(versions[-1])) is not None:
                yield self._key.read(row_key), row

    def _row(self, version: Version) -> Timestamped | None:
        timestamp, packed = version
        return None if packed is None else Timestamped(self._value.unpack(packed), timestamp)

    def _kept(self, versions: list[Version], time: int) -> tuple[Version, ...] | None:
        """The versions without those replaced before the history begins, and without leading deletions."""
        begin = time - self._history_ms
        while len(versions) > 1 and versions[1][0] <= begin:
            versions.pop(0)
        while versions and versions[0][1] is None and versions[0][0] <= begin:
            versions.pop(0)
        return tuple(versions) or None

    def _expire(self, time: int) -> None:
        while self._deleted and self._deleted[0][0] <= time - self._history_ms:
            _, row_key = heappop(self._deleted)
            versions = self.rows.get(row_key, ())
            if versions and versions[-1][1] is None and versions[-1][0] <= time - self._history_ms:
                self._set(row_key, None)
