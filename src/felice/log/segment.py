"""One segment of a partition's log: `<base offset>.log` and its indexes.

Keeps true: batches follow each other without gaps in the file, offsets increase from
            batch to batch, and every offset is less than 2^31 above the base offset.
            `size_bytes` counts whole batches only. `repair` cuts off what a failed
            write left after them.
            A segment without batches may have no files yet; its first append
            creates them.

How: one write appends a batch. A lookup takes a position from the offset index and
scans batch headers from there. Each index entry is checked against the batch it
points to, so that a damaged index is rebuilt and never makes a reader skip records.

Leaves: epochs, producers and clients.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from felice.env import Buffer, File, FileSlice
from felice.log import batch_places
from felice.log.batch_places import MAX_RELATIVE_OFFSET, BatchPlace
from felice.log.files import OpenFiles
from felice.log.indexes import OffsetIndex, TimeIndex
from felice.log.transaction_index import TransactionIndex
from felice.records.batch import HEADER_SIZE, BatchHeader

_log = logging.getLogger("felice.log")

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

NO_TIMESTAMP = -1

# Distance in bytes of the index entries that a rebuild writes.
_REBUILT_INTERVAL_BYTES = 4096
# Number of batch boundaries remembered for readers that continue where they stopped.
_BOUNDARIES_REMEMBERED = 64


class TimestampAndOffset(NamedTuple):
    """A timestamp and the last offset of the batch that has it."""

    timestamp: int
    offset: int


class Segment:
    """One segment. See the module."""

    __slots__ = (
        "_boundaries",
        "_bytes_since_index",
        "_files",
        "_first_timestamp",
        "_largest",
        "_suffix",
        "base_offset",
        "created_ms",
        "directory",
        "has_files",
        "log_path",
        "next_offset",
        "offset_index",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: Path,
        base_offset: int,
        *,
        index_bytes: int,
        sealed: bool,
        suffix: str = "",
    ) -> None:
        self._files = files
        self.has_files = True
        self._suffix = suffix
        self.directory = directory
        self.base_offset = base_offset
        self.log_path = self._path(LOG_SUFFIX)
        self.offset_index = OffsetIndex(
            files, self._path(OFFSET_INDEX_SUFFIX), base_offset, max_bytes=index_bytes, sealed=sealed
        )
        self.time_index = TimeIndex(
            files, self._path(TIME_INDEX_SUFFIX), base_offset, max_bytes=index_bytes, sealed=sealed
        )
        self.transaction_index = TransactionIndex(files, self._path(TRANSACTION_INDEX_SUFFIX))
        self.size_bytes = 0
        self.next_offset = base_offset
        self.created_ms = 0
        self._bytes_since_index = 0
        self._first_timestamp: int | None = None
        self._largest: TimestampAndOffset | None = None
        self._boundaries: dict[int, int] = {}

    def _path(self, suffix: str) -> Path:
        return self.directory / f"{self.base_offset:020d}{suffix}{self._suffix}"

    @classmethod
    def create(
        cls,
        files: OpenFiles,
        directory: Path,
        base_offset: int,
        *,
        index_bytes: int,
        created_ms: int,
        suffix: str = "",
        with_files: bool = True,
    ) -> Segment:
        """Creates an empty, active segment. Its files are created now, as in Kafka, or with its first batch."""
        segment = cls(files, directory, base_offset, index_bytes=index_bytes, sealed=False, suffix=suffix)
        segment.created_ms = created_ms
        segment._largest = TimestampAndOffset(NO_TIMESTAMP, base_offset)
        segment.has_files = False
        if with_files:
            segment._make_files()
        return segment

    def _make_files(self) -> None:
        try:
            self._files.get(self.log_path, create=True).truncate(0)
            self.offset_index.clear()
            self.time_index.clear()
            self.transaction_index.clear()
        except OSError:
            self.remove_files()
            raise
        self.has_files = True

    @classmethod
    def open(
        cls, files: OpenFiles, directory: Path, base_offset: int, *, index_bytes: int, sealed: bool
    ) -> Segment:
        """Opens a segment on disk. `locate_end` or `recovery` must find its end before it is used."""
        segment = cls(files, directory, base_offset, index_bytes=index_bytes, sealed=sealed)
        segment.size_bytes = files.disk.size(segment.log_path)
        segment.created_ms = files.disk.mtime_ms(segment.log_path)
        return segment

    # -- appending -------------------------------------------------------------------------------------

    def append(self, data: Buffer, batches: Sequence[BatchHeader], index_interval_bytes: int) -> None:
        """Writes the batches in `data`, whose headers are `batches`. Raises OSError; then call `repair`."""
        size_bytes, next_offset = self.size_bytes, self.next_offset
        if not self.has_files:
            self._make_files()
        try:
            self._files.get(self.log_path).pwrite(data, size_bytes)
            for header in batches:
                self.note(header, self.size_bytes, index_interval_bytes)
        except OSError:
            # The index could not be loaded. `note` may have counted some of these batches already.
            self.size_bytes, self.next_offset = size_bytes, next_offset
            raise

    def note(self, header: BatchHeader, position: int, index_interval_bytes: int) -> None:
        """Takes account of a batch that was written at `position`, the end of the segment so far."""
        last_offset = header.base_offset + header.last_offset_delta
        largest = self._largest or self.largest
        if header.max_timestamp > largest[0]:
            largest = tuple.__new__(TimestampAndOffset, (header.max_timestamp, last_offset))
            self._largest = largest
        if position == 0:
            self._first_timestamp = header.max_timestamp
        if self._bytes_since_index > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append_if_later(*largest)
            self._bytes_since_index = 0
        self._bytes_since_index += header.size_bytes
        self.size_bytes = position + header.size_bytes
        self.next_offset = last_offset + 1

    def repair(self) -> None:
        """Cuts off what a failed write left after the last whole batch."""
        if self.has_files:
            self._files.get(self.log_path).truncate(self.size_bytes)

    def has_room_for(self, last_offset: int) -> bool:
        """Whether the indexes can take another entry, one for `last_offset`."""
        return (
            last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and not self.offset_index.is_full
            and not self.time_index.is_full
        )

    def seal(self) -> None:
        """Closes the segment for appends. Writes the indexes completely and frees their memory."""
        self.time_index.append_if_later(*self.largest)
        self.offset_index.seal()
        self.time_index.seal()

    def write_indexes(self) -> None:
        """Completes the index files, as at a clean stop. Appends may follow."""
        self.time_index.append_if_later(*self.largest)
        self.offset_index.write_pending()
        self.time_index.write_pending()

    # -- timestamps ------------------------------------------------------------------------------------

    @property
    def largest(self) -> TimestampAndOffset:
        """The largest timestamp, and the last offset of the first batch that has it; (-1, base offset) if none."""
        if self._largest is None:
            entry = self.time_index.last_entry() or (NO_TIMESTAMP, self.base_offset)
            self._largest = TimestampAndOffset(*entry)
        return self._largest

    @property
    def largest_timestamp_or_mtime(self) -> int:
        """The timestamp that retention and min.compaction.lag.ms use, in milliseconds.

        Records without timestamps are as old as their file.
        """
        largest = self.largest.timestamp
        if largest >= 0:
            return largest
        return self._files.disk.mtime_ms(self.log_path) if self.has_files else self.created_ms

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch; None if there is no batch."""
        if self._first_timestamp is None and self.size_bytes:
            self._first_timestamp = next(self.headers(0)).max_timestamp
        return self._first_timestamp

    def age_ms(self, now_ms: int, timestamp: int) -> int:
        """The segment's age, by record timestamps if the records have them."""
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp
        return timestamp - first if first is not None and first >= 0 else now_ms - self.created_ms

    # -- scanning --------------------------------------------------------------------------------------

    def places(self, position: int, end: int) -> Iterator[BatchPlace]:
        """Positions and offsets of the batches in `position..end`. Raises `CorruptLog` at bytes that are none."""
        if position >= end:
            return iter(())
        return batch_places.scan(
            self._files.get(self.log_path), self.log_path, self.base_offset, position, end
        )

    def headers(self, position: int) -> Iterator[BatchHeader]:
        """Headers of the batches from `position` to the end, each with its position in the file."""
        for place in self.places(position, self.size_bytes):
            yield self.header_at(place.position)

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch at `position`, which must be the start of a batch."""
        data = self._files.get(self.log_path).pread(HEADER_SIZE, position)
        return BatchHeader.parse(data)._replace(position=position)

    def batch_at(self, header: BatchHeader) -> bytes:
        """All bytes of a batch that `headers` returned."""
        return self._files.get(self.log_path).pread(header.size_bytes, header.position)

    # -- finding ---------------------------------------------------------------------------------------

    def position_of(self, offset: int) -> int:
        """Position of the first batch that ends at or after `offset`; the segment's size if there is none."""
        if offset >= self.next_offset:
            return self.size_bytes
        known = self._boundaries.get(offset)
        if known is not None:
            return known
        start = self._checked(self.offset_index.floor(offset - self.base_offset))
        if start is None:
            self.rebuild_indexes()
            return self.position_of(offset)
        for place in self.places(start, self.size_bytes):
            if place.last_offset >= offset:
                self._remember(offset, place.position)
                return place.position
        return self.size_bytes

    def _checked(self, entry: tuple[int, int] | None) -> int | None:
        """The position in an offset index entry, or None if the log contradicts the entry."""
        if entry is None:
            return 0
        relative_offset, position = entry
        if 0 <= position <= self.size_bytes - HEADER_SIZE:
            last_offset = batch_places.last_offset_at(self._files.get(self.log_path), position)
            if last_offset == self.base_offset + relative_offset:
                return position
        return None

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one: bool) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, all below `end_offset`; None if there is none."""
        start = self.position_of(offset)
        end = self.position_of(end_offset)
        if end - start > max_bytes:
            end = self._last_boundary(start, start + max_bytes, end, min_one)
        elif end == self.size_bytes:
            self._remember(self.next_offset, end)
        if end <= start:
            return None
        return FileSlice(self._files.get(self.log_path), start, end - start)

    def _last_boundary(self, start: int, wanted: int, end: int, min_one: bool) -> int:
        """The last batch boundary not above `wanted`; the end of the first batch if that alone is larger."""
        boundary = self._checked(self.offset_index.floor_by_value(wanted))
        if boundary is None:
            self.rebuild_indexes()
            return self._last_boundary(start, wanted, end, min_one)
        for place in self.places(max(start, boundary), end):
            if place.position + place.size_bytes > wanted:
                if place.position == start and min_one:
                    self._remember(place.last_offset + 1, start + place.size_bytes)
                    return start + place.size_bytes
                self._remember(place.base_offset, place.position)
                return place.position
        return end

    def _remember(self, offset: int, position: int) -> None:
        if len(self._boundaries) >= _BOUNDARIES_REMEMBERED:
            del self._boundaries[next(iter(self._boundaries))]
        self._boundaries[offset] = position

    def headers_since(self, timestamp: int) -> Iterator[BatchHeader]:
        """Headers of batches that may hold records at or after `timestamp`, in log order."""
        entry = self.time_index.entry_before(timestamp)
        if entry is not None and not self._holds(entry):
            self.rebuild_indexes()
            entry = self.time_index.entry_before(timestamp)
        start = self.position_of(entry[1]) if entry else 0
        return (header for header in self.headers(start) if header.max_timestamp >= timestamp)

    def _holds(self, entry: tuple[int, int]) -> bool:
        """Whether the log has the batch that a time index entry describes."""
        timestamp, last_offset = entry
        position = self.position_of(last_offset)
        if position >= self.size_bytes:
            return False
        header = self.header_at(position)
        return header.last_offset == last_offset and header.max_timestamp == timestamp

    # -- opening and repairing -------------------------------------------------------------------------

    def index_fault(self) -> str | None:
        """Why an index must be rebuilt before use, or None. Checks only sizes and last entries."""
        for index in (self.offset_index, self.time_index):
            if (fault := index.fault()) is not None:
                return f"{index.path}: {fault}"
        if self._checked(self.offset_index.last()) is None:
            return f"{self.offset_index.path}: its last entry points to no batch"
        return None

    def locate_end(self) -> None:
        """Finds next offset and largest timestamp of a whole segment, scanning from its last index entry."""
        start = self._checked(self.offset_index.last()) or 0
        self._bytes_since_index = self.size_bytes - start
        largest = self.largest
        for header in self.headers(start):
            self.next_offset = header.next_offset
            if header.max_timestamp > largest.timestamp:
                largest = TimestampAndOffset(header.max_timestamp, header.last_offset)
        self._largest = largest

    def largest_holds(self) -> bool:
        """Whether a batch has the largest timestamp, which was taken from the time index."""
        return self.largest.timestamp < 0 or self._holds(self.largest)

    def rebuild_indexes(self, index_interval_bytes: int = _REBUILT_INTERVAL_BYTES) -> None:
        """Rebuilds the offset and time index from the batch headers."""
        _log.warning("the indexes of a segment are rebuilt", extra={"path": str(self.log_path)})
        was_sealed = self.offset_index.sealed
        end = self.size_bytes
        self.reset()
        for place in self.places(0, end):
            self.note(self.header_at(place.position), place.position, index_interval_bytes)
        if was_sealed:
            self.seal()
        else:
            self.write_indexes()

    def reset(self) -> None:
        """Forgets everything derived from the log's bytes, on disk too. `note` must add each batch again."""
        self.offset_index.reset()
        self.time_index.reset()
        self.size_bytes = 0
        self.next_offset = self.base_offset
        self._bytes_since_index = 0
        self._first_timestamp = None
        self._largest = TimestampAndOffset(NO_TIMESTAMP, self.base_offset)
        self._boundaries.clear()

    def truncate(self, offset: int) -> None:
        """Removes every batch that contains `offset` or lies above it."""
        position = self.position_of(offset)
        self._boundaries.clear()
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.transaction_index.truncate(offset)
        self._files.get(self.log_path).truncate(position)
        self.size_bytes = position
        self.next_offset = self.base_offset
        self._first_timestamp = self._largest = None
        self.locate_end()

    def unseal(self, index_bytes: int) -> None:
        """Makes the segment the active one again."""
        self.offset_index.unseal(index_bytes)
        self.time_index.unseal(index_bytes)

    # -- files -----------------------------------------------------------------------------------------

    def files(self) -> list[Path]:
        """The files that exist, the log first."""
        return [path for suffix in SUFFIXES if self._files.disk.exists(path := self._path(suffix))]

    @property
    def index_bytes(self) -> int:
        """Size in bytes of the larger index."""
        return max(index.count * index.layout.size for index in (self.offset_index, self.time_index))

    def log_file(self) -> File:
        """The open log file, opened if necessary."""
        return self._files.get(self.log_path)

    def open_files(self, *, with_indexes: bool) -> list[File]:
        """The files that a flush must sync. Those of active indexes are optional: a recovery rebuilds them."""
        if not self.has_files:
            return []
        paths = self.files() if with_indexes else [self.log_path]
        return [self._files.get(path) for path in paths]

    def remove_files(self) -> None:
        """Deletes all files of the segment. Raises OSError."""
        for path in self.files():
            self._files.forget(path)
            self._files.disk.remove(path)

    def change_suffix(self, suffix: str) -> None:
        """Renames the files, the log last: while the log has its old name, the other files do not count."""
        old = self.files()
        self._suffix = suffix
        for path in reversed(old):
            self._files.forget(path)
            self._files.disk.rename(path, path.with_name(_kind_of(path) + suffix))
        self.log_path = self._path(LOG_SUFFIX)
        self.offset_index.path = self._path(OFFSET_INDEX_SUFFIX)
        self.time_index.path = self._path(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self._path(TRANSACTION_INDEX_SUFFIX)

    def mark_deleted(self, *, log_last: bool = False) -> list[Path]:
        """Renames the files to `.deleted`, so that they stay deleted after a crash. Reads in progress continue."""
        renamed = []
        for path in reversed(self.files()) if log_last else self.files():
            target = path.with_name(path.name + DELETED_SUFFIX)
            self._files.disk.rename(path, target)
            self._files.forget(path)
            renamed.append(target)
        return renamed


def _kind_of(path: Path) -> str:
    """The file's name without the suffix of an unfinished file."""
    return path.name.removesuffix(CLEANED_SUFFIX).removesuffix(SWAP_SUFFIX)
