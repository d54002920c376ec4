"""Maps offsets to positions: `<base offset>.index`, 8 bytes an entry.

An entry holds int32 relative offset (the *last* offset of a batch, minus the
segment's base offset) and int32 position (where that batch begins in the log).
Both columns increase. There is one entry every `index.interval.bytes`; the reader
scans batch headers from the entry it found.
"""

from __future__ import annotations

from struct import Struct

from felice.log.index_file import IndexFile


class OffsetIndex(IndexFile):
    """Keys are relative offsets, values are positions."""

    layout = Struct(">ii")
    column_types = ("i", "i")

    __slots__ = ()

    def append(self, last_offset: int, position: int) -> None:
        """Appends an entry for the batch at `position` that ends with `last_offset`."""
        self._append(last_offset - self.base_offset, position)

    def truncate(self, offset: int) -> None:
        """Removes entries of batches that end at or after `offset`."""
        keys, _ = self._columns()
        kept = self._count
        while kept and keys[kept - 1] >= offset - self.base_offset:
            kept -= 1
        self.truncate_entries(kept)
