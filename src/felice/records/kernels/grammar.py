"""Errors, limits and result types that the compiled and the plain kernels share.

Both report a record that breaks the format by the first fault from left to right, in the same
words; a property test compares them.
"""

from __future__ import annotations

from typing import NamedTuple

from felice.protocol.primitives import Buffer
from felice.records.errors import InvalidRecord

RECORD_MIN_BYTES = 7
"""The smallest record: length, attributes, both deltas, key, value and header count at one byte each."""

VARINT_CUT = 1
VARINT_LONG = 2
LENGTH = 3
ATTRIBUTES = 4
KEY = 5
VALUE = 6
HEADER_COUNT = 7
HEADER_KEY = 8
HEADER_VALUE = 9
SPARE = 10

_FAULTS = {
    VARINT_CUT: "has a number that runs past its end",
    VARINT_LONG: "has a number with too many bytes",
    LENGTH: "has a length that is negative or runs past the batch",
    ATTRIBUTES: "ends before its attributes",
    KEY: "has a key length below -1 or past its end",
    VALUE: "has a value length below -1 or past its end",
    HEADER_COUNT: "has a negative header count",
    HEADER_KEY: "has a header key that is null or runs past its end",
    HEADER_VALUE: "has a header value length below -1 or past its end",
    SPARE: "is shorter than its declared length",
}


def fault(code: int, index: int) -> InvalidRecord:
    """The error for a record that breaks the format, by its fault code."""
    return InvalidRecord(f"record {index} {_FAULTS[code]}", [(index, f"record {_FAULTS[code]}")])


def count_fault(record_count: int, size_bytes: int) -> InvalidRecord:
    """The error for a record count that the payload is too small for."""
    return InvalidRecord(f"{size_bytes} bytes cannot hold {record_count} records")


def trailing_fault(record_count: int, spare_bytes: int) -> InvalidRecord:
    """The error for bytes after the last record."""
    return InvalidRecord(f"{spare_bytes} bytes are left behind the {record_count} records of the batch")


def wrap64(number: int) -> int:
    """Wraps a sum into 64 bits, as Java's long does: a hostile delta must not give a number that fits no buffer."""
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


class Scan(NamedTuple):
    """Facts about a batch's records that the checks of a produced batch need.

    `max_timestamp` and `min_timestamp` cover the records that have one, -1 if none has;
    `first_keyless` is an index, -1 if every record has a key.
    """

    max_timestamp: int
    offset_delta_of_max_timestamp: int
    min_timestamp: int
    is_sequential: bool
    first_keyless: int


class KeptRecords(NamedTuple):
    """The records of a batch that the log cleaner keeps. `records` is None if it keeps all of them unchanged."""

    records: bytearray | None
    record_count: int
    max_timestamp: int
    has_tombstones: bool


class BinaryColumn(NamedTuple):
    """Buffers of an Arrow binary or string array, as `Array.buffers()` returns them."""

    validity: Buffer | None
    offsets: Buffer
    data: Buffer
    array_offset: int = 0
    is_large: bool = False


class HeadersColumn(NamedTuple):
    """An Arrow list<struct<key, value>> array: list offsets into the two children."""

    validity: Buffer | None
    offsets: Buffer
    array_offset: int
    keys: BinaryColumn
    values: BinaryColumn


class RowColumns(NamedTuple):
    """Rows to encode. `timestamps` are int64 milliseconds in native order. None is a missing column."""

    keys: BinaryColumn | None
    values: BinaryColumn | None
    timestamps: Buffer
    headers: HeadersColumn | None = None


class EncodedRows(NamedTuple):
    """`payload` begins with the requested room and holds the rows up to `next_row`."""

    payload: bytearray
    next_row: int
    base_timestamp: int
    max_timestamp: int


class BinaryBuffers(NamedTuple):
    """A finished Arrow binary array: a validity bitmap, int32 offsets into `data`, one more than rows, and the data."""

    null_count: int
    validity: Buffer
    offsets: Buffer
    data: Buffer


class HeadersBuffers(NamedTuple):
    """A finished Arrow list<struct<key, value>> array; header keys are valid UTF-8 and never null."""

    offsets: Buffer
    total: int
    keys: BinaryBuffers
    values: BinaryBuffers


class ColumnBuffers(NamedTuple):
    """Finished columns: int64 offsets, int64 microseconds, int32 timestamp types (0 CreateTime, 1 LogAppendTime), keys,
    values, and headers if they were asked for.
    """

    rows: int
    offsets: Buffer
    timestamps_us: Buffer
    timestamp_types: Buffer
    keys: BinaryBuffers
    values: BinaryBuffers
    headers: HeadersBuffers | None
