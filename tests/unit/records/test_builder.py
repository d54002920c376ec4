"""Building batches from records and reading them."""

from __future__ import annotations

import pytest

from felice.records.batch import BatchHeader, TimestampType, stamp, verify_crc
from felice.records.builder import BatchBuilder, build_batch, build_control, rebuild_batch
from felice.records.compression import Codec
from felice.records.control import ControlType, EndTransactionMarker, control_type, end_transaction_marker
from felice.records.errors import CorruptBatch, InvalidRecord
from felice.records.reader import read_batch, read_records
from felice.records.record import Record

RECORDS = [
    Record(0, 1000, b"key", b"value", ()),
    Record(1, 900, None, None, (("h", b"1"), ("h", None), ("é", b""))),
    Record(2, 2000, b"", b"", ()),
    Record(3, -1, b"k" * 200, b"v" * 70000, ()),
]


@pytest.mark.parametrize("codec", Codec)
def test_records_survive_a_round_trip(codec: Codec) -> None:
    data = build_batch(RECORDS, codec)
    header = BatchHeader.parse(data)
    assert list(read_records(data, check_crcs=True)) == RECORDS
    assert header.codec is codec
    assert (header.size_bytes, header.record_count, header.last_offset_delta) == (len(data), 4, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 2000)


def test_records_have_absolute_offsets() -> None:
    data = bytearray(build_batch(RECORDS))
    stamp(data, 0, 500, 1)
    assert [record.offset for record in read_records(data)] == [500, 501, 502, 503]


def test_the_builder_counts_what_it_holds() -> None:
    builder = BatchBuilder()
    before = builder.size_bytes
    taken = builder.append(1, b"k", b"v", [("h", b"x")])
    assert (builder.size_bytes - before, builder.record_count, builder.max_timestamp) == (taken, 1, 1)
    assert builder.size_bytes == len(builder.build())


def test_producer_fields_may_be_set_until_the_batch_is_built() -> None:
    builder = BatchBuilder(Codec.LZ4, transactional=True)
    builder.append(1, None, b"v")
    builder.producer_id, builder.producer_epoch, builder.base_sequence = 7, 8, 9
    header = BatchHeader.parse(builder.build())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, 9)
    assert header.is_transactional


def test_an_empty_batch_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build()


def test_keys_and_values_may_be_any_bytes() -> None:
    builder = BatchBuilder()
    builder.append(1, bytearray(b"k"), memoryview(b"xvx")[1:2])
    (record,) = read_records(builder.build())
    assert (record.key, record.value) == (b"k", b"v")
    with pytest.raises(TypeError):
        BatchBuilder().append(1, None, "text")  # type: ignore[arg-type]


def test_log_append_time_is_every_records_time() -> None:
    data = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert [record.timestamp for record in read_records(data)] == [2000] * 4


def test_markers() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 12)
    data = build_control(
        marker, producer_id=5, producer_epoch=6, timestamp_ms=77, base_offset=9, leader_epoch=1
    )
    header = BatchHeader.parse(data)
    assert verify_crc(data, header)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, -1)
    assert (header.base_offset, header.next_offset, header.max_timestamp) == (9, 10, 77)
    (record,) = read_batch(data, header)
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\0\x0c")
    assert end_transaction_marker(record) == marker
    assert list(read_records(data)) == []


def test_unknown_control_types_are_not_an_error() -> None:
    assert control_type(b"\0\0\0\x63") is None
    assert end_transaction_marker(Record(0, 0, b"\0\0\0\x02", b"")) is None
    for key in (None, b"\0\0\0", b"\xff\xff\0\0"):
        with pytest.raises(InvalidRecord):
            control_type(key)
    with pytest.raises(InvalidRecord):
        end_transaction_marker(Record(0, 0, b"\0\0\0\0", None))


def test_a_compacted_batch_keeps_its_offsets_and_sequences() -> None:
    data = bytearray(build_batch(RECORDS, Codec.ZSTD, producer_id=1, producer_epoch=0, base_sequence=40))
    stamp(data, 0, 100, 3)
    header = BatchHeader.parse(data)
    kept = [record for record in read_batch(data, header) if record.offset in (101, 103)]
    smaller = rebuild_batch(header, kept)
    after = BatchHeader.parse(smaller)
    assert verify_crc(smaller, after)
    assert read_batch(smaller, after) == kept
    assert (after.base_offset, after.last_offset, after.record_count) == (100, 103, 2)
    assert (after.last_sequence, after.leader_epoch, after.codec) == (43, 3, Codec.ZSTD)
    assert after.max_timestamp == 900


def test_an_emptied_batch_keeps_its_producer() -> None:
    data = build_batch(RECORDS, Codec.GZIP, producer_id=1, producer_epoch=0, base_sequence=40)
    header = BatchHeader.parse(data)
    empty = rebuild_batch(header, [])
    after = BatchHeader.parse(empty)
    assert len(empty) == 61 and verify_crc(empty, after)
    assert (after.record_count, after.next_offset, after.last_sequence) == (0, 4, 43)
    assert after.max_timestamp == header.max_timestamp
    assert list(read_records(empty)) == []


def test_a_delete_horizon_replaces_the_base_timestamp() -> None:
    header = BatchHeader.parse(data := build_batch(RECORDS))
    once = rebuild_batch(header, read_batch(data, header), delete_horizon_ms=123456)
    after = BatchHeader.parse(once)
    assert after.delete_horizon_ms == 123456
    assert read_batch(once, after) == RECORDS
    twice = rebuild_batch(after, RECORDS[1:2], delete_horizon_ms=999999)
    assert BatchHeader.parse(twice).delete_horizon_ms == 123456
    assert list(read_records(twice)) == RECORDS[1:2]


def test_reading_a_partial_batch_is_an_error() -> None:
    data = build_batch(RECORDS)
    with pytest.raises(CorruptBatch):
        read_batch(data[:-1], BatchHeader.parse(data))


def test_reading_with_crcs_finds_a_changed_byte() -> None:
    data = bytearray(build_batch(RECORDS))
    data[-1000] ^= 1
    assert len(list(read_records(data))) == 4
    with pytest.raises(CorruptBatch):
        list(read_records(data, check_crcs=True))
