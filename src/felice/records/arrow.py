"""Converts batches to Arrow columns and back, without an object per record.

Keeps true:  rows are the records with start <= offset < end that a consumer would get: no control
             batches, and no aborted transactions if a filter is passed;
             a RecordBatch never exceeds what int32 offsets can address: the rows that do not fit
             start the next one, so every reading call yields any number of RecordBatches;
             rows keep their order, and a built batch carries consecutive sequences.
pyarrow is imported at first use: a broker runs without it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from felice.protocol.primitives import Buffer
from felice.records.aborted import AbortedTransactions
from felice.records.batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    increment_sequence,
    iter_batches,
    verify_crc,
)
from felice.records.builder import attributes, new_header, seal_with_room
from felice.records.compression import Codec
from felice.records.errors import CorruptBatch
from felice.records.kernels import (
    ArrowColumns,
    BinaryBuffers,
    BinaryColumn,
    ColumnBuffers,
    HeadersBuffers,
    HeadersColumn,
    RowColumns,
    encode_rows,
    murmur2_column,
)
from felice.records.reader import append_time, records_payload

if TYPE_CHECKING:
    import pyarrow as pa

OFFSET_MAX = 2**63 - 1
COLUMN_MAX_BYTES = 2**31 - 1
ROWS_MAX = 8 * 1024 * 1024
"""Rows after which a RecordBatch is closed: with a topic name of 249 bytes they still fit int32 offsets."""
BATCH_TARGET_BYTES = 1_000_000
"""Size of built batches before compression; below Kafka's default max.message.bytes."""

_INT64 = struct.Struct("=q")


class ArrowReader:
    """Converts the batches of one partition into RecordBatches, as large as possible."""

    def __init__(
        self,
        start_offset: int = 0,
        end_offset: int = OFFSET_MAX,
        *,
        topic: str | None = None,
        partition: int | None = None,
        with_headers: bool = False,
        check_crcs: bool = True,
        column_max_bytes: int = COLUMN_MAX_BYTES,
    ) -> None:
        self.next_offset = start_offset
        """Where reading continues: after the last batch seen, even if it gave no rows."""
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._topic = topic
        self._partition = partition
        self._with_headers = with_headers
        self._check_crcs = check_crcs
        self._column_max_bytes = min(column_max_bytes, COLUMN_MAX_BYTES)
        self._columns = ArrowColumns(with_headers)

    @property
    def rows(self) -> int:
        """Number of rows collected and not yet returned."""
        return self._columns.rows

    def add(self, buffer: Buffer, aborted: AbortedTransactions | None = None) -> Iterator[pa.RecordBatch]:
        """Reads whole batches and yields a RecordBatch whenever one is full. The caller must exhaust the iterator.

        Raises `CorruptBatch`, `InvalidRecord`, `BatchTooLarge` or `UnsupportedCodec`.
        """
        for header in iter_batches(buffer):
            if header.base_offset >= self._end_offset:
                return
            if self._check_crcs and not verify_crc(buffer, header):
                raise CorruptBatch(f"batch at offset {header.base_offset} does not match its CRC")
            hidden = aborted is not None and aborted.hides(buffer, header)
            if not hidden and not header.is_control and header.last_offset >= self._start_offset:
                yield from self._add_batch(buffer, header)
            self.next_offset = max(self.next_offset, min(header.next_offset, self._end_offset))

    def finish(self) -> pa.RecordBatch | None:
        """Returns the remaining rows, None if there are none. The reader may be used further."""
        if not self._columns.rows:
            return None
        columns, self._columns = self._columns, ArrowColumns(self._with_headers)
        return _record_batch(columns.finish(), self._topic, self._partition)

    def _add_batch(self, buffer: Buffer, header: BatchHeader) -> Iterator[pa.RecordBatch]:
        payload = records_payload(buffer, header)
        is_full = self._columns.data_bytes + len(payload) > self._column_max_bytes
        if is_full or self._columns.rows + header.record_count > ROWS_MAX:
            ready = self.finish()
            if ready is not None:
                yield ready
        self._columns.append(
            payload,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            append_time(header),
            self._start_offset,
            self._end_offset,
        )


