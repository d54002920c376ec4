"""Aborted transactions of a segment: `<base offset>.txnindex`, 34 bytes an entry.

An entry holds int16 version (0), int64 producer id, int64 first offset, int64 last
offset (that of the ABORT marker) and int64 last stable offset at that time. It
belongs to the segment that holds the marker. Most segments have no entry, and then no
file. Entries are in the order of their markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from felice.env import File
from felice.log.files import OpenFiles

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """One entry. `last_offset` is the offset of the ABORT marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The index of one segment. Created without a file; the first entry creates it."""

    __slots__ = ("_files", "_size_bytes", "path")

    def __init__(self, files: OpenFiles, path: Path) -> None:
        self.path = path
        self._files = files
        self._size_bytes = files.size(path) or 0

    def append(self, aborted: AbortedTransaction) -> None:
        """Writes one entry, without a sync. Raises OSError."""
        data = _ENTRY.pack(_VERSION, *aborted)
        # Writing by position overwrites what a failed write left.
        self._files.get(self.path, create=True).pwrite(data, self._size_bytes)
        self._size_bytes += _ENTRY.size

    def entries(self) -> Iterator[AbortedTransaction]:
        """All entries, in the order of their markers."""
        if self._size_bytes:
            data = self._files.get(self.path).pread(self._size_bytes, 0)
            for _, *fields in _ENTRY.iter_unpack(data):
                yield AbortedTransaction(*fields)

    def truncate(self, offset: int) -> None:
        """Removes entries whose marker is at or after `offset`."""
        kept = sum(1 for entry in self.entries() if entry.last_offset < offset)
        self._truncate_bytes(kept * _ENTRY.size)

    def clear(self) -> None:
        """Removes all entries."""
        self._truncate_bytes(0)

    def _truncate_bytes(self, size_bytes: int) -> None:
        if size_bytes < self._size_bytes:
            self._files.get(self.path).truncate(size_bytes)
            self._size_bytes = size_bytes

    def begin_rebuild(self) -> None:
        """Lets appends overwrite the entries in the file, until `end_rebuild`.

        The file is not emptied: if a crash interrupts the rebuild, the next start detects a partly written file as
        wrong, but would believe an empty one.
        """
        self._size_bytes = 0

    def end_rebuild(self) -> File:
        """Ends the file after the rebuilt entries. The caller syncs the returned file."""
        file = self._files.get(self.path, create=True)
        file.truncate(self._size_bytes)
        return file

    def fault(self, base_offset: int) -> str | None:
        """Why the file cannot be a transaction index of its segment, or None."""
        if self._size_bytes % _ENTRY.size:
            return f"its size {self._size_bytes} is no multiple of {_ENTRY.size}"
        if any(entry.last_offset < base_offset for entry in self.entries()):
            return f"it has a marker below the segment's first offset {base_offset}"
        return None
