"""The bytes of Kafka's metadata log and of its snapshots. Pure.

Keeps true: no record is left out silently: bytes that are no batch, a checksum that does not match, missing offsets and
            unknown records raise `MigrationError`. Only a last batch that is cut short is dropped, because a write that
            was not completed was not acknowledged.

The value of a data record: frame version (1), key and version of the record as unsigned varints, then the record.
Transactions of the controller bracket records that count together; a snapshot has none of them open.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from felice.migration.errors import MigrationError, explained
from felice.protocol.codec import decode, encode
from felice.protocol.errors import ApiError
from felice.protocol.messages.cluster_metadata import (
    RECORDS,
    SKIPPED,
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    VotersRecord,
)
from felice.protocol.primitives import Fault, MalformedMessage, read_uvarint, uvarint
from felice.protocol.schema import schema_of
from felice.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    verify_crc,
)
from felice.records.builder import assemble, attributes, new_header
from felice.records.compression import Codec
from felice.records.control import ControlType, control_type
from felice.records.crc import crc32c
from felice.records.errors import CorruptBatch
from felice.records.kernels import encode_record
from felice.records.reader import read_batch

_FRAME_VERSION = 1
_LENGTH = struct.Struct(">qi")
_CONTROL_KEY = struct.Struct(">hh")
# Of the header and of the footer of a snapshot: int16 version 0, in the header the time of the last record of the log,
# and no tagged fields.
_HEADER_VALUE = struct.Struct(">hqB")
_FOOTER_VALUE = struct.Struct(">hB")

_MAX_RECORDS_A_BATCH = 500
"""Kafka limits a batch of the metadata log to 8 MiB. 500 records of our sizes are far below."""


class MetadataRecord(NamedTuple):
    """A committed record, with its offset."""

    offset: int
    record: object


def decode_value(value: bytes | None, offset: int) -> object | None:
    """The record in a value; None for a type in `SKIPPED`. Raises `MigrationError`."""
    try:
        if value is None:
            raise Fault("it has no value")
        frame_version, position = read_uvarint(value, 0)
        key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except (Fault, IndexError) as error:
        raise MigrationError(f"the metadata record at offset {offset} cannot be read: {error}") from None
    if frame_version != _FRAME_VERSION:
        raise MigrationError(f"the metadata record at offset {offset} has frame version {frame_version}")
    cls = RECORDS.get(key)
    known = schema_of(cls).versions.max if cls is not None else SKIPPED.get(key, -1)
    if version > known:
        raise MigrationError(
            f"the metadata record at offset {offset} has type {key} and version {version}, which is not known; was the "
            "directory written by a later Kafka?"
        )
    if cls is None:
        return None
    try:
        return decode(cls, value, version, position)
    except MalformedMessage as error:
        raise MigrationError(f"the metadata record at offset {offset} cannot be read: {error}") from error


def encode_value(record: object, version: int) -> bytes:
    """The value for a record in this version."""
    key = schema_of(type(record)).api_key
    return uvarint(_FRAME_VERSION) + uvarint(key) + uvarint(version) + encode(record, version)


class Batches(NamedTuple):
    """A file, its batches in order, and the bytes of a last one that is cut short. `name` is for errors."""

    name: str
    data: bytes
    headers: Sequence[BatchHeader]
    torn_bytes: int


def batches_of(data: bytes, name: str) -> Batches:
    """The batches of a file, each checked. Raises `MigrationError`."""
    headers = []
    position = 0
    while len(data) - position >= LOG_OVERHEAD:
        _, length = _LENGTH.unpack_from(data, position)
        if length >= HEADER_SIZE - LOG_OVERHEAD and position + LOG_OVERHEAD + length > len(data):
            _check_torn(data, position, name)
            break
        if not any(data[position:]):
            break  # the file had grown before the power failed, and its bytes had not reached the disk
        try:
            header = BatchHeader.parse(data, position)
            if not verify_crc(data, header):
                raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match")
        except ApiError as error:
            raise MigrationError(f"{name} is damaged at byte {position}: {error.message}") from error
        headers.append(header)
        position = header.end
    return Batches(name, data, headers, len(data) - position)


def _check_torn(data: bytes, position: int, name: str) -> None:
    """Checks that a batch that goes beyond the end was cut short. Its length may be damaged instead.

    Then the bytes up to the end match the checksum, or whole batches follow.
    """
    tail = memoryview(data)[position:]
    if len(tail) > HEADER_SIZE and crc32c(tail[ATTRIBUTES_POSITION:]) == int.from_bytes(
        tail[CRC_POSITION : CRC_POSITION + 4], "big"
    ):
        raise MigrationError(f"{name} is damaged at byte {position}: the length of the batch is wrong")
    at = data.find(MAGIC, position + MAGIC_POSITION + 1)
    while at >= 0:
        start = at - MAGIC_POSITION
        _, length = _LENGTH.unpack_from(data, start)
        end = start + LOG_OVERHEAD + length
        if length >= HEADER_SIZE - LOG_OVERHEAD and end <= len(data):
            header = BatchHeader.parse(data, start)
            if verify_crc(data, header):
                raise MigrationError(
                    f"{name} is damaged at byte {position}: whole batches follow at byte {start}"
                )
        at = data.find(MAGIC, at + 1)


def is_whole_snapshot(file: Batches) -> bool:
    """Whether a snapshot ends in its footer."""
    if file.torn_bytes or not file.headers or not file.headers[-1].is_control:
        return False
    records = read_batch(file.data, file.headers[-1])
    return bool(records) and control_type(records[-1].key) is ControlType.SNAPSHOT_FOOTER


def data_values(file: Batches) -> Iterator[tuple[int, bytes | None]]:
    """Offset and value of each data record of a file. Raises `MigrationError`."""
    for header in file.headers:
        if header.is_control:
            continue
        with explained(f"{file.name} is damaged at byte {header.position}", ApiError):
            records = read_batch(file.data, header)
        for record in records:
            yield record.offset, record.value


def voters_in(file: Batches) -> int | None:
    """The number of voters in the last record of a file that has them; None without one. Raises `MigrationError`."""
    found = None
    for header in file.headers:
        if not header.is_control:
            continue
        with explained(f"{file.name} is damaged at byte {header.position}", ApiError, MalformedMessage):
            for record in read_batch(file.data, header):
                if control_type(record.key) is ControlType.KRAFT_VOTERS:
                    found = len(decode(VotersRecord, record.value or b"", 0).voters)
    return found


def check_continuous(segments: Iterable[Batches], from_offset: int) -> int:
    """Checks that the log has all offsets from `from_offset` to its end; returns the end. Raises `MigrationError`.

    `segments` are in order. The log may begin below `from_offset`.
    """
    expected = None
    for file in segments:
        for header in file.headers:
            first = header.base_offset
            if (expected is None and first > from_offset) or (expected is not None and first != expected):
                missing = from_offset if expected is None else expected
                raise MigrationError(
                    f"{file.name} is damaged: the offsets from {missing} to {first - 1} are missing"
                )
            expected = header.next_offset
    return max(from_offset, expected or 0)


def committed(values: Iterable[tuple[int, bytes | None]]) -> Iterator[MetadataRecord]:
    """The records outside of a controller's transactions, and those of transactions that have ended."""
    open_records: list[MetadataRecord] | None = None
    for offset, value in values:
        record = decode_value(value, offset)
        if isinstance(record, BeginTransactionRecord):
            open_records = []
        elif isinstance(record, AbortTransactionRecord):
            open_records = None
        elif isinstance(record, EndTransactionRecord):
            yield from open_records or ()
            open_records = None
        elif record is not None and open_records is not None:
            open_records.append(MetadataRecord(offset, record))
        elif record is not None:
            yield MetadataRecord(offset, record)


