"""Validation of produced batches: what the leader refuses, and what it changes in an accepted batch."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import lz4.frame
import pytest

from felice.config import TopicConfig
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import HEADER_SIZE, BatchHeader, TimestampType, seal, verify_crc, write_header
from felice.records.builder import assemble, build_batch, build_control, new_header
from felice.records.compression import Codec
from felice.records.control import ControlType, EndTransactionMarker
from felice.records.kernels import encode_record
from felice.records.reader import read_records
from felice.records.record import Record
from felice.records.validate import (
    INLINE_MAX_BYTES,
    RECORD_ERRORS_MAX,
    NeedsThread,
    ProduceRules,
    Validated,
    only_batch,
    validate_batch,
    validate_produce,
    validation_result,
)

NOW_MS = 1_700_000_000_000
RULES = ProduceRules.of(TopicConfig())
COMPACT = replace(RULES, is_compacted=True)
APPEND_TIME = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
RECORDS = [Record(index, NOW_MS + index, b"k%d" % index, b"v" * 100) for index in range(5)]


def batch(records: list[Record] = RECORDS, codec: Codec = Codec.NONE, **options: Any) -> bytearray:
    return bytearray(build_batch(records, codec, **options))


def changed(data: bytearray, **fields: Any) -> bytearray:
    """The batch with other header fields and a new CRC."""
    write_header(data, BatchHeader.parse(data)._replace(**fields))
    return data


def validate(data: Any, rules: ProduceRules = RULES, **options: Any) -> Validated:
    return validate_produce(data, rules, now_ms=NOW_MS, **options)


def refusal(data: Any, rules: ProduceRules = RULES, **options: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        validate(data, rules, **options)
    return refused.value


def deltas(codec: Codec, *offset_deltas: int) -> bytearray:
    """A batch whose records have these offset deltas, and decreasing timestamps."""
    payload = bytearray()
    for index, delta in enumerate(offset_deltas):
        encode_record(payload, delta, -10 * index, b"k", b"%d" % index)
    header = new_header(record_count=len(offset_deltas), base_timestamp=NOW_MS, max_timestamp=NOW_MS)
    return assemble(header, payload, codec)


# --- one batch


@pytest.mark.parametrize("data", [b"", bytes(11), batch()[:-1], batch()[:12]])
def test_no_whole_batch(data: bytes) -> None:
    assert refusal(data).code is ErrorCode.INVALID_RECORD


def test_two_batches() -> None:
    assert refusal(batch() + batch()).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_magic(magic: int) -> None:
    data = batch()
    data[16] = magic
    assert refusal(data).code is ErrorCode.INVALID_RECORD


def test_a_partial_tail_is_ignored() -> None:
    assert validate(batch() + batch()[:40]).records == batch()


def test_zstd_in_an_old_request() -> None:
    data = batch(codec=Codec.ZSTD)
    assert refusal(data, zstd_allowed=False).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert validate(data).records == data
    assert only_batch(batch(codec=Codec.LZ4), zstd_allowed=False).codec is Codec.LZ4


def test_an_unknown_codec() -> None:
    assert refusal(changed(batch(), attributes=6)).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# --- the header


def test_base_offset_other_than_zero() -> None:
    assert refusal(batch(base_offset=1)).code is ErrorCode.INVALID_RECORD


def test_a_batch_larger_than_the_topic_takes() -> None:
    size = len(batch())
    assert refusal(batch(), replace(RULES, max_message_bytes=size - 1)).code is ErrorCode.MESSAGE_TOO_LARGE
    assert validate(batch(), replace(RULES, max_message_bytes=size)).header.size_bytes == size


def test_a_wrong_size_is_reported_before_a_broken_crc() -> None:
    data = batch()
    data[-1] ^= 1
    assert refusal(data, replace(RULES, max_message_bytes=10)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_broken_crc() -> None:
    data = batch()
    data[-1] ^= 1
    assert refusal(data).code is ErrorCode.CORRUPT_MESSAGE


def test_a_length_below_the_header() -> None:
    data = batch()
    data[8:12] = (48).to_bytes(4, "big")
    assert refusal(data).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 4},
        {"last_offset_delta": 3},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": -1, "last_offset_delta": -2},
    ],
)
def test_counts_that_contradict_the_offsets(fields: dict[str, int]) -> None:
    assert refusal(changed(batch(), **fields)).code is ErrorCode.INVALID_RECORD


def test_a_count_other_than_the_records() -> None:
    for count in (4, 6, 2**31 - 1):
        data = changed(batch(), record_count=count, last_offset_delta=count - 1)
        assert refusal(data).code is ErrorCode.INVALID_RECORD


def control() -> bytearray:
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    return bytearray(build_control(marker, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS))


def test_control_records_from_a_client() -> None:
    assert refusal(control()).code is ErrorCode.INVALID_RECORD


def test_control_records_from_a_coordinator() -> None:
    data = control()
    rules = replace(COMPACT, codec=Codec.ZSTD)
    validated = validate_batch(data, BatchHeader.parse(data), rules, now_ms=NOW_MS, from_client=False)
    assert validated.records == data


def test_a_producer_id_without_sequence() -> None:
    assert refusal(batch(producer_id=7, producer_epoch=0)).code is ErrorCode.INVALID_RECORD
    assert validate(batch(producer_id=7, producer_epoch=0, base_sequence=0)).header.producer_id == 7


# --- the records


@pytest.mark.parametrize("codec", Codec)
def test_a_malformed_record(codec: Codec) -> None:
    payload = bytearray()
    for index in range(3):
        encode_record(payload, index, 0, b"key", b"value")
    payload[19] = 100  # a key length past the record's end
    header = new_header(record_count=3, base_timestamp=NOW_MS, max_timestamp=NOW_MS)
    error = refusal(assemble(header, payload, codec))
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in getattr(error, "record_errors", [])] == [1]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_compressed_bytes_that_cannot_be_read(codec: Codec) -> None:
    data = batch(codec=codec)
    cut = data[: HEADER_SIZE + 20]
    cut[8:12] = (len(cut) - 12).to_bytes(4, "big")
    seal(cut, 0, len(cut))
    assert refusal(cut).code is ErrorCode.CORRUPT_MESSAGE


def test_records_that_grow_beyond_the_limit() -> None:
    data = batch([Record(0, NOW_MS, None, bytes(100_000))], Codec.ZSTD)
    assert refusal(data, max_decompressed_bytes=99_999).code is ErrorCode.MESSAGE_TOO_LARGE
    assert validate(data, max_decompressed_bytes=101_000).records == data


def test_null_keys_on_a_compacted_topic_are_named() -> None:
    records = [record._replace(key=None if record.offset in (1, 3) else b"") for record in RECORDS]
    assert validate(batch(records)).records == batch(records)
    error = refusal(batch(records), COMPACT)
    assert error.code is ErrorCode.INVALID_RECORD
    message = "Compacted topic cannot accept message without key"
    assert getattr(error, "record_errors", None) == [(1, message), (3, message)]


@pytest.mark.parametrize(
    ("timestamp", "is_refused"), [(NOW_MS + 3_600_000, False), (NOW_MS + 3_600_001, True)]
)
def test_timestamps_of_the_future(timestamp: int, is_refused: bool) -> None:
    records = [*RECORDS[:2], RECORDS[2]._replace(timestamp=timestamp), *RECORDS[3:]]
    if is_refused:
        error = refusal(batch(records))
        assert error.code is ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in getattr(error, "record_errors", [])] == [2]
    else:
        assert validate(batch(records)).header.max_timestamp == timestamp


@pytest.mark.parametrize("timestamp", [NOW_MS - 1001, 0, -5])
def test_timestamps_of_the_past(timestamp: int) -> None:
    rules = replace(RULES, timestamp_before_max_ms=1000)
    records = [RECORDS[0]._replace(timestamp=timestamp), *RECORDS[1:]]
    assert refusal(batch(records), rules).code is ErrorCode.INVALID_TIMESTAMP
    assert validate(batch(records), APPEND_TIME)
    assert validate(batch(records))
    records[0] = RECORDS[0]._replace(timestamp=NOW_MS - 1000)
    assert validate(batch(records), rules)


def test_records_without_timestamp_are_exempt() -> None:
    rules = replace(RULES, timestamp_before_max_ms=1000)
    records = [RECORDS[0]._replace(timestamp=-1), *RECORDS[1:]]
    assert validate(batch(records), rules).header.max_timestamp == NOW_MS + 4
    assert validate(batch([records[0]]), rules).header.max_timestamp == -1


def test_faults_of_both_kinds_raise_invalid_record_with_all_faults() -> None:
    records = [RECORDS[0]._replace(key=None), RECORDS[1]._replace(timestamp=NOW_MS + 10**10)]
    error = refusal(batch(records), COMPACT)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in getattr(error, "record_errors", [])] == [0, 1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_producers_may_not_set_append_time_where_the_broker_does(codec: Codec) -> None:
    claimed = batch(codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
    error = refusal(claimed, APPEND_TIME)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert len(getattr(error, "record_errors", [])) == 5
    header = validate(claimed, RULES).header
    assert (header.is_log_append_time, header.max_timestamp) == (False, NOW_MS + 4)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("bits", [0x40, 0x80, 0xC0, 0x4000])
def test_bits_without_meaning_end_where_the_broker_writes_attributes(codec: Codec, bits: int) -> None:
    """Measured with Kafka 4.3.1: kept, with append time only the delete horizon, compressed anew none."""
    data = batch(codec=codec)
    header = BatchHeader.parse(data)
    write_header(data, header._replace(attributes=header.attributes | bits))
    codec_id, append_time = header.attributes, 0x08
    assert validate(bytes(data), RULES).header.attributes == codec_id | bits
    stamped = validate(bytes(data), APPEND_TIME).header.attributes
    assert stamped == codec_id | append_time | (bits & 0x40)
    for rules, kind in (
        (replace(RULES, codec=Codec.LZ4), 0),
        (replace(APPEND_TIME, codec=Codec.LZ4), append_time),
    ):
        assert validate(bytes(data), rules).header.attributes == 3 | kind


# --- changes by the broker


@pytest.mark.parametrize("codec", Codec)
def test_a_good_batch_keeps_its_bytes_and_its_buffer(codec: Codec) -> None:
    data = batch(codec=codec)
    original = bytes(data)
    validated = validate(data)
    assert bytes(validated.records) == original
    assert validated.header == BatchHeader.parse(original)
    assert (validated.offset_delta_of_max_timestamp, validated.log_append_time_ms) == (4, -1)
    validated.records[0] = 1  # the leader stamps the batch in place
    assert data[0] == 1


def test_bytes_that_cannot_be_written_are_copied() -> None:
    validated = validate(bytes(batch()))
    assert isinstance(validated.records, bytearray)
    assert validated.records == batch()


def test_a_batch_is_found_after_other_bytes() -> None:
    data = bytearray(b"frame") + batch()
    validated = validate_batch(data, BatchHeader.parse(data, 5), RULES, now_ms=NOW_MS)
    assert validated.records == batch()
    assert validated.header == BatchHeader.parse(batch())


def test_append_time_is_written_into_the_batch() -> None:
    validated = validate(batch(codec=Codec.LZ4), APPEND_TIME)
    header = BatchHeader.parse(validated.records)
    assert header == validated.header
    assert verify_crc(validated.records, header)
    assert header.is_log_append_time and header.max_timestamp == NOW_MS
    assert (validated.offset_delta_of_max_timestamp, validated.log_append_time_ms) == (0, NOW_MS)
    assert {record.timestamp for record in read_records(validated.records)} == {NOW_MS}


def test_a_wrong_maximum_timestamp_is_corrected() -> None:
    validated = validate(changed(batch(), max_timestamp=5))
    assert validated.header.max_timestamp == NOW_MS + 4
    assert verify_crc(validated.records, BatchHeader.parse(validated.records))


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_batches_are_stored_with_the_topics_codec(source: Codec, target: Codec) -> None:
    data = batch(codec=source, producer_id=3, producer_epoch=1, base_sequence=9, transactional=True)
    validated = validate(data, replace(RULES, codec=target))
    header = BatchHeader.parse(validated.records)
    assert header == validated.header
    assert header.codec is target
    assert verify_crc(validated.records, header)
    assert list(read_records(validated.records)) == RECORDS
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 9)
    assert header.is_transactional
    if source is target:
        assert validated.records == data


def test_a_batch_too_large_once_stored() -> None:
    data = batch([Record(0, NOW_MS, None, bytes(5000))], Codec.ZSTD)
    rules = replace(RULES, codec=Codec.NONE, max_message_bytes=1000)
    assert refusal(data, rules).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("offset_deltas", [(0, 0, 0), (1, 2, 3), (0, 5, 2), (2, 1, 0)])
def test_deltas_with_gaps_are_renumbered(codec: Codec, offset_deltas: tuple[int, ...]) -> None:
    validated = validate(deltas(codec, *offset_deltas))
    header = BatchHeader.parse(validated.records)
    assert verify_crc(validated.records, header)
    assert header.codec is codec
    records = list(read_records(validated.records))
    assert [(r.offset, r.timestamp, r.value) for r in records] == [
        (0, NOW_MS, b"0"),
        (1, NOW_MS - 10, b"1"),
        (2, NOW_MS - 20, b"2"),
    ]
    assert validated.offset_delta_of_max_timestamp == 0


def test_rules_come_from_the_topics_configuration() -> None:
    config = TopicConfig.parse(
        {
            "cleanup.policy": "compact,delete",
            "compression.type": "zstd",
            "compression.zstd.level": "7",
            "max.message.bytes": "4000",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "10",
            "message.timestamp.after.max.ms": "20",
        }
    )
    rules = ProduceRules.of(config)
    assert rules == ProduceRules(4000, Codec.ZSTD, 7, TimestampType.LOG_APPEND_TIME, 10, 20, True)
    assert (RULES.codec, RULES.level, RULES.is_compacted) == (None, None, False)
    assert ProduceRules.of(TopicConfig.parse({"compression.type": "uncompressed"})).codec is Codec.NONE


# --- frames that Java clients cannot read


def lz4_batch(*, linked: bool, text: bytes = b"x" * 200_000) -> bytearray:
    payload = bytearray()
    encode_record(payload, 0, 0, b"k", text)
    frame = lz4.frame.compress(bytes(payload), block_linked=linked, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    header = new_header(record_count=1, base_timestamp=NOW_MS, max_timestamp=NOW_MS)
    header = header._replace(attributes=Codec.LZ4)
    data = assemble(header, frame, Codec.NONE)
    return changed(bytearray(data), attributes=int(Codec.LZ4))


def test_an_lz4_frame_with_linked_blocks_is_refused() -> None:
    assert refusal(lz4_batch(linked=True)).code == ErrorCode.INVALID_RECORD


def test_an_lz4_frame_with_independent_blocks_is_accepted() -> None:
    assert validate(lz4_batch(linked=False)).header.codec is Codec.LZ4


# --- batches too large for the event loop


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_decompresses_beyond_the_inline_limit_needs_a_thread(codec: Codec) -> None:
    large = batch([Record(0, NOW_MS, b"k", bytes(INLINE_MAX_BYTES))], codec)
    with pytest.raises(NeedsThread):
        validate(large, on_loop=True)
    assert validate(large).records == large
    small = batch([Record(0, NOW_MS, b"k", bytes(INLINE_MAX_BYTES // 2))], codec)
    assert validate(small, on_loop=True).records == small


def test_an_uncompressed_batch_beyond_the_inline_limit_needs_a_thread() -> None:
    rules = replace(RULES, max_message_bytes=2 * INLINE_MAX_BYTES)
    large = batch([Record(0, NOW_MS, b"k", bytes(INLINE_MAX_BYTES))])
    with pytest.raises(NeedsThread):
        validate(large, rules, on_loop=True)
    assert validate(large, rules).records == large


def test_at_most_a_thousand_bad_records_are_named() -> None:
    records = [Record(index, NOW_MS, None, b"v") for index in range(5000)]
    error = refusal(batch(records), COMPACT)
    assert len(getattr(error, "record_errors", [])) == RECORD_ERRORS_MAX
    assert "5000 record errors" in error.message


def test_a_refusal_does_not_keep_decompressed_data_in_memory() -> None:
    bomb = batch([Record(0, NOW_MS, b"k", bytes(16 << 20))], Codec.GZIP)
    tracemalloc.start()
    try:
        verdicts = [validation_result(bomb, RULES, NOW_MS, True, 8 << 20, on_loop=False) for _ in range(5)]
        assert {verdict.code for verdict in verdicts if isinstance(verdict, ApiError)} == {
            ErrorCode.MESSAGE_TOO_LARGE
        }
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
