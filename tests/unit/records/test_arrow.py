"""Batches to Arrow columns and back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from felice.records.batch import BatchHeader, TimestampType, stamp, verify_crc
from felice.records.builder import build_batch, build_control
from felice.records.compression import Codec
from felice.records.control import ControlType, EndTransactionMarker
from felice.records.errors import CorruptBatch, InvalidRecord
from felice.records.kernels import murmur2
from felice.records.reader import read_records
from felice.records.record import Record

pa = pytest.importorskip("pyarrow")

from felice.records.arrow import (  # noqa: E402
    ArrowReader,
    arrow_schema,
    arrow_to_batches,
    batches_to_arrow,
    key_hashes,
)

RECORDS = [
    Record(0, 1000, b"k0", b"v0", (("h", b"1"), ("é", None))),
    Record(1, 1001, None, b"", ()),
    Record(2, 1002, b"", None, (("g", b""),)),
]


def stamped(offset: int, records: list[Record] = RECORDS, **options: Any) -> bytes:
    batch = bytearray(build_batch(records, **options))
    stamp(batch, 0, offset, 0)
    return bytes(batch)


def table(*buffers: bytes, **options: Any) -> Any:
    batches = list(batches_to_arrow(buffers, **options))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches)


def offsets(*buffers: bytes, **options: Any) -> list[int]:
    batches = list(batches_to_arrow(buffers, **options))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("codec", Codec)
def test_every_field_arrives(codec: Codec) -> None:
    rows = table(stamped(10, codec=codec), stamped(13), topic="t", partition=4, with_headers=True)
    assert rows.schema.equals(arrow_schema(with_topic=True, with_partition=True, with_headers=True))
    assert rows.column("key").to_pylist() == [b"k0", None, b""] * 2
    assert rows.column("value").to_pylist() == [b"v0", b"", None] * 2
    assert rows.column("topic").to_pylist() == ["t"] * 6
    assert rows.column("partition").to_pylist() == [4] * 6
    assert rows.column("offset").to_pylist() == [10, 11, 12, 13, 14, 15]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [1_000_000, 1_001_000, 1_002_000] * 2
    assert rows.column("timestampType").to_pylist() == [0] * 6
    assert rows.column("headers").to_pylist()[:3] == [
        [{"key": "h", "value": b"1"}, {"key": "é", "value": None}],
        None,
        [{"key": "g", "value": b""}],
    ]


def test_columns_that_were_not_requested_are_absent() -> None:
    assert table(stamped(0)).schema.equals(arrow_schema())
    assert arrow_schema().names == ["key", "value", "offset", "timestamp", "timestampType"]


def test_rows_without_nulls_have_no_bitmap() -> None:
    (batch,) = batches_to_arrow([stamped(0, [Record(0, 0, b"k", b"v")] * 9)])
    assert batch.column("key").buffers()[0] is None
    assert batch.column("key").null_count == 0


def test_append_time_is_the_timestamp_of_every_row() -> None:
    rows = table(stamped(0, timestamp_type=TimestampType.LOG_APPEND_TIME), stamped(3))
    assert rows.column("timestamp").cast(pa.int64()).to_pylist()[:4] == [1_002_000] * 3 + [1_000_000]
    assert rows.column("timestampType").to_pylist() == [1, 1, 1, 0, 0, 0]


def test_rows_outside_the_range_are_left_out() -> None:
    buffers = [stamped(0) + stamped(3), stamped(6)]
    assert offsets(*buffers, start_offset=2, end_offset=7) == [2, 3, 4, 5, 6]
    assert offsets(*buffers, start_offset=9) == []
    assert offsets(*buffers, end_offset=0) == []


def marker(offset: int, kind: ControlType) -> bytes:
    return build_control(
        EndTransactionMarker(kind, 0), producer_id=1, producer_epoch=0, timestamp_ms=0, base_offset=offset
    )


def test_control_batches_are_left_out_and_aborted_ones_on_request() -> None:
    transaction: dict[str, Any] = {
        "producer_id": 1,
        "producer_epoch": 0,
        "base_sequence": 0,
        "transactional": True,
    }
    log = [
        stamped(0, **transaction) + marker(3, ControlType.ABORT),
        stamped(4, **transaction) + marker(7, ControlType.COMMIT),
    ]
    assert offsets(*log) == [0, 1, 2, 4, 5, 6]
    assert offsets(*log, aborted=[(1, 0)]) == [4, 5, 6]
    assert offsets(*log, aborted=[]) == [0, 1, 2, 4, 5, 6]


def test_the_reader_knows_where_reading_continues() -> None:
    reader = ArrowReader(1, 100)
    assert list(reader.add(stamped(0))) == []
    assert (reader.rows, reader.next_offset) == (2, 3)
    assert list(reader.add(marker(3, ControlType.COMMIT))) == []
    assert reader.next_offset == 4
    batch = reader.finish()
    assert batch is not None and batch.num_rows == 2 and reader.rows == 0
    assert reader.finish() is None
    assert list(reader.add(stamped(98))) == []
    assert reader.next_offset == 100
    batch = reader.finish()
    assert batch is not None and batch.column("offset").to_pylist() == [98, 99]


def test_a_full_column_starts_the_next_record_batch() -> None:
    reader = ArrowReader(column_max_bytes=50)
    full = [batch for offset in range(0, 60, 3) for batch in reader.add(stamped(offset))]
    assert len(full) > 1
    rows = [*full, reader.finish()]
    assert [o for batch in rows for o in batch.column("offset").to_pylist()] == list(range(60))


def test_a_broken_batch_raises_and_adds_nothing() -> None:
    reader = ArrowReader()
    assert list(reader.add(stamped(0))) == []
    data = bytearray(stamped(3))
    data[-3] ^= 0x10
    with pytest.raises(CorruptBatch):
        list(reader.add(data))
    trusting = ArrowReader(check_crcs=False)
    data[70] = 0x7F
    with pytest.raises(InvalidRecord):
        list(trusting.add(data))
    assert (reader.rows, trusting.rows) == (3, 0)
    batch = reader.finish()
    assert batch is not None and batch.num_rows == 3


def test_header_keys_that_are_not_utf8_are_repaired() -> None:
    data = bytearray(stamped(0, [Record(0, 0, None, None, (("ab", b"x"),))]))
    data[data.index(b"ab")] = 0xFF
    (batch,) = batches_to_arrow([data], with_headers=True, check_crcs=False)
    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == [[{"key": "�b", "value": b"x"}]]


def test_without_rows_there_is_no_record_batch() -> None:
    assert list(batches_to_arrow([])) == []
    assert list(batches_to_arrow([b""])) == []


# --- columns to batches


def rows_of(batches: list[bytearray]) -> list[Record]:
    for batch in batches:
        assert verify_crc(batch, BatchHeader.parse(batch))
    return [record._replace(offset=0) for batch in batches for record in read_records(batch)]


HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@pytest.mark.parametrize("codec", Codec)
def test_rows_become_records(codec: Codec) -> None:
    rows = pa.table(
        {
            "key": pa.array([b"k", None, b""], pa.binary()),
            "value": pa.array([None, "v", "é"], pa.string()),
            "timestamp": pa.array([1_000_999, None, 2_000_000], pa.timestamp("us", tz="UTC")),
            "headers": pa.array(
                [None, [], [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]], HEADERS
            ),
        }
    )
    batches = list(arrow_to_batches(rows, timestamp_ms=77, codec=codec))
    assert rows_of(batches) == [
        Record(0, 1000, b"k", None, ()),
        Record(0, 77, None, b"v", ()),
        Record(0, 2000, b"", "é".encode(), (("h", b"1"), ("h", None))),
    ]
    header = BatchHeader.parse(batches[0])
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (1000, 2000, 3)


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.binary(2),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_keys_and_values_of_every_binary_type(kind: Any) -> None:
    values = pa.array(["aa", None, "bb", "cc"], pa.string()).cast(pa.binary()).cast(kind)
    rows = pa.table({"value": values.slice(1), "key": values.slice(0, 3)})
    expected = [(b"aa", None), (None, b"bb"), (b"bb", b"cc")]
    found = rows_of(list(arrow_to_batches(rows, timestamp_ms=1)))
    assert [(record.key, record.value) for record in found] == expected


def test_missing_and_null_columns() -> None:
    rows = pa.table({"value": pa.nulls(2), "headers": pa.nulls(2), "timestamp": pa.nulls(2)})
    assert rows_of(list(arrow_to_batches(rows, timestamp_ms=9))) == [Record(0, 9, None, None, ())] * 2


def test_int64_timestamps_are_milliseconds() -> None:
    rows = pa.table({"value": [b"a", b"b", b"c"], "timestamp": pa.array([1, 5, None], pa.int64())}).slice(1)
    assert [r.timestamp for r in rows_of(list(arrow_to_batches(rows, timestamp_ms=9)))] == [5, 9]


def test_sliced_timestamps() -> None:
    for kind in (pa.int64(), pa.timestamp("ms")):
        rows = pa.table({"timestamp": pa.array([1, 5, 7], kind)}).slice(1)
        assert [r.timestamp for r in rows_of(list(arrow_to_batches(rows, timestamp_ms=9)))] == [5, 7]


def test_sliced_headers_and_other_field_orders() -> None:
    kind = pa.large_list(pa.struct([pa.field("value", pa.binary()), pa.field("key", pa.binary())]))
    headers = pa.array([[{"key": b"x", "value": b"1"}], None, [{"key": b"y", "value": b"2"}]], kind)
    rows = pa.table({"headers": headers}).slice(1)
    assert [r.headers for r in rows_of(list(arrow_to_batches(rows, timestamp_ms=1)))] == [(), (("y", b"2"),)]


@pytest.mark.parametrize(
    "column",
    [
        {"value": pa.array([1, 2])},
        {"key": pa.array([1.5])},
        {"timestamp": pa.array(["yesterday"])},
        {"headers": pa.array([["h"]])},
        {"headers": pa.array([[{"name": "h"}]])},
    ],
)
def test_a_column_of_another_type_is_refused_by_name(column: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(column))):
        list(arrow_to_batches(pa.table(column), timestamp_ms=1))


def test_a_null_header_key_is_refused() -> None:
    rows = pa.table({"headers": pa.array([[{"key": None, "value": b"1"}]], HEADERS)})
    with pytest.raises(ValueError, match="header key is null"):
        list(arrow_to_batches(rows, timestamp_ms=1))


def test_batches_end_at_the_target_size_and_sequences_continue() -> None:
    rows = pa.table({"value": pa.array([b"v" * 100] * 1000)})
    batches = list(
        arrow_to_batches(
            rows,
            timestamp_ms=1,
            target_bytes=5000,
            producer_id=3,
            producer_epoch=2,
            base_sequence=2**31 - 100,
            transactional=True,
        )
    )
    headers = [BatchHeader.parse(batch) for batch in batches]
    assert sum(header.record_count for header in headers) == 1000
    assert all(4800 < header.size_bytes <= 5000 for header in headers[:-1])
    assert all(header.is_transactional and header.producer_epoch == 2 for header in headers)
    for before, after in pairwise(headers):
        assert after.base_sequence == (before.last_sequence + 1) % 2**31


def test_a_row_larger_than_the_target_gets_its_own_batch() -> None:
    rows = pa.table({"value": pa.array([b"a", b"b" * 9000, b"c"])})
    counts = [
        BatchHeader.parse(b).record_count for b in arrow_to_batches(rows, timestamp_ms=1, target_bytes=500)
    ]
    assert counts == [1, 1, 1]


def test_many_small_chunks_make_few_batches() -> None:
    chunk = pa.table({"value": pa.array([b"v"])})
    assert len(list(arrow_to_batches(pa.concat_tables([chunk] * 50), timestamp_ms=1))) == 1
    assert list(arrow_to_batches(chunk.slice(1), timestamp_ms=1)) == []


def test_key_hashes_are_javas() -> None:
    # Values of Kafka's own UtilsTest, made positive.
    known = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    known |= {
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    known |= {"abc": 479470107}
    expected = [value & 0x7FFFFFFF for value in known.values()]
    assert key_hashes(pa.array(list(known))).to_pylist() == expected
    assert [murmur2(key.encode()) for key in known] == expected
    assert key_hashes(pa.array(["x", None, "21"]).slice(1)).to_pylist() == [None, expected[0]]
    assert key_hashes(pa.array([], pa.binary())).to_pylist() == []
    assert key_hashes(pa.nulls(2)).to_pylist() == [None, None]