def batches_to_arrow(
    buffers: Iterable[Buffer],
    start_offset: int = 0,
    end_offset: int = OFFSET_MAX,
    *,
    topic: str | None = None,
    partition: int | None = None,
    with_headers: bool = False,
    aborted: Iterable[tuple[int, int]] | None = None,
    check_crcs: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yields RecordBatches (never empty, mostly one) from one partition's batches in offset order.

    Columns as in Spark's Kafka source: key, value, topic and partition if given, offset, timestamp,
    timestampType, and headers if requested. With `aborted` (producer id, first offset) it reads as read_committed.
    """
    reader = ArrowReader(
        start_offset,
        end_offset,
        topic=topic,
        partition=partition,
        with_headers=with_headers,
        check_crcs=check_crcs,
    )
    hidden = None if aborted is None else AbortedTransactions(aborted)
    for buffer in buffers:
        yield from reader.add(buffer, hidden)
    rest = reader.finish()
    if rest is not None:
        yield rest


def arrow_schema(
    *, with_topic: bool = False, with_partition: bool = False, with_headers: bool = False
) -> pa.Schema:
    """The schema of the RecordBatches that a reader with these options returns."""
    import pyarrow as pa

    fields = [pa.field("key", pa.binary()), pa.field("value", pa.binary())]
    if with_topic:
        fields.append(pa.field("topic", pa.string()))
    if with_partition:
        fields.append(pa.field("partition", pa.int32()))
    fields += [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if with_headers:
        fields.append(pa.field("headers", _headers_type()))
    return pa.schema(fields)


def _headers_type() -> pa.DataType:
    import pyarrow as pa

    return pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def _record_batch(columns: ColumnBuffers, topic: str | None, partition: int | None) -> pa.RecordBatch:
    import pyarrow as pa

    schema = arrow_schema(
        with_topic=topic is not None,
        with_partition=partition is not None,
        with_headers=columns.headers is not None,
    )
    rows = columns.rows
    arrays = [_binary_array(columns.keys, rows), _binary_array(columns.values, rows)]
    if topic is not None:
        arrays.append(pa.repeat(pa.scalar(topic, pa.string()), rows))
    if partition is not None:
        arrays.append(pa.repeat(pa.scalar(partition, pa.int32()), rows))
    for name, buffer in (
        ("offset", columns.offsets),
        ("timestamp", columns.timestamps_us),
        ("timestampType", columns.timestamp_types),
    ):
        arrays.append(pa.Array.from_buffers(schema.field(name).type, rows, [None, pa.py_buffer(buffer)]))
    if columns.headers is not None:
        arrays.append(_headers_array(columns.headers, rows))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _binary_array(column: BinaryBuffers, rows: int, kind: pa.DataType | None = None) -> pa.Array:
    import pyarrow as pa

    validity = pa.py_buffer(column.validity) if column.null_count else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind or pa.binary(), rows, buffers, column.null_count)


def _headers_array(headers: HeadersBuffers, rows: int) -> pa.Array:
    """Null for a record without headers, as in Spark's Kafka source."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = _headers_type()
    pairs = pa.StructArray.from_arrays(
        [
            _binary_array(headers.keys, headers.total, pa.string()),
            _binary_array(headers.values, headers.total),
        ],
        fields=list(kind.value_type),
    )
    offsets = pa.py_buffer(headers.offsets)
    lists = pa.Array.from_buffers(kind, rows, [None, offsets], children=[pairs])
    has_headers = pc.greater(pc.list_value_length(lists), 0)
    return pa.Array.from_buffers(kind, rows, [has_headers.buffers()[1], offsets], children=[pairs])


def arrow_to_batches(
    rows: pa.Table | pa.RecordBatch,
    *,
    timestamp_ms: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    target_bytes: int = BATCH_TARGET_BYTES,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> Iterator[bytearray]:
    """Builds batches from the columns `key`, `value`, `timestamp` and `headers`, each optional.

    Keys and values are binary or string. Timestamps have an Arrow timestamp type or are int64
    milliseconds; missing or null ones become `timestamp_ms`. A batch holds rows up to `target_bytes`
    before compression, at least one.
    """
    for chunk in _chunks(rows):
        columns = _row_columns(chunk, timestamp_ms)
        start = 0
        while start < chunk.num_rows:
            encoded = encode_rows(columns, start, chunk.num_rows, target_bytes - HEADER_SIZE, HEADER_SIZE)
            count = encoded.next_row - start
            header = new_header(
                record_count=count,
                base_timestamp=encoded.base_timestamp,
                max_timestamp=encoded.max_timestamp,
                attributes=attributes(transactional=transactional),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
            )
            yield seal_with_room(encoded.payload, header, codec, level)
            start = encoded.next_row
            if base_sequence != NO_SEQUENCE:
                base_sequence = increment_sequence(base_sequence, count)


def key_hashes(keys: pa.Array) -> pa.Array:
    """Java's murmur2 of each key, made positive; null for a null key, which may go to any partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(keys):
        return pa.array([], pa.int32())
    column = _binary_column(keys, "key")
    if column is None:
        return pa.nulls(len(keys), pa.int32())
    hashes = pa.py_buffer(murmur2_column(column, len(keys)))
    hashed = pa.Array.from_buffers(pa.int32(), len(keys), [None, hashes])
    return pc.if_else(keys.is_valid(), hashed, None) if keys.null_count else hashed


def has_nameless_header(headers: pa.ChunkedArray) -> bool:
    """Whether the name of a header is null in a column of headers. Columns of another type have no headers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = headers.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type) or kind.value_type.get_field_index("key") < 0:
        return False
    return bool(pc.struct_field(pc.list_flatten(headers), "key").null_count)


def _chunks(rows: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Contiguous runs of rows. Many small chunks are joined first, because they would make small batches."""
    import pyarrow as pa

    if isinstance(rows, pa.RecordBatch):
        pieces = [rows]
    else:
        is_split = any(column.num_chunks > 1 for column in rows.itercolumns())
        pieces = (rows.combine_chunks() if is_split else rows).to_batches()
    return (piece for piece in pieces if piece.num_rows)


def _row_columns(chunk: pa.RecordBatch, timestamp_ms: int) -> RowColumns:
    names = chunk.schema.names
    return RowColumns(
        _binary_column(chunk.column("key"), "key") if "key" in names else None,
        _binary_column(chunk.column("value"), "value") if "value" in names else None,
        _timestamps(
            chunk.column("timestamp") if "timestamp" in names else None, chunk.num_rows, timestamp_ms
        ),
        _headers_column(chunk.column("headers")) if "headers" in names else None,
    )


def _binary_column(array: pa.Array, name: str) -> BinaryColumn | None:
    """The array's buffers, None if its type has only nulls. Views and dictionaries are decoded."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        return _binary_column(array.dictionary_decode(), name)
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        array = array.cast(pa.large_binary())
    elif pa.types.is_fixed_size_binary(kind):
        array = array.cast(pa.binary())
    elif not _is_binary(kind):
        raise TypeError(f"column {name!r} is of type {kind}, it must be binary or string")
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    validity, offsets, data = array.buffers()
    return BinaryColumn(validity, offsets or bytes(8), b"" if data is None else data, array.offset, is_large)


def _is_binary(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_string(kind)
        or types.is_large_binary(kind)
        or types.is_large_string(kind)
    )


def _timestamps(array: pa.Array | None, rows: int, timestamp_ms: int) -> Buffer:
    import pyarrow as pa

    if array is None or pa.types.is_null(array.type):
        return _INT64.pack(timestamp_ms) * rows
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_int64(array.type):
        raise TypeError(
            f"column 'timestamp' is of type {array.type}, it must be timestamp or int64 milliseconds"
        )
    if array.null_count:
        array = array.fill_null(timestamp_ms)
    data: Buffer = memoryview(array.buffers()[1]).cast("B")[array.offset * _INT64.size :]
    return data


def _headers_column(array: pa.Array) -> HeadersColumn | None:
    import pyarrow as pa

    kind = array.type
    if pa.types.is_null(kind):
        return None
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type):
        raise TypeError(
            f"column 'headers' is of type {kind}, it must be list<struct<key: string, value: binary>>"
        )
    if pa.types.is_large_list(kind):
        array = array.cast(pa.list_(kind.value_field))
    names = [field.name for field in kind.value_type]
    if sorted(names) != ["key", "value"]:
        raise TypeError(f"headers have the fields {names}, they must be key and value")
    children = dict(zip(names, array.values.flatten(), strict=True))
    total = len(array.values)
    validity, offsets = array.buffers()[:2]
    keys = _binary_column(children["key"], "headers.key") or _all_null(total)
    values = _binary_column(children["value"], "headers.value") or _all_null(total)
    return HeadersColumn(validity, offsets or bytes(4), array.offset, keys, values)


def _all_null(rows: int) -> BinaryColumn:
    return BinaryColumn(bytes((rows + 7) // 8), bytes(4 * (rows + 1)), b"")
