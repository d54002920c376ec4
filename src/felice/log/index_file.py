"""A sparse index on disk: entries of one width, sorted by key.

Keeps true: the file holds the entries in the order they were appended. Bytes after
            the last whole entry that `count` includes are ignored.

While its segment is active, an index lives in two arrays, loaded at first use, and is
written to the file later: an index can always be rebuilt from its log, so an entry need
not be on disk before its batch is acknowledged. When the segment is closed, the arrays
are dropped and lookups search the file. `OffsetIndex` and `TimeIndex` define the two
columns.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import ClassVar, overload

from felice.log.files import OpenFiles

_log = logging.getLogger("felice.log")

# Entries that may wait in memory. One system call writes them all.
WRITE_BEHIND_ENTRIES = 128


class _FileColumn(Sequence[int]):
    """One column of an index file, read one entry at a time, so that `bisect` can search it."""

    __slots__ = ("_column", "_count", "_index")

    def __init__(self, index: IndexFile, column: int, count: int) -> None:
        self._index = index
        self._column = column
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> int: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[int]: ...
    def __getitem__(self, number: int | slice) -> int | Sequence[int]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(self._count))]
        return self._index.read_entry(number)[self._column]


class IndexFile:
    """Two columns of integers. A subclass defines the layout of an entry and the columns' array types."""

    layout: ClassVar[Struct]
    column_types: ClassVar[tuple[str, str]]
    offset_column: ClassVar[int]  # the column that has the relative offsets: 0 or 1
    kept_free: ClassVar[int] = 0  # entries that only the closing of the segment may append

    __slots__ = (
        "_count",
        "_files",
        "_keys",
        "_max_entries",
        "_sealed",
        "_values",
        "_written",
        "base_offset",
        "is_full",
        "path",
    )

    def __init__(
        self, files: OpenFiles, path: Path, base_offset: int, *, max_bytes: int, sealed: bool
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._sealed = sealed
        self._count = self._written = (self._size_on_disk() or 0) // self.layout.size
        self._limit(max_bytes)
        self._keys: array[int] | _FileColumn | None = None
        self._values: array[int] | _FileColumn | None = None

    def _size_on_disk(self) -> int | None:
        return self._files.size(self.path)

    def _limit(self, max_bytes: int) -> None:
        self._max_entries = max_bytes // self.layout.size - self.kept_free
        self._set_count(self._count)

    def _set_count(self, count: int) -> None:
        self._count = count
        # Whether no entry may be appended before the segment is closed. An attribute, because every append reads it.
        self.is_full = count >= self._max_entries

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of entries, in the file and in memory."""
        return self._count

    def read_entry(self, number: int) -> tuple[int, int]:
        """Reads an entry from the file."""
        data = self._files.get(self.path).pread(self.layout.size, number * self.layout.size)
        key, value = self.layout.unpack(data)
        return key, value

    def entry(self, number: int) -> tuple[int, int]:
        """The entry with this number, from memory or from the file."""
        if self._keys is None and number < self._written:
            return self.read_entry(number)
        keys, values = self._columns()
        return keys[number], values[number]

    def last(self) -> tuple[int, int] | None:
        """The last entry, None if the index is empty."""
        return self.entry(self._count - 1) if self._count else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is not above `key`; None if there is none."""
        keys, values = self._columns()
        found = bisect_right(keys, key) - 1
        return (keys[found], values[found]) if found >= 0 else None

    def floor_by_value(self, value: int) -> tuple[int, int] | None:
        """The last entry whose value is not above `value`; the second column increases too."""
        keys, values = self._columns()
        found = bisect_right(values, value) - 1
        return (keys[found], values[found]) if found >= 0 else None

    def _columns(self) -> tuple[Sequence[int], Sequence[int]]:
        keys, values = self._keys, self._values
        if keys is None or values is None:
            keys, values = self._keys, self._values = self._file_columns() if self._sealed else self._load()
        return keys, values

    def _file_columns(self) -> tuple[_FileColumn, _FileColumn]:
        return _FileColumn(self, 0, self._count), _FileColumn(self, 1, self._count)

    def _load(self) -> tuple[array[int], array[int]]:
        keys, values = array(self.column_types[0]), array(self.column_types[1])
        if self._count:
            data = self._files.get(self.path).pread(self._count * self.layout.size, 0)
            for key, value in self.layout.iter_unpack(data):
                keys.append(key)
                values.append(value)
        return keys, values

    # -- writing ---------------------------------------------------------------------------------------

    def _append(self, key: int, value: int) -> None:
        keys, values = self._keys, self._values
        if not isinstance(keys, array) or not isinstance(values, array):
            assert not self._sealed, f"{self.path} is closed"
            keys, values = self._keys, self._values = self._load()
        keys.append(key)
        values.append(value)
        self._count = count = self._count + 1
        self.is_full = count >= self._max_entries  # as `_set_count`, without a call for each large batch
        if count - self._written >= WRITE_BEHIND_ENTRIES:
            self._write_if_possible()

    def _write_if_possible(self) -> None:
        """Writes entries, but ignores errors: the log is written already, and its append must not fail."""
        try:
            self.write_pending()
        except OSError as error:
            _log.warning(
                "index entries could not be written and stay in memory",
                extra={"path": str(self.path), "reason": str(error)},
            )

    def write_pending(self) -> None:
        """Writes the entries that are only in memory, by position: that overwrites a partial write."""
        if self._written == self._count:
            return
        keys, values = self._columns()
        first = self._written
        data = b"".join(map(self.layout.pack, keys[first:], values[first:]))
        self._files.get(self.path, create=True).pwrite(data, first * self.layout.size)
        self._written = self._count

    def seal(self) -> None:
        """Writes the rest and frees the memory. From now on lookups search the file."""
        self.write_pending()
        self._sealed = True
        self._keys = self._values = None

    def unseal(self, max_bytes: int) -> None:
        """Makes the index writable again: its segment became the active one after a truncation."""
        self._sealed = False
        self._limit(max_bytes)
        self._keys = self._values = None

    def truncate(self, offset: int) -> None:
        """Removes the entries, in memory and on disk, of batches that end at or after `offset`."""
        offsets = self._columns()[self.offset_column]
        count = self._count
        while count and offsets[count - 1] >= offset - self.base_offset:
            count -= 1
        if count < self._count:
            self.write_pending()
            self._files.get(self.path, create=True).truncate(count * self.layout.size)
            self._keys = self._values = None
            self._set_count(count)
            self._written = count

    def clear(self) -> None:
        """Empties the file, even if it does not hold whole entries."""
        self._files.get(self.path, create=True).truncate(0)
        self._keys = self._values = None
        self._set_count(0)
        self._written = 0

    def reset(self) -> None:
        """Empties the file and accepts entries again, as a rebuild needs."""
        self.clear()
        self._sealed = False

    @property
    def sealed(self) -> bool:
        """Whether the segment is closed, so that lookups search the file."""
        return self._sealed

    def fault(self) -> str | None:
        """Why the file cannot be an index of its segment, or None. Costs two small reads."""
        size = self._size_on_disk()
        if size is None:
            return "it is missing"
        if size % self.layout.size:
            return f"its size {size} is no multiple of {self.layout.size}"
        if self._count > 1 and self.entry(self._count - 1)[0] <= self.entry(0)[0]:
            return "its last entry does not lie above its first"
        return None