def encode_snapshot(records: Sequence[tuple[object, int]], now_ms: int) -> bytes:
    """A snapshot with these records, each with the version to write it in."""
    offset = 1
    out = _control(ControlType.SNAPSHOT_HEADER, _HEADER_VALUE.pack(0, 0, 0), 0, now_ms)
    for start in range(0, len(records), _MAX_RECORDS_A_BATCH):
        values = [encode_value(*one) for one in records[start : start + _MAX_RECORDS_A_BATCH]]
        out += _batch([(None, value) for value in values], offset, now_ms)
        offset += len(values)
    return bytes(out + _control(ControlType.SNAPSHOT_FOOTER, _FOOTER_VALUE.pack(0, 0), offset, now_ms))


def _control(kind: ControlType, value: bytes, offset: int, now_ms: int) -> bytearray:
    return _batch([(_CONTROL_KEY.pack(0, kind), value)], offset, now_ms, control=True)


def _batch(
    rows: Sequence[tuple[bytes | None, bytes]], offset: int, now_ms: int, *, control: bool = False
) -> bytearray:
    payload = bytearray()
    for delta, (key, value) in enumerate(rows):
        encode_record(payload, delta, 0, key, value, ())
    header = new_header(
        record_count=len(rows),
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        attributes=attributes(control=control),
        base_offset=offset,
        leader_epoch=0,
    )
    return assemble(header, payload, Codec.NONE)
