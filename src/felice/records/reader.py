"""Decodes batch bytes into records.

Keeps true:  a record gets its absolute offset, and the batch's maximum timestamp if the topic uses
             the broker's clock (LogAppendTime);
             bytes that break the format raise an `ApiError` of `errors`, never another error, and
             nothing past the batch is read.
The caller drops records below its fetch position: a fetch response starts with a whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from felice.protocol.primitives import Buffer
from felice.records.batch import HEADER_SIZE, BatchHeader, iter_batches, verify_crc
from felice.records.compression import DECOMPRESSED_SIZE_MAX_BYTES, decompress
from felice.records.errors import CorruptBatch
from felice.records.kernels import RecordWrapper, iterate
from felice.records.kernels.grammar import wrap64
from felice.records.kernels.plain import walk
from felice.records.record import Record

_LISTED_RECORDS_MAX = 10_000


def records_payload(
    buffer: Buffer, header: BatchHeader, max_size_bytes: int = DECOMPRESSED_SIZE_MAX_BYTES
) -> Buffer:
    """The encoded records of a batch, decompressed; a view into `buffer` if the batch is not compressed."""
    if header.end > len(buffer):
        available = len(buffer) - header.position
        raise CorruptBatch(
            f"batch at offset {header.base_offset} has {header.size_bytes} bytes, there are {available}"
        )
    stored = memoryview(buffer)[header.position + HEADER_SIZE : header.end]
    if header.record_count == 0 and not stored:
        # Compaction removed all records. Such a batch may still name a codec.
        return b""
    return decompress(header.codec, stored, max_size_bytes)


def append_time(header: BatchHeader) -> int | None:
    """The timestamp of all records of a LogAppendTime batch; None if records have their own timestamps."""
    return header.max_timestamp if header.is_log_append_time else None


def read_batch(
    buffer: Buffer, header: BatchHeader, max_size_bytes: int = DECOMPRESSED_SIZE_MAX_BYTES
) -> list[Record]:
    """The records of one batch, also of a control batch.

    Raises `CorruptBatch`, `InvalidRecord`, `UnsupportedCodec`, or `BatchTooLarge` above `max_size_bytes` decompressed.
    """
    payload = records_payload(buffer, header, max_size_bytes)
    return iterate(
        payload, header.record_count, header.base_offset, header.base_timestamp, append_time(header)
    )


def wrap_batch(
    buffer: Buffer, header: BatchHeader, wrapper: RecordWrapper, first_offset: int, origin: object
) -> list[Any]:
    """An object of the wrapper for each record of one batch from `first_offset` on."""
    payload = records_payload(buffer, header)
    return wrapper.wrap(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        append_time(header),
        first_offset,
        origin,
    )


def read_times(buffer: Buffer, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Timestamp and offset of each record of one batch, one at a time, because a list could take much memory."""
    if header.record_count <= _LISTED_RECORDS_MAX:
        for record in read_batch(buffer, header):
            yield record.timestamp, record.offset
        return
    common = append_time(header)
    with memoryview(records_payload(buffer, header)) as payload:
        for _, timestamp_delta, offset_delta, *_ in walk(payload, header.record_count):
            timestamp = wrap64(header.base_timestamp + timestamp_delta) if common is None else common
            yield timestamp, wrap64(header.base_offset + offset_delta)


def read_records(buffer: Buffer, *, check_crcs: bool = False) -> Iterator[Record]:
    """The records of all whole batches in `buffer`, in offset order, without control batches."""
    for header in iter_batches(buffer):
        if check_crcs and not verify_crc(buffer, header):
            raise CorruptBatch(f"batch at offset {header.base_offset} does not match its CRC {header.crc:#x}")
        if not header.is_control:
            yield from read_batch(buffer, header)
