"""The record kernels in plain Python, used if nothing was compiled. Columns: `plain_columns`.

Keeps true:  same results and same errors as `_kernels.pyx`, for every input.
One generator, `walk`, knows the format. Everything that reads records uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from felice.protocol.primitives import Buffer
from felice.records.batch import BatchHeader
from felice.records.kernels import grammar
from felice.records.kernels.grammar import Scan, wrap64
from felice.records.record import Headers, Record

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1

# index, timestamp delta, offset delta, key start, key end, value start, value end, headers start,
# header count. A start of -1 means null.
_Fields = tuple[int, int, int, int, int, int, int, int, int]


class _Fault(Exception):
    """Carries a fault code from a varint to the record that contains it."""

    def __init__(self, code: int) -> None:
        self.code = code


def read_varint(view: Buffer, position: int, end: int, bits: int) -> tuple[int, int]:
    """Reads a zig-zag varint. Ignores the bits above `bits`, as Java does."""
    raw = shift = 0
    while True:
        if position >= end:
            raise _Fault(grammar.VARINT_CUT)
        byte = view[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise _Fault(grammar.VARINT_LONG)
    raw &= (1 << bits) - 1
    return (raw >> 1) ^ -(raw & 1), position


def walk(view: Buffer, record_count: int) -> Iterator[_Fields]:
    """Fields of the records of one batch, each checked against its declared length and the payload's end."""
    size_bytes = len(view)
    if record_count < 0 or record_count * grammar.RECORD_MIN_BYTES > size_bytes:
        raise grammar.count_fault(record_count, size_bytes)
    position = 0
    for index in range(record_count):
        try:
            length, position = read_varint(view, position, size_bytes, 32)
            if length < 0 or length > size_bytes - position:
                raise _Fault(grammar.LENGTH)
            fields = _read_record(view, position, position + length, index)
        except _Fault as found:
            raise grammar.fault(found.code, index) from None
        position += length
        yield fields
    if position != size_bytes:
        raise grammar.trailing_fault(record_count, size_bytes - position)


def _read_record(view: Buffer, position: int, end: int, index: int) -> _Fields:
    if position >= end:
        raise _Fault(grammar.ATTRIBUTES)
    timestamp_delta, position = read_varint(view, position + 1, end, 64)
    offset_delta, position = read_varint(view, position, end, 32)
    key_start, key_end = _read_bytes(view, position, end, grammar.KEY)
    value_start, value_end = _read_bytes(view, key_end, end, grammar.VALUE)
    header_count, headers_start = read_varint(view, value_end, end, 32)
    if header_count < 0:
        raise _Fault(grammar.HEADER_COUNT)
    position = headers_start
    for _ in range(header_count):
        key, position = _read_bytes(view, position, end, grammar.HEADER_KEY)
        if key < 0:
            raise _Fault(grammar.HEADER_KEY)
        _, position = _read_bytes(view, position, end, grammar.HEADER_VALUE)
    if position != end:
        raise _Fault(grammar.SPARE)
    return (
        index,
        timestamp_delta,
        offset_delta,
        key_start,
        key_end,
        value_start,
        value_end,
        headers_start,
        header_count,
    )


def _read_bytes(view: Buffer, position: int, end: int, code: int) -> tuple[int, int]:
    """Start (-1 if null) and end of length-prefixed bytes; reading continues at the end."""
    length, position = read_varint(view, position, end, 32)
    if length == -1:
        return -1, position
    if length < 0 or length > end - position:
        raise _Fault(code)
    return position, position + length


