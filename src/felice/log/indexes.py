"""The two indexes of a segment. Both columns of each increase; offsets are relative to the segment's base offset.

`<base offset>.index` maps offsets to positions, 8 bytes an entry: int32 offset (the *last* of a batch) and int32
position (where that batch begins in the log). There is one entry every `index.interval.bytes`; the reader scans batch
headers from the entry it found.

`<base offset>.timeindex` maps timestamps to offsets, 12 bytes an entry: int64 timestamp (the largest in the segment so
far) and int32 offset (the last of the batch that has it). An entry is written along with each of the offset index, and
once more when the segment is closed, so that the last entry has a closed segment's largest timestamp.
"""

from __future__ import annotations

from array import array
from struct import Struct

from felice.log.index_file import IndexFile


class OffsetIndex(IndexFile):
    """Keys are relative offsets, values are positions."""

    layout = Struct(">ii")
    column_types = ("i", "i")
    offset_column = 0

    __slots__ = ()

    def append(self, last_offset: int, position: int) -> None:
        """Appends an entry for the batch at `position` that ends with `last_offset`."""
        self._append(last_offset - self.base_offset, position)


class TimeIndex(IndexFile):
    """Keys are timestamps, values are relative offsets."""

    layout = Struct(">qi")
    column_types = ("q", "i")
    offset_column = 1
    kept_free = 1

    __slots__ = ()

    def append_if_later(self, timestamp: int, last_offset: int) -> None:
        """Appends an entry if `timestamp` is above that of the last entry."""
        keys = self._keys
        # The index of an active segment, to which every large batch adds an entry, is in memory.
        last = keys[-1:] if isinstance(keys, array) else self.last()
        if timestamp > (last[0] if last else -1):
            self._append(timestamp, last_offset - self.base_offset)

    def entry_before(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry below `timestamp`: no batch up to its offset has a record at or after `timestamp`."""
        entry = self.floor(timestamp - 1)
        return (entry[0], self.base_offset + entry[1]) if entry else None

    def last_entry(self) -> tuple[int, int] | None:
        """(largest timestamp, absolute offset) of the last entry."""
        entry = self.last()
        return (entry[0], self.base_offset + entry[1]) if entry else None
