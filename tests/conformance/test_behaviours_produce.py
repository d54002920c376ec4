"""Rules 31-39 and the list of produce checks (records.md): which batches are accepted, and the errors of the others."""

import struct
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from conformance.batches import batch_headers_of, fetch_records
from conformance.targets import Target
from conformance.topics import (
    NOW_MS,
    REQUEST_TIMEOUT_MS,
    batch_of,
    list_offset,
    metadata_of,
    new_topic,
    produce,
    produce_request,
    produce_values,
    record,
)
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records.batch import BatchHeader, seal
from felice.records.builder import build_batch, build_control
from felice.records.compression import Codec
from felice.records.control import ControlType, EndTransactionMarker
from felice.records.reader import read_records
from waiting import wait_until

MAGIC_AT, ATTRIBUTES_AT, DELTA_AT, COUNT_AT = 16, 21, 23, 57
INT32_MAX = 2**31 - 1


def new_producer_id(wire: Wire) -> int:
    """Repeated until it succeeds: a new Kafka broker allocates its first block of ids in the background."""
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answers: list[Any] = []

    def is_given() -> bool:
        answers.append(wire.ask(asked, 4))
        return bool(answers[-1].error_code == 0)

    wait_until(is_given)
    return int(answers[-1].producer_id)


def sequenced(producer_id: int, sequence: int, count: int = 1, epoch: int = 0) -> bytes:
    values = [b"%d" % at for at in range(count)]
    return batch_of(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def edited(batch: bytes, at: int, layout: str, value: int) -> bytes:
    """The batch with one field changed and its CRC corrected."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, at, value)
    seal(changed, 0, len(changed))
    return bytes(changed)


def test_a_duplicate_of_the_last_five_batches_succeeds_with_its_first_offset(wire: Wire) -> None:
    """31: it adds nothing to the log."""
    topic, producer_id = new_topic(wire), new_producer_id(wire)
    for sequence in range(6):
        assert produce(wire, topic, sequenced(producer_id, sequence)).base_offset == sequence
    for sequence in (1, 2, 3, 4, 5):
        row = produce(wire, topic, sequenced(producer_id, sequence))
        assert (row.error_code, row.base_offset) == (0, sequence)
    assert list_offset(wire, topic, -1).offset == 6


def test_a_sequence_out_of_order_is_refused(wire: Wire) -> None:
    """31: a gap, and a batch older than the five remembered."""
    topic, producer_id = new_topic(wire), new_producer_id(wire)
    for sequence in range(6):
        produce(wire, topic, sequenced(producer_id, sequence))
    for sequence in (0, 8):
        row = produce(wire, topic, sequenced(producer_id, sequence))
        assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert list_offset(wire, topic, -1).offset == 6


def test_an_older_producer_epoch_is_fenced_and_a_newer_starts_at_zero(wire: Wire) -> None:
    """31: INVALID_PRODUCER_EPOCH."""
    topic, producer_id = new_topic(wire), new_producer_id(wire)
    assert produce(wire, topic, sequenced(producer_id, 0, epoch=1)).error_code == 0
    row = produce(wire, topic, sequenced(producer_id, 1, epoch=0))
    assert row.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    row = produce(wire, topic, sequenced(producer_id, 5, epoch=2))
    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wire, topic, sequenced(producer_id, 0, epoch=2)).error_code == 0


def test_an_unknown_producer_may_start_at_any_sequence(wire: Wire) -> None:
    """32: its state may have expired."""
    topic, producer_id = new_topic(wire), new_producer_id(wire)
    assert produce(wire, topic, sequenced(producer_id, 41)).error_code == 0
    assert produce(wire, topic, sequenced(producer_id, 42)).error_code == 0


def test_sequences_wrap_to_zero(wire: Wire) -> None:
    """33: 2147483647 is followed by 0, also within a batch."""
    topic, producer_id = new_topic(wire), new_producer_id(wire)
    assert produce(wire, topic, sequenced(producer_id, INT32_MAX - 1, count=3)).error_code == 0
    assert produce(wire, topic, sequenced(producer_id, 1)).error_code == 0
    assert produce(wire, topic, sequenced(producer_id, 2)).base_offset == 4


def test_acks_0_gets_no_response_bytes(wire: Wire) -> None:
    """35: the next response belongs to the next request."""
    topic = new_topic(wire)
    for version in (3, 8, 9, 11):
        wire.send(produce_request(topic, batch_of(b"a"), acks=0), version)
    assert wire.ask(MetadataRequest(topics=[]), 9).brokers
    wait_until(lambda: list_offset(wire, topic, -1).offset == 4)


def test_an_error_under_acks_0_closes_the_connection(wire: Wire) -> None:
    """35: the protocol has no other way to report it."""
    wire.send(produce_request(unique_name("absent"), batch_of(b"a"), acks=0), 9)
    assert wire.is_closed_by_peer()


def test_a_batch_too_large_fails_its_partition_only(wire: Wire) -> None:
    """36: MESSAGE_TOO_LARGE by max.message.bytes; the other partition is written."""
    topic = new_topic(wire, partitions=2, max_message_bytes=1000)
    data = [
        PartitionProduceData(index=0, records=batch_of(b"x" * 2000)),
        PartitionProduceData(index=1, records=batch_of(b"x")),
    ]
    asked = ProduceRequest(
        acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    rows = wire.ask(asked, 11).responses[0].partition_responses
    assert {row.index: row.error_code for row in rows} == {0: ErrorCode.MESSAGE_TOO_LARGE, 1: 0}


def test_the_response_has_the_first_offset_and_no_append_time(wire: Wire) -> None:
    """38: with CreateTime."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a", b"b", b"c"])
    row = produce(wire, topic, batch_of(b"d", b"e"))
    assert (row.base_offset, row.log_append_time_ms, row.log_start_offset) == (3, -1, 0)


