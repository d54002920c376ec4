"""Maps timestamps to offsets: `<base offset>.timeindex`, 12 bytes an entry.

An entry holds int64 timestamp (the largest in the segment so far) and int32
relative offset (the last offset of the batch that has it). Timestamps strictly
increase. An entry is written along with each of the offset index, and once more when
the segment is closed, so that the last entry has a closed segment's largest timestamp.
"""

from __future__ import annotations

from array import array
from struct import Struct

from felice.log.index_file import IndexFile


class TimeIndex(IndexFile):
    """Keys are timestamps, values are relative offsets."""

    layout = Struct(">qi")
    column_types = ("q", "i")
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

    def truncate(self, offset: int) -> None:
        """Removes entries of batches that end at or after `offset`."""
        _, offsets = self._columns()
        kept = self._count
        while kept and offsets[kept - 1] >= offset - self.base_offset:
            kept -= 1
        self.truncate_entries(kept)
