"""The 61-byte header of a record batch (magic 2), read and written in place.

Keeps true:  parsing a header takes one `unpack_from` and copies no records;
             `stamp` writes only the two fields outside the CRC, so the CRC stays right;
             every function that writes a field under the CRC updates the CRC.
A parsed header holds what the bytes claim. `verify_crc` and `validate` check the claims.
Magic 0 and 1 are refused here, see `legacy`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import NamedTuple

from felice.protocol.primitives import Buffer
from felice.records.compression import Codec, codec_of_id
from felice.records.crc import crc32c
from felice.records.errors import CorruptBatch
from felice.records.legacy import refuse_legacy

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Size of base offset and batch length: the bytes that the length field does not count."""
MAGIC = 2
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
"""Position from which the CRC covers all bytes to the end of the batch."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_LEADER_EPOCH_POSITION = 12
_MAX_TIMESTAMP_POSITION = 35
_SEQUENCE_MODULUS = 1 << 31


class TimestampType(IntEnum):
    """Who sets the timestamps of a batch: the producer or the broker."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Attributes(IntFlag):
    """Bits of the batch attributes above the codec bits."""

    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40


# Plain integers for the hot path: arithmetic on an IntFlag costs as much as the whole parse.
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_MEANINGFUL = 0x7F
_DELETE_HORIZON = 0x40


def has_transactional_flag(records: Buffer) -> bool:
    """Whether the first batch belongs to a transaction, as its header says; False for less than a whole batch.

    Batches of older formats belong to none.
    """
    if len(records) < HEADER_SIZE or not records[ATTRIBUTES_POSITION + 1] & _TRANSACTIONAL:
        return False
    if records[MAGIC_POSITION] != MAGIC:
        return False
    length: int = _OFFSET_AND_LENGTH.unpack_from(records, 0)[1]
    return length + LOG_OVERHEAD <= len(records)


class BatchHeader(NamedTuple):
    """The header fields of one batch, not verified. `size_bytes` is the whole batch, header included."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int = 0

    @classmethod
    def parse(cls, buffer: Buffer, position: int = 0) -> BatchHeader:
        """Reads the header at `position`. The records after it need not be in the buffer. Raises `ApiError`."""
        try:
            fields = _HEADER.unpack_from(buffer, position)
        except struct.error:
            raise _explain_short(buffer, position) from None
        if fields[3] != MAGIC:
            refuse_legacy(fields[3], position)
        length = fields[1]
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptBatch(f"batch at byte {position} has length {length}, a header alone needs 49")
        # Without `_make`, which is a Python function: every batch that is produced passes here.
        return tuple.__new__(cls, (fields[0], length + LOG_OVERHEAD, *fields[2:], position))

    def placed(self, base_offset: int, leader_epoch: int) -> BatchHeader:
        """The header with the fields that `stamp` writes."""
        return tuple.__new__(BatchHeader, (base_offset, self[1], leader_epoch, *self[3:]))

    @property
    def end(self) -> int:
        """Position of the first byte after this batch."""
        return self.position + self.size_bytes

    @property
    def last_offset(self) -> int:
        """Offset of the last record, even if compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset where the next batch starts. Compaction may have removed records, but not their offsets."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The codec in the attributes. Raises `UnsupportedCodec` if its id is unknown."""
        return codec_of_id(self.attributes & _CODEC_MASK)

    @property
    def is_compressed(self) -> bool:
        """Whether the records are compressed."""
        return self.attributes & _CODEC_MASK != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record instead of data."""
        return self.attributes & _CONTROL != 0

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker set the timestamp, which all records share."""
        return self.attributes & _LOG_APPEND_TIME != 0

    @property
    def timestamp_type(self) -> TimestampType:
        """The timestamp type in the attributes."""
        return TimestampType.LOG_APPEND_TIME if self.is_log_append_time else TimestampType.CREATE_TIME

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp field holds a delete horizon (KIP-534)."""
        return self.attributes & _DELETE_HORIZON != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """KIP-534: time when tombstones and markers of this batch may be removed; kept in the base timestamp."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer_id(self) -> bool:
        """Whether the producer is idempotent or transactional."""
        return self.producer_id != NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, `NO_SEQUENCE` if the batch has no sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, by: int) -> int:
    """Adds to a sequence, which wraps from 2147483647 to 0."""
    return (sequence + by) % _SEQUENCE_MODULUS


def iter_batches(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
    """Headers of the whole batches in `buffer[position:end]`.

    Ends silently at a partial last batch: fetch responses may end with one (KIP-74).
    """
    end = len(buffer) if end is None else end
    while end - position >= LOG_OVERHEAD:
        length = _OFFSET_AND_LENGTH.unpack_from(buffer, position)[1]
        if length >= 0 and position + LOG_OVERHEAD + length > end:
            return
        header = BatchHeader.parse(buffer, position)
        yield header
        position += header.size_bytes


def fills(buffer: Buffer) -> bool:
    """Whether the first batch, by the length it claims, ends exactly at the end of the buffer."""
    size_bytes = len(buffer)
    if size_bytes < HEADER_SIZE:
        return False
    length: int = _OFFSET_AND_LENGTH.unpack_from(buffer, 0)[1]
    return length + LOG_OVERHEAD == size_bytes


def batch_crc(buffer: Buffer, position: int, size_bytes: int) -> int:
    """Computes the CRC-32C that belongs into the header of the batch at `position`."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size_bytes])


def verify_crc(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the whole batch is in the buffer and matches its CRC."""
    position = header.position
    end = position + header.size_bytes
    return (
        end <= len(buffer) and crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end]) == header.crc
    )


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Writes the fields that the leader decides. Both lie outside the CRC."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


def restamp(
    buffer: bytearray | memoryview,
    header: BatchHeader,
    *,
    max_timestamp: int,
    timestamp_type: TimestampType,
) -> BatchHeader:
    """Writes timestamp type and maximum timestamp as the broker decides, and updates the CRC."""
    # As in Kafka, bits without a meaning do not survive where the broker writes the attributes anew.
    attributes = header.attributes & _MEANINGFUL & ~_LOG_APPEND_TIME
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= _LOG_APPEND_TIME
    position = header.position
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    crc = seal(buffer, position, header.size_bytes)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)


def seal(buffer: bytearray | memoryview, position: int, size_bytes: int) -> int:
    """Computes and writes the CRC of the batch; returns it."""
    crc = batch_crc(buffer, position, size_bytes)
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)
    return crc


def write_header(buffer: bytearray | memoryview, header: BatchHeader) -> None:
    """Writes every field at the header's position, and the CRC; `header.crc` is ignored."""
    _HEADER.pack_into(
        buffer, header.position, header.base_offset, header.size_bytes - LOG_OVERHEAD, *header[2:13]
    )
    seal(buffer, header.position, header.size_bytes)


def _explain_short(buffer: Buffer, position: int) -> CorruptBatch:
    available = len(buffer) - position
    if available > MAGIC_POSITION:
        magic = memoryview(buffer)[position + MAGIC_POSITION]
        if magic != MAGIC:
            refuse_legacy(magic if magic < 128 else magic - 256, position)
    return CorruptBatch(f"batch header at byte {position} needs {HEADER_SIZE} bytes, there are {available}")