def test_a_topic_of_log_append_time_stamps_its_batches(wire: Wire) -> None:
    """38: the time in the response is that of the batch, with the type bit, and of every record."""
    topic = new_topic(wire, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    row = produce(wire, topic, batch_of(b"a", b"b"))
    assert before - 1000 <= row.log_append_time_ms <= int(time.time() * 1000) + 1000
    (header,) = batch_headers_of(wire, topic)
    assert (header.is_log_append_time, header.max_timestamp) == (True, row.log_append_time_ms)
    stored = read_records(fetch_records(wire, topic, 0), check_crcs=True)
    assert {row.timestamp for row in stored} == {row.log_append_time_ms}


def test_null_and_empty_keys_values_and_headers_stay_distinct_and_in_order(wire: Wire) -> None:
    """39: a header may occur twice."""
    topic = new_topic(wire)
    headers = (("b", b"1"), ("a", None), ("b", b""), ("", b"empty name"))
    sent = [
        record(b"v", b""),
        record(b"v", None),
        record(b"", b"k"),
        record(None, b"k"),
        record(b"v", b"k", headers=headers),
    ]
    assert produce(wire, topic, build_batch(sent)).error_code == 0
    seen = list(read_records(fetch_records(wire, topic, 0)))
    assert [(row.key, row.value, row.headers) for row in seen] == [
        (row.key, row.value, row.headers) for row in sent
    ]


# The produce checks, one row each: what is sent, and the error.
REFUSED: dict[str, tuple[Callable[[], bytes], ErrorCode]] = {
    "no batch": (lambda: b"", ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: edited(batch_of(b"a"), MAGIC_AT, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 0": (lambda: edited(batch_of(b"a"), MAGIC_AT, ">b", 0), ErrorCode.INVALID_RECORD),
    "bad crc": (lambda: flipped(batch_of(b"abcdefgh"), -3), ErrorCode.CORRUPT_MESSAGE),
    "count too high": (lambda: edited(batch_of(b"a"), COUNT_AT, ">i", 2), ErrorCode.INVALID_RECORD),
    "last offset delta": (lambda: edited(batch_of(b"a"), DELTA_AT, ">i", 3), ErrorCode.INVALID_RECORD),
    "no records": (lambda: edited(batch_of(b"a"), COUNT_AT, ">i", 0), ErrorCode.INVALID_RECORD),
    "transactional without an id": (
        lambda: batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "end of a transaction": (
        lambda: build_control(
            EndTransactionMarker(ControlType.COMMIT, 0), producer_id=5, producer_epoch=0, timestamp_ms=NOW_MS
        ),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "control bit": (lambda: edited(batch_of(b"a"), ATTRIBUTES_AT, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "producer without sequence": (
        lambda: batch_of(b"a", producer_id=77, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
}


def flipped(batch: bytes, at: int) -> bytes:
    changed = bytearray(batch)
    changed[at] ^= 0xFF
    return bytes(changed)


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_batch_is_refused_by_its_error_and_nothing_is_written(wire: Wire, case: str) -> None:
    """36 and the produce checks: the connection stays usable."""
    make, error = REFUSED[case]
    topic = new_topic(wire)
    row = produce(wire, topic, make())
    assert (ErrorCode(row.error_code), row.base_offset) == (error, -1)
    assert list_offset(wire, topic, -1).offset == 0
    assert produce_values(wire, topic, [b"after"]) == 0


def test_a_base_offset_of_the_producer_is_refused(wire: Wire) -> None:
    """Produce checks: batch baseOffset != 0."""
    row = produce(wire, new_topic(wire), build_batch([record()], base_offset=5))
    assert row.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.felice_only  # Apache Kafka fails inside and never answers
def test_null_records_are_refused(wire: Wire) -> None:
    """Produce checks: no batch at all."""
    assert produce(wire, new_topic(wire), None).error_code in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    )


@pytest.mark.parametrize("acks", [2, -2, 3])
def test_acks_other_than_all_none_and_one_are_refused(wire: Wire, acks: int) -> None:
    """Produce checks: INVALID_REQUIRED_ACKS."""
    row = produce(wire, new_topic(wire), batch_of(b"a"), acks=acks)
    assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_zstd_needs_produce_version_7(wire: Wire) -> None:
    """Produce checks: UNSUPPORTED_COMPRESSION_TYPE in earlier versions."""
    topic = new_topic(wire)
    records = batch_of(b"a" * 100, codec=Codec.ZSTD)
    assert produce(wire, topic, records, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(wire, topic, records, version=7).error_code == 0


def test_unknown_topics_and_partitions_are_told_apart_from_ids(wire: Wire) -> None:
    """Produce checks: UNKNOWN_TOPIC_OR_PARTITION by name, UNKNOWN_TOPIC_ID by id."""
    topic = new_topic(wire)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(wire, topic, batch_of(b"a"), partition=7).error_code == error
    assert produce(wire, unique_name("absent"), batch_of(b"a")).error_code == error
    asked = produce_request("", batch_of(b"a"))
    asked.topic_data[0].topic_id = uuid.uuid4()
    answer = wire.ask(asked, 13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_may_be_named_by_id(wire: Wire) -> None:
    """10: Produce v13."""
    topic = new_topic(wire)
    asked = produce_request("", batch_of(b"a"))
    asked.topic_data[0].topic_id = metadata_of(wire, topic).topic_id
    answer = wire.ask(asked, 13)
    assert answer.responses[0].topic_id == asked.topic_data[0].topic_id
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_an_internal_topic_takes_no_records_from_clients(wire: Wire) -> None:
    """Produce checks: INVALID_TOPIC_EXCEPTION."""
    wait_until(lambda: wire.ask(FindCoordinatorRequest(key="g", key_type=0), 3).error_code == 0)
    row = produce(wire, "__consumer_offsets", batch_of(b"a"))
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_compacted_topic_needs_keys_and_names_the_record_at_fault(wire: Wire) -> None:
    """Produce checks: INVALID_RECORD with its index from v8, nothing of the batch is written."""
    topic = new_topic(wire, cleanup_policy="compact")
    records = build_batch([record(b"a", b"k"), record(b"b", None), record(b"c", None)])
    row = produce(wire, topic, records)
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in row.record_errors] == [1, 2]
    assert list_offset(wire, topic, -1).offset == 0
    assert produce(wire, topic, records, version=7).error_code == ErrorCode.INVALID_RECORD


def test_timestamps_outside_the_bounds_are_refused_by_record(wire: Wire) -> None:
    """Produce checks: INVALID_TIMESTAMP with record errors; -1 is exempt."""
    topic = new_topic(wire, message_timestamp_before_max_ms=60_000, message_timestamp_after_max_ms=60_000)
    now = int(time.time() * 1000)
    for stamp in (now - 120_000, now + 120_000):
        row = produce(wire, topic, build_batch([record(timestamp_ms=now), record(timestamp_ms=stamp)]))
        assert row.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in row.record_errors] == [1]
    assert produce(wire, topic, build_batch([record(timestamp_ms=-1)])).error_code == 0


def test_a_batch_larger_than_a_segment_is_refused(wire: Wire) -> None:
    """Produce checks: RECORD_LIST_TOO_LARGE."""
    topic = new_topic(wire, segment_bytes=1_048_576, max_message_bytes=4_000_000)
    row = produce(wire, topic, batch_of(b"x" * 1_500_000))
    assert row.error_code == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(
    ("setting", "codec"),
    [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0), ("producer", 3)],
)
def test_the_topic_decides_the_codec_it_stores(wire: Wire, setting: str, codec: int) -> None:
    """Produce checks: a topic's compression.type recompresses other codecs; `producer` keeps them."""
    topic = new_topic(wire, compression_type=setting)
    values = [b"%d" % at * 50 for at in range(20)]
    assert produce(wire, topic, batch_of(*values, codec=Codec.LZ4)).error_code == 0
    (header,) = batch_headers_of(wire, topic)
    assert (header.codec, header.record_count) == (codec, 20)
    assert [row.value for row in read_records(fetch_records(wire, topic, 0), check_crcs=True)] == values


def test_stored_bytes_are_the_producers_but_for_offset_and_epoch(wire: Wire) -> None:
    """46: the CRC included."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"before"])
    sent = batch_of(b"a" * 100, b"b" * 100, codec=Codec.SNAPPY)
    produce(wire, topic, sent)
    stored = fetch_records(wire, topic, 1)
    header = BatchHeader.parse(stored)
    assert (header.base_offset, header.leader_epoch) == (1, 0)
    assert stored[16:] == sent[16:]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_produce_version_writes_and_answers_alike(wire: Wire, version: int) -> None:
    """9: over a topic with data."""
    topic = new_topic(wire)
    asked = produce_request(topic, batch_of(b"a", b"b"))
    asked.topic_data[0].topic_id = metadata_of(wire, topic).topic_id
    for expected in (0, 2):
        row = wire.ask(asked, version).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, expected)


def test_a_producer_id_is_never_given_twice(broker: Target, wire: Wire) -> None:
    """31: InitProducerId without a transactional id goes to any broker."""
    given = [new_producer_id(wire) for _ in range(50)]
    with broker.wire() as other:
        given += [new_producer_id(other) for _ in range(50)]
    assert len(set(given)) == 100
    assert min(given) >= 0
