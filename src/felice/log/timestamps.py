"""From time to offset: the first record at or after a timestamp, and the one with the largest.

Keeps true: what is answered is a *record's* timestamp, not a batch's; only the
            batches that may hold it are read and decompressed, each after its CRC.
"""

from __future__ import annotations

from collections.abc import Sequence

from felice.log.answers import TimestampOffset
from felice.log.errors import CorruptLog
from felice.log.segment import Segment
from felice.records.batch import BatchHeader, verify_crc
from felice.records.reader import read_batch


def first_since(segments: Sequence[Segment], timestamp: int, log_start_offset: int) -> TimestampOffset | None:
    """The first record at or after `timestamp`, in the order of offsets."""
    for segment in segments:
        if segment.largest.timestamp >= timestamp:
            for header in segment.headers_since(timestamp):
                found = _first_in_batch(segment, header, timestamp, log_start_offset)
                if found is not None:
                    return found
    return None


def first_largest(segments: Sequence[Segment], log_start_offset: int) -> TimestampOffset | None:
    """The first record that has the largest timestamp of the log."""
    segment = max(segments, key=lambda segment: segment.largest.timestamp)
    timestamp, last_offset = segment.largest
    if timestamp < 0:
        return None
    header = segment.header_at(segment.position_of(last_offset))
    if header.record_count == 0:
        return _first_largest_by_walking(segments, log_start_offset)
    return _first_in_batch(segment, header, timestamp, log_start_offset)


def _first_largest_by_walking(segments: Sequence[Segment], log_start_offset: int) -> TimestampOffset | None:
    """Where the index tells of a batch that compaction emptied: its time is no record's any more."""
    largest: tuple[Segment, BatchHeader] | None = None
    for segment in segments:
        for header in segment.headers(0):
            if header.record_count and (largest is None or header.max_timestamp > largest[1].max_timestamp):
                largest = segment, header
    if largest is None or largest[1].max_timestamp < 0:
        return None
    return _first_in_batch(*largest, largest[1].max_timestamp, log_start_offset)


def _first_in_batch(
    segment: Segment, header: BatchHeader, timestamp: int, log_start_offset: int
) -> TimestampOffset | None:
    if header.next_offset <= log_start_offset:
        return None
    data, position = segment.batch_at(header), header.position
    header = header._replace(position=0)
    if not verify_crc(data, header):
        raise CorruptLog(segment.log_path, position, "the CRC of the batch does not hold")
    for record in read_batch(data, header):
        if record.timestamp >= timestamp and record.offset >= log_start_offset:
            return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None
