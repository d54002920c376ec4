"""Aborted transactions of a segment: `<base offset>.txnindex`, 34 bytes an entry.

An entry holds int16 version (0), int64 producer id, int64 first offset, int64 last
offset (that of the ABORT marker) and int64 last stable offset at that time. It
stands in the segment that holds the marker; most segments have none, and then no
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
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    __slots__ = ("_files", "_size_bytes", "path")

    def __init__(self, files: OpenFiles, path: Path) -> None:
        self.path = path
        self._files = files
        self._size_bytes = files.size(path) or 0

    def append(self, aborted: AbortedTransaction) -> None:
        data = _ENTRY.pack(_VERSION, *aborted)
        # By position: what a failed write left behind is written over.
        self._files.get(self.path, create=True).pwrite(data, self._size_bytes)
        self._size_bytes += _ENTRY.size

    def entries(self) -> Iterator[AbortedTransaction]:
        if self._size_bytes:
            data = self._files.get(self.path).pread(self._size_bytes, 0)
            for _, *fields in _ENTRY.iter_unpack(data):
                yield AbortedTransaction(*fields)

    def truncate(self, offset: int) -> None:
        """Forgets markers at or after `offset`."""
        kept = sum(1 for entry in self.entries() if entry.last_offset < offset)
        self._truncate_bytes(kept * _ENTRY.size)

    def clear(self) -> None:
        self._truncate_bytes(0)

    def _truncate_bytes(self, size_bytes: int) -> None:
        if size_bytes < self._size_bytes:
            self._files.get(self.path).truncate(size_bytes)
            self._size_bytes = size_bytes

    def retell(self) -> None:
        """Takes its entries anew, over the old ones, until `retold`.

        The file is not emptied for it: one that a crash left half told is found wrong again, an empty one is believed.
        """
        self._size_bytes = 0

    def retold(self) -> File:
        """All entries are here again; the file that says so is the caller's to sync."""
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