def read_headers(view: Buffer, position: int, header_count: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Headers of a record that `_read_record` has checked."""
    end = len(view)
    for _ in range(header_count):
        start, position = _read_bytes(view, position, end, grammar.HEADER_KEY)
        key = bytes(view[start:position])
        start, position = _read_bytes(view, position, end, grammar.HEADER_VALUE)
        yield key, None if start < 0 else bytes(view[start:position])


class RecordWrapper:
    """Makes an object of `kind` for each record. `kind` has the slots `_record`, `_origin` and `_error`."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind

    def wrap(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        append_time_ms: int | None,
        first_offset: int,
        origin: object,
    ) -> list[Any]:
        """The objects of a batch's records from `first_offset` on, each with `origin` and without an error."""
        found = []
        for record in iterate(payload, record_count, base_offset, base_timestamp, append_time_ms):
            if record.offset >= first_offset:
                wrapped = object.__new__(self._kind)
                wrapped._record, wrapped._origin, wrapped._error = record, origin, None
                found.append(wrapped)
        return found


def track(wrapped: object) -> None:
    """Plain Python's objects are known to the garbage collector from their start."""


def ordinary_batch(
    records: Buffer, max_bytes: int, now_ms: int, before_max_ms: int, after_max_ms: int, is_compacted: bool
) -> tuple[BatchHeader, int] | None:
    """None: `records.validate` judges every batch. The compiled kernel judges most produced batches alone."""
    return None


def ordinary_records(
    records: Buffer, payload: Buffer, now_ms: int, before_max_ms: int, after_max_ms: int, is_compacted: bool
) -> int | None:
    """None, as `ordinary_batch`."""
    return None


def right_header(records: Buffer, max_bytes: int) -> BatchHeader | None:
    """None: `records.validate` reads every header. The compiled kernel checks most of them, and the CRC, alone."""
    return None


def scan(payload: Buffer, record_count: int, base_timestamp: int) -> Scan:
    """Checks every record of a batch and collects the facts that produce validation needs."""
    max_timestamp = delta_of_max = min_timestamp = first_keyless = -1
    is_sequential = True
    with memoryview(payload) as view:
        for index, timestamp_delta, offset_delta, key_start, *_ in walk(view, record_count):
            timestamp = wrap64(base_timestamp + timestamp_delta)
            if timestamp > max_timestamp:
                max_timestamp, delta_of_max = timestamp, offset_delta
            if timestamp != -1 and (min_timestamp == -1 or timestamp < min_timestamp):
                min_timestamp = timestamp
            if offset_delta != index:
                is_sequential = False
            if key_start < 0 and first_keyless < 0:
                first_keyless = index
    return Scan(max_timestamp, delta_of_max, min_timestamp, is_sequential, first_keyless)


def iterate(
    payload: Buffer, record_count: int, base_offset: int, base_timestamp: int, append_time_ms: int | None
) -> list[Record]:
    """The records of a batch. `append_time_ms` replaces their own timestamps (LogAppendTime batches)."""
    records = []
    with memoryview(payload) as view:
        for fields in walk(view, record_count):
            _, timestamp_delta, offset_delta, key_start, key_end, value_start, value_end, at, count = fields
            if append_time_ms is None:
                timestamp = wrap64(base_timestamp + timestamp_delta)
            else:
                timestamp = append_time_ms
            key = None if key_start < 0 else bytes(view[key_start:key_end])
            value = None if value_start < 0 else bytes(view[value_start:value_end])
            headers: Headers = ()
            if count:
                headers = tuple((k.decode("utf-8", "replace"), v) for k, v in read_headers(view, at, count))
            records.append(Record(wrap64(base_offset + offset_delta), timestamp, key, value, headers))
    return records


def _append_varint(out: bytearray, number: int) -> None:
    raw = (number << 1) ^ (number >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def _append_bytes(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        out.append(1)  # zig-zag of -1
    else:
        _append_varint(out, len(data))
        out += data


def encode_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[tuple[str | Buffer, Buffer | None]] = (),
) -> int:
    """Appends one record to `out` and returns its size in bytes."""
    if not (
        -_INT32_MAX - 1 <= offset_delta <= _INT32_MAX and -_INT64_MAX - 1 <= timestamp_delta <= _INT64_MAX
    ):
        raise OverflowError("value too large to convert to a record's delta")
    body = bytearray(1)
    _append_varint(body, timestamp_delta)
    _append_varint(body, offset_delta)
    _append_bytes(body, key)
    _append_bytes(body, value)
    headers = tuple(headers)
    _append_varint(body, len(headers))
    for header_key, header_value in headers:
        _append_bytes(body, header_key.encode() if isinstance(header_key, str) else header_key)
        _append_bytes(body, header_value)
    before = len(out)
    _append_varint(out, len(body))
    out += body
    return len(out) - before
