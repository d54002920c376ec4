"""Maps times to offsets: the first record at or after a timestamp, and the record with the largest timestamp.

Keeps true: the result is a *record's* timestamp, not a batch's. Only batches that may
            hold the record are read and decompressed, each after a check of its CRC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from felice.dataclass import dataclass
from felice.log.answers import TimestampOffset
from felice.log.errors import CorruptLog
from felice.log.segment import Segment
from felice.records.batch import BatchHeader, verify_crc
from felice.records.reader import read_times


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """The search of one batch for the first record at or after a timestamp.

    It needs nothing of the log, so `find` may run on a thread: the batch may be large once decompressed.
    """

    log_path: Path
    position: int
    data: bytes
    header: BatchHeader
    timestamp: int
    log_start_offset: int

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Equal for searches with equal results."""
        return self.header.base_offset, self.header.crc, self.timestamp, self.log_start_offset

    def find(self) -> TimestampOffset | None:
        """Returns the record found, None if there is none. Raises `CorruptLog` if the CRC does not match."""
        header = self.header._replace(position=0)
        if not verify_crc(self.data, header):
            raise CorruptLog(self.log_path, self.position, "the CRC of the batch does not hold")
        for timestamp, offset in read_times(self.data, header):
            if timestamp >= self.timestamp and offset >= self.log_start_offset:
                return TimestampOffset(timestamp, offset, header.leader_epoch)
        return None


Find: TypeAlias = Callable[[BatchSearch], TimestampOffset | None]


def first_since(
    segments: Sequence[Segment], timestamp: int, log_start_offset: int, find: Find
) -> TimestampOffset | None:
    """The first record at or after `timestamp`, in offset order; None if there is none."""
    for segment in segments:
        if segment.largest.timestamp >= timestamp:
            for header in segment.headers_since(timestamp):
                found = _first_in_batch(segment, header, timestamp, log_start_offset, find)
                if found is not None:
                    return found
    return None


def first_largest(segments: Sequence[Segment], log_start_offset: int, find: Find) -> TimestampOffset | None:
    """The first record that has the largest timestamp of the log.

    None if no record has a timestamp, or the record lies below `log_start_offset`.
    """
    segment = max(segments, key=lambda segment: segment.largest.timestamp)
    timestamp, last_offset = segment.largest
    if timestamp < 0:
        return None
    header = segment.header_at(segment.position_of(last_offset))
    if header.record_count == 0:
        return _first_largest_by_scanning(segments, log_start_offset, find)
    return _first_in_batch(segment, header, timestamp, log_start_offset, find)


def _first_largest_by_scanning(
    segments: Sequence[Segment], log_start_offset: int, find: Find
) -> TimestampOffset | None:
    """Scans the batches: the index points to a batch that compaction emptied, so no record has its timestamp."""
    largest: tuple[Segment, BatchHeader] | None = None
    for segment in segments:
        for header in segment.headers(0):
            if header.record_count and (largest is None or header.max_timestamp > largest[1].max_timestamp):
                largest = segment, header
    if largest is None or largest[1].max_timestamp < 0:
        return None
    return _first_in_batch(*largest, largest[1].max_timestamp, log_start_offset, find)


def _first_in_batch(
    segment: Segment, header: BatchHeader, timestamp: int, log_start_offset: int, find: Find
) -> TimestampOffset | None:
    if header.next_offset <= log_start_offset:
        return None
    data, position = segment.batch_at(header), header.position
    return find(BatchSearch(segment.log_path, position, data, header, timestamp, log_start_offset))
