"""Where the batches of a segment's file begin and end, read from their headers.

Keeps true: a place lies within the scanned range, and its offsets belong to the segment. Anything else is `CorruptLog`,
            with the file and the position.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from felice.env import File
from felice.log.errors import CorruptLog
from felice.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC

# Indexes hold offsets relative to the base offset of their segment, in 32 bits.
MAX_RELATIVE_OFFSET = 2**31 - 1

# Base offset, length, magic and last offset delta: the fields of a header that a search needs.
_FIELDS = Struct(">qi4xb6xi")
# One read of this size brings the headers between two index entries if batches are small.
_READ_BYTES = 4096


class BatchPlace(NamedTuple):
    """Position, size and offsets of one batch in the file."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


def scan(file: File, path: Path, segment_offset: int, position: int, end: int) -> Iterator[BatchPlace]:
    """The batches in `position..end` of a segment with base offset `segment_offset`. `path` is for errors."""
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + _FIELDS.size > len(chunk):
            chunk, chunk_start, at = file.pread(min(_READ_BYTES, end - position), position), position, 0
            if len(chunk) < _FIELDS.size:
                raise CorruptLog(path, position, "it ends inside a batch header")
        base_offset, length, magic, last_offset_delta = _FIELDS.unpack_from(chunk, at)
        size_bytes = length + LOG_OVERHEAD
        if magic != MAGIC or size_bytes < HEADER_SIZE or last_offset_delta < 0:
            raise CorruptLog(path, position, "there is no batch header of format 2")
        if not 0 <= base_offset - segment_offset <= MAX_RELATIVE_OFFSET - last_offset_delta:
            raise CorruptLog(path, position, f"offset {base_offset} does not belong to this segment")
        if position + size_bytes > end:
            raise CorruptLog(path, position, f"a batch of {size_bytes} bytes goes beyond byte {end}")
        yield BatchPlace(position, size_bytes, base_offset, base_offset + last_offset_delta)
        position += size_bytes


def last_offset_at(file: File, position: int) -> int | None:
    """The last offset of the batch that begins at `position`; None if no batch header of format 2 is there."""
    data = file.pread(_FIELDS.size, position)
    if len(data) < _FIELDS.size:
        return None
    base_offset, _, magic, last_offset_delta = _FIELDS.unpack(data)
    return int(base_offset + last_offset_delta) if magic == MAGIC else None
