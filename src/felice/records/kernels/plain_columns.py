"""The column kernels in plain Python: batches to Arrow buffers and back, and murmur2 over a column.

Keeps true:  same buffers, byte for byte, as `_kernels.pyx`.
Input and output are bytes: pyarrow is not needed here.
"""

from __future__ import annotations

from array import array

from felice.protocol.primitives import Buffer
from felice.records.kernels.grammar import (
    BinaryBuffers,
    BinaryColumn,
    ColumnBuffers,
    EncodedRows,
    HeadersBuffers,
    HeadersColumn,
    RowColumns,
    wrap64,
)
from felice.records.kernels.plain import encode_record, read_headers, walk

_INT32_MAX = 2**31 - 1
_MILLISECONDS_MAX = (2**63 - 1) // 1000


class _BinaryWriter:
    """One growing Arrow binary column with int32 offsets."""

    __slots__ = ("_valid", "data", "offsets")

    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.data = bytearray()
        self._valid = bytearray()

    def append(self, value: Buffer | None) -> None:
        """Adds a row."""
        if value is not None:
            if len(self.data) + len(value) > _INT32_MAX:
                raise OverflowError("a column holds at most 2147483647 bytes")
            self.data += value
        self._valid.append(value is not None)
        self.offsets.append(len(self.data))

    def truncate(self, rows: int) -> None:
        """Keeps the first `rows` rows."""
        del self.offsets[rows + 1 :]
        del self._valid[rows:]
        del self.data[self.offsets[rows] :]

    def finish(self) -> BinaryBuffers:
        """Returns the finished column."""
        validity = bytearray((len(self._valid) + 7) // 8)
        for row, is_valid in enumerate(self._valid):
            validity[row >> 3] |= is_valid << (row & 7)
        return BinaryBuffers(self._valid.count(0), validity, self.offsets.tobytes(), self.data)


class ArrowColumns:
    """Columns that grow by one batch at a time. A batch that breaks the format adds nothing."""

    def __init__(self, with_headers: bool = False) -> None:
        self._offsets = array("q")
        self._timestamps_us = array("q")
        self._timestamp_types = array("i")
        self._keys = _BinaryWriter()
        self._values = _BinaryWriter()
        self._with_headers = with_headers
        self._header_offsets = array("i", [0])
        self._header_keys = _BinaryWriter()
        self._header_values = _BinaryWriter()

    @property
    def rows(self) -> int:
        """Number of rows added so far."""
        return len(self._offsets)

    @property
    def data_bytes(self) -> int:
        """Size of the largest variable-length column, which int32 offsets limit."""
        writers = (self._keys, self._values, self._header_keys, self._header_values)
        return max(len(writer.data) for writer in writers)

    def append(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        append_time_ms: int | None,
        start_offset: int,
        end_offset: int,
    ) -> int:
        """Adds the records of a batch with `start_offset` <= offset < `end_offset`; returns how many."""
        before = self.rows
        try:
            with memoryview(payload) as view:
                for fields in walk(view, record_count):
                    _, timestamp_delta, offset_delta, key, key_end, value, value_end, at, count = fields
                    offset = wrap64(base_offset + offset_delta)
                    if not start_offset <= offset < end_offset:
                        continue
                    self._offsets.append(offset)
                    own_time = append_time_ms is None
                    timestamp = wrap64(base_timestamp + timestamp_delta) if own_time else append_time_ms
                    self._timestamps_us.append(_microseconds(timestamp or 0))
                    self._timestamp_types.append(0 if own_time else 1)
                    self._keys.append(None if key < 0 else view[key:key_end])
                    self._values.append(None if value < 0 else view[value:value_end])
                    if self._with_headers:
                        self._append_headers(view, at, count)
        except Exception:
            self._truncate(before)
            raise
        return self.rows - before

    def _append_headers(self, view: Buffer, position: int, count: int) -> None:
        for key, value in read_headers(view, position, count):
            self._header_keys.append(key if key.isascii() else key.decode("utf-8", "replace").encode())
            self._header_values.append(value)
        self._header_offsets.append(len(self._header_keys.offsets) - 1)

    def _truncate(self, rows: int) -> None:
        del self._offsets[rows:]
        del self._timestamps_us[rows:]
        del self._timestamp_types[rows:]
        self._keys.truncate(rows)
        self._values.truncate(rows)
        if self._with_headers:
            del self._header_offsets[rows + 1 :]
            self._header_keys.truncate(self._header_offsets[-1])
            self._header_values.truncate(self._header_offsets[-1])

    def finish(self) -> ColumnBuffers:
        """Returns the columns. Nothing may be appended afterwards."""
        headers = None
        if self._with_headers:
            headers = HeadersBuffers(
                self._header_offsets.tobytes(),
                len(self._header_keys.offsets) - 1,
                self._header_keys.finish(),
                self._header_values.finish(),
            )
        return ColumnBuffers(
            self.rows,
            self._offsets.tobytes(),
            self._timestamps_us.tobytes(),
            self._timestamp_types.tobytes(),
            self._keys.finish(),
            self._values.finish(),
            headers,
        )


def _microseconds(timestamp_ms: int) -> int:
    """Converts to microseconds. Times beyond the range of microseconds become the nearest time in range."""
    return max(-_MILLISECONDS_MAX, min(timestamp_ms, _MILLISECONDS_MAX)) * 1000


class _BinaryReader:
    """Rows of an Arrow binary column. Never reads outside the column's buffers."""

    __slots__ = ("_array_offset", "_data", "_offsets", "_validity")

    def __init__(self, column: BinaryColumn, rows: int) -> None:
        if column.array_offset < 0 or rows < 0:
            raise ValueError("a column's numbers do not cover its rows")
        self._array_offset = column.array_offset
        self._offsets = _integers(
            column.offsets, "q" if column.is_large else "i", column.array_offset + rows + 1
        )
        self._data = memoryview(column.data).cast("B")
        self._validity = _bitmap(column.validity, column.array_offset + rows)

    def __getitem__(self, row: int) -> memoryview | None:
        index = self._array_offset + row
        if not _is_valid(self._validity, index):
            return None
        start, end = self._offsets[index], self._offsets[index + 1]
        if not 0 <= start <= end <= len(self._data):
            raise ValueError("an offset lies outside its column")
        return self._data[start:end]


class _HeadersReader:
    """Rows of an Arrow list<struct<key, value>> column."""

    __slots__ = ("_array_offset", "_keys", "_offsets", "_validity", "_values")

    def __init__(self, column: HeadersColumn, rows: int) -> None:
        if column.array_offset < 0 or rows < 0:
            raise ValueError("a column's numbers do not cover its rows")
        last = column.array_offset + rows
        self._array_offset = column.array_offset
        self._offsets = _integers(column.offsets, "i", last + 1)
        self._validity = _bitmap(column.validity, last)
        count = self._offsets[last]
        self._keys = _BinaryReader(column.keys, count)
        self._values = _BinaryReader(column.values, count)

    def __getitem__(self, row: int) -> list[tuple[memoryview, memoryview | None]]:
        index = self._array_offset + row
        if not _is_valid(self._validity, index):
            return []
        start, end, last = self._offsets[index], self._offsets[index + 1], self._offsets[-1]
        if not 0 <= start <= end <= last:
            raise ValueError("an offset lies outside its column")
        headers = []
        for position in range(start, end):
            key = self._keys[position]
            if key is None:
                raise ValueError("a header key is null")
            headers.append((key, self._values[position]))
        return headers


def _integers(buffer: Buffer, typecode: str, count: int) -> memoryview:
    view = memoryview(buffer).cast("B")
    size_bytes = array(typecode).itemsize * count
    if count < 0 or size_bytes > len(view):
        raise ValueError("a column's numbers do not cover its rows")
    return view[:size_bytes].cast(typecode)  # type: ignore[call-overload,no-any-return]


def _bitmap(validity: Buffer | None, bits: int) -> memoryview | None:
    if validity is None:
        return None
    view = memoryview(validity).cast("B")
    if bits > 8 * len(view):
        raise ValueError("a column's validity does not cover its rows")
    return view


def _is_valid(validity: memoryview | None, index: int) -> bool:
    return validity is None or bool(validity[index >> 3] >> (index & 7) & 1)


def encode_rows(
    columns: RowColumns, start: int, stop: int, target_bytes: int, room_bytes: int = 0
) -> EncodedRows:
    """Encodes rows from `start` on, up to `stop` or until the records would exceed `target_bytes`.

    Takes at least one row, however large. Offset deltas count from 0.
    """
    if not 0 <= start <= stop or not 0 <= room_bytes <= _INT32_MAX:
        raise ValueError("rows begin before 0 or end before they begin")
    keys = _BinaryReader(columns.keys, stop) if columns.keys is not None else None
    values = _BinaryReader(columns.values, stop) if columns.values is not None else None
    headers = _HeadersReader(columns.headers, stop) if columns.headers is not None else None
    timestamps = _integers(columns.timestamps, "q", stop)
    payload = bytearray(room_bytes)
    base_timestamp = max_timestamp = -1
    for row in range(start, stop):
        before = len(payload)
        timestamp = timestamps[row]
        if row == start:
            base_timestamp = timestamp
        encode_record(
            payload,
            row - start,
            wrap64(timestamp - base_timestamp),
            keys[row] if keys else None,
            values[row] if values else None,
            headers[row] if headers else (),
        )
        if row > start and len(payload) - room_bytes > target_bytes:
            del payload[before:]
            return EncodedRows(payload, row, base_timestamp, max_timestamp)
        max_timestamp = max(max_timestamp, timestamp)
    return EncodedRows(payload, stop, base_timestamp, max_timestamp)


def murmur2(data: Buffer) -> int:
    """Java's `Utils.murmur2`, made positive: its default partitioner uses this hash."""
    view = memoryview(data).cast("B")
    length = len(view)
    hashed = 0x9747B28C ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(view[position : position + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        hashed = (hashed * 0x5BD1E995 & 0xFFFFFFFF) ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(view[whole:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF


def murmur2_column(column: BinaryColumn, rows: int) -> bytearray:
    """`murmur2` of each row as native int32; -1 if the key is null."""
    reader = _BinaryReader(column, rows)
    keys = (reader[row] for row in range(rows))
    return bytearray(array("i", [-1 if key is None else murmur2(key) for key in keys]).tobytes())
