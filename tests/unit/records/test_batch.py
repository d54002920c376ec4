"""The batch header, field by field, compared with bytes written by hand."""

from __future__ import annotations

import pytest

from felice.protocol.errors import ErrorCode
from felice.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    TimestampType,
    increment_sequence,
    iter_batches,
    restamp,
    stamp,
    verify_crc,
)
from felice.records.builder import build_batch
from felice.records.compression import Codec
from felice.records.errors import CorruptBatch, InvalidRecord, UnsupportedCodec
from felice.records.record import Record

# One record, key "k", value "v", encoded by Kafka's rules. Every field has a different value.
GOLDEN = bytes.fromhex(
    "0000000000000007"  # base offset 7
    "0000003a"  # 58 bytes follow
    "00000003"  # leader epoch 3
    "02"
    "00000000"  # crc, sealed below
    "0010"  # transactional
    "00000000"
    "0000000000000064"  # base timestamp 100
    "0000000000000065"  # max timestamp 101
    "0000000000000009"  # producer id 9
    "0004"
    "00000005"  # base sequence 5
    "00000001"
    "10 00 02 00 02 6b 02 76 00"
)


def batch(records: int = 3, **options: int) -> bytearray:
    rows = [Record(0, 1000 + row, b"k", b"value %d" % row) for row in range(records)]
    return bytearray(build_batch(rows, **options))  # type: ignore[arg-type]


def test_parse_reads_every_field() -> None:
    header = BatchHeader.parse(GOLDEN)
    assert header == BatchHeader(7, 70, 3, 2, 0, 0x10, 0, 100, 101, 9, 4, 5, 1, 0)
    assert (header.last_offset, header.next_offset, header.last_sequence, header.end) == (7, 8, 5, 70)
    assert header.is_transactional
    assert not (header.is_control or header.is_log_append_time or header.has_delete_horizon)
    assert header.codec is Codec.NONE


def test_a_built_batch_has_kafkas_bytes() -> None:
    built = bytearray(
        build_batch(
            [Record(0, 100, b"a", b"b")],
            producer_id=9,
            producer_epoch=4,
            base_sequence=5,
            transactional=True,
            base_offset=7,
            leader_epoch=3,
        )
    )
    expected = bytearray(GOLDEN)
    expected[17:21] = bytes.fromhex("929498bf")  # aiokafka computes the same
    expected[42] = 0x64  # one record: the maximum is the base timestamp
    expected[HEADER_SIZE:] = bytes.fromhex("10 00 00 00 02 61 02 62 00")
    assert built == expected


def test_the_header_is_found_at_a_position() -> None:
    assert BatchHeader.parse(b"xyz" + GOLDEN, 3) == BatchHeader.parse(GOLDEN)._replace(position=3)


@pytest.mark.parametrize("size", [0, 11, 12, 16, 17, 60])
def test_a_partial_header_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        BatchHeader.parse(GOLDEN[:size])


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_a_length_shorter_than_a_header_is_corrupt(length: int) -> None:
    damaged = bytearray(GOLDEN)
    damaged[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch):
        BatchHeader.parse(damaged)
    with pytest.raises(CorruptBatch):
        list(iter_batches(damaged))


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_formats_are_refused_as_invalid(magic: int) -> None:
    legacy = bytearray(GOLDEN)
    legacy[16] = magic
    with pytest.raises(InvalidRecord) as refused:
        BatchHeader.parse(legacy)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(InvalidRecord):
        BatchHeader.parse(legacy[:30])  # messages of format 0 are shorter than our header


@pytest.mark.parametrize("magic", [3, 255])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    unknown = bytearray(GOLDEN)
    unknown[16] = magic
    with pytest.raises(CorruptBatch):
        BatchHeader.parse(unknown)


def test_flags_are_distinguished() -> None:
    flags = {
        0x08: "is_log_append_time",
        0x10: "is_transactional",
        0x20: "is_control",
        0x40: "has_delete_horizon",
    }
    for bit in flags:
        header = BatchHeader.parse(GOLDEN)._replace(attributes=bit)
        assert {name for name in flags.values() if getattr(header, name)} == {flags[bit]}
    assert BatchHeader.parse(GOLDEN)._replace(attributes=0x40).delete_horizon_ms == 100
    assert BatchHeader.parse(GOLDEN).delete_horizon_ms is None


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec_id: int) -> None:
    with pytest.raises(UnsupportedCodec):
        _ = BatchHeader.parse(GOLDEN)._replace(attributes=codec_id).codec


def test_stamp_leaves_the_crc_right() -> None:
    data = bytearray(b"...") + batch()
    stamp(data, 3, 123456789012, 42)
    header = BatchHeader.parse(data, 3)
    assert (header.base_offset, header.leader_epoch) == (123456789012, 42)
    assert verify_crc(data, header)


def test_restamp_updates_the_crc() -> None:
    data = bytearray(b"...") + batch()
    before = BatchHeader.parse(data, 3)
    append_time = TimestampType.LOG_APPEND_TIME
    returned = restamp(data, before, max_timestamp=99, timestamp_type=append_time)
    header = BatchHeader.parse(data, 3)
    assert returned == header
    assert header.is_log_append_time and header.timestamp_type is append_time
    assert header.max_timestamp == 99
    assert verify_crc(data, header) and not verify_crc(data, before)
    restamp(data, header, max_timestamp=before.max_timestamp, timestamp_type=TimestampType.CREATE_TIME)
    assert BatchHeader.parse(data, 3) == before


def test_any_changed_byte_under_the_crc_is_detected() -> None:
    data = batch()
    header = BatchHeader.parse(data)
    for position in range(21, len(data)):
        data[position] ^= 0x40
        assert not verify_crc(data, header)
        data[position] ^= 0x40
    assert verify_crc(data, header)


def test_a_partial_batch_does_not_match_its_crc() -> None:
    data = batch()
    assert not verify_crc(data[:-1], BatchHeader.parse(data))


def test_iter_batches_stops_before_a_partial_tail() -> None:
    one, two = batch(1), batch(2)
    for tail in (b"", b"\0", one[:11], one[:12], one[:60], one[:-1]):
        data = one + two + tail
        assert [header.position for header in iter_batches(data)] == [0, len(one)]
    assert [header.record_count for header in iter_batches(one + two, len(one))] == [2]
    assert [header.record_count for header in iter_batches(one + two, 0, len(one) + 5)] == [1]


def test_sequences_wrap_to_zero_after_the_largest() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 2, 3) == 1
    header = BatchHeader.parse(batch(3, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
    assert BatchHeader.parse(batch(3)).last_sequence == -1
