"""Rules 40-55: Fetch."""

import time
import uuid
from typing import Any

import pytest

from conformance.batches import FETCH_BY_NAME, batch_headers_of, fetch_records, fetch_request
from conformance.topics import (
    REQUEST_TIMEOUT_MS,
    batch_of,
    list_offset,
    metadata_of,
    new_topic,
    produce,
    produce_values,
)
from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from felice.records.batch import BatchHeader, iter_batches, verify_crc
from felice.records.compression import Codec
from felice.records.reader import read_records

MAX_BYTES = 1 << 20
READ_COMMITTED = 1


def row_of(wire: Wire, request: FetchRequest, version: int = FETCH_BY_NAME) -> Any:
    return wire.ask(request, version).responses[0].partitions[0]


def many_partitions(
    topic: str, order: list[int], max_bytes: int, partition_max_bytes: int = MAX_BYTES
) -> FetchRequest:
    request = fetch_request(topic, max_wait_ms=100, max_bytes=max_bytes)
    request.topics[0].partitions = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=partition_max_bytes)
        for number in order
    ]
    return request


def sizes_by_partition(answer: Any) -> dict[int, int]:
    return {row.partition_index: len(row.records) for topic in answer.responses for row in topic.partitions}


@pytest.mark.parametrize("limits", [{"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0}])
def test_a_batch_larger_than_every_limit_is_still_sent_whole(wire: Wire, limits: dict[str, int]) -> None:
    """40: otherwise a consumer could never read beyond it."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"x" * 5000])
    produce_values(wire, topic, [b"y" * 5000])
    records = bytes(row_of(wire, fetch_request(topic, **limits)).records)
    (header,) = list(iter_batches(records))
    assert verify_crc(records, header)


def test_the_whole_batch_comes_from_the_first_partition_that_has_one(wire: Wire) -> None:
    """40: an empty partition before it does not count."""
    topic = new_topic(wire, partitions=3)
    for partition in (1, 2):
        produce(wire, topic, batch_of(b"x" * 5000), partition)
    sizes = sizes_by_partition(wire.ask(many_partitions(topic, [0, 1, 2], max_bytes=1), FETCH_BY_NAME))
    assert sizes[0] == 0
    assert sizes[1] > 5000
    assert sizes.get(2, 0) == 0


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_the_total_limit_serves_partitions_in_the_order_asked(wire: Wire, order: list[int]) -> None:
    """41: nothing may be left for later partitions."""
    topic = new_topic(wire, partitions=3)
    for partition in order:
        produce(wire, topic, batch_of(b"x" * 5000), partition)
    sizes = sizes_by_partition(wire.ask(many_partitions(topic, order, max_bytes=6000), FETCH_BY_NAME))
    assert sizes[order[0]] > 5000
    assert sum(sizes.values()) <= 6000 + 5100
    assert sizes.get(order[2], 0) == 0


def test_an_empty_fetch_waits(wire: Wire) -> None:
    """42, 53: for up to max_wait_ms; the response has no error."""
    topic = new_topic(wire)
    began = time.monotonic()
    row = row_of(wire, fetch_request(topic, max_wait_ms=400))
    assert time.monotonic() - began >= 0.38
    assert (row.error_code, bytes(row.records)) == (0, b"")


def test_a_waiting_fetch_is_answered_when_enough_has_come(wire: Wire, connect: Any) -> None:
    """42: well before max_wait_ms."""
    topic = new_topic(wire)
    began = time.monotonic()
    wire.send(fetch_request(topic, max_wait_ms=120_000), FETCH_BY_NAME)
    produce_values(connect(), topic, [b"a"])
    row = wire.receive(fetch_request(topic), FETCH_BY_NAME).responses[0].partitions[0]
    assert time.monotonic() - began < 60
    assert [record.value for record in read_records(bytes(row.records))] == [b"a"]


def test_min_bytes_0_does_not_wait(wire: Wire) -> None:
    """42: zero bytes are always there."""
    topic = new_topic(wire)
    began = time.monotonic()
    row_of(wire, fetch_request(topic, max_wait_ms=120_000, min_bytes=0))
    assert time.monotonic() - began < 60


def test_an_empty_incremental_fetch_waits_too(wire: Wire) -> None:
    """42: its list of topics is empty because nothing changed, not because nothing is requested."""
    topic = new_topic(wire)
    session = open_session(wire, topic)
    began = time.monotonic()
    answer = wire.ask(session_request(session, 1, max_wait_ms=400), FETCH_BY_NAME)
    assert time.monotonic() - began >= 0.38
    assert (answer.error_code, answer.responses) == (0, [])


def test_a_partition_at_its_limit_adds_nothing_to_min_bytes(wire: Wire) -> None:
    """43: so more min_bytes than the caps allow waits the whole time."""
    topic = new_topic(wire)
    for _ in range(10):
        produce_values(wire, topic, [b"x" * 100])
    began = time.monotonic()
    row = row_of(wire, fetch_request(topic, max_wait_ms=400, min_bytes=5000, partition_max_bytes=300))
    assert time.monotonic() - began >= 0.38
    assert len(row.records) > 0


@pytest.mark.parametrize("version", range(4, 19))
def test_no_records_are_zero_bytes_and_not_null(wire: Wire, version: int) -> None:
    """44: in every version."""
    topic = new_topic(wire)
    request = fetch_request(topic, max_wait_ms=0)
    request.topics[0].topic_id = metadata_of(wire, topic).topic_id
    row = row_of(wire, request, version)
    assert row.records is not None
    assert len(row.records) == 0


@pytest.mark.parametrize("version", range(4, 19))
def test_every_fetch_version_reads_alike(wire: Wire, version: int) -> None:
    """9: over a topic with data."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a", b"b"])
    request = fetch_request(topic)
    request.topics[0].topic_id = metadata_of(wire, topic).topic_id
    row = row_of(wire, request, version)
    assert [record.value for record in read_records(bytes(row.records))] == [b"a", b"b"]
    assert (row.high_watermark, row.last_stable_offset) == (2, 2)


@pytest.mark.parametrize("limit", [1, 100, 700, 1500, 2600])
def test_a_response_begins_with_a_whole_batch(wire: Wire, limit: int) -> None:
    """45: the last batch may be cut off, the first never."""
    topic = new_topic(wire)
    for _ in range(5):
        produce_values(wire, topic, [b"x" * 500])
    records = bytes(row_of(wire, fetch_request(topic, partition_max_bytes=limit)).records)
    headers = list(iter_batches(records))
    assert headers
    assert verify_crc(records, headers[0])
    assert len(records) <= max(limit, headers[0].size_bytes)


def test_a_fetch_into_a_batch_sends_that_batch_whole(wire: Wire) -> None:
    """46: with its own base offset; the client drops the records before its offset."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a", b"b", b"c"])
    records = fetch_records(wire, topic, 2)
    header = BatchHeader.parse(records)
    assert (header.base_offset, header.last_offset) == (0, 2)
    assert verify_crc(records, header)


def test_a_fetch_at_the_high_watermark_waits_and_is_empty(wire: Wire) -> None:
    """47: no error."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a"])
    row = row_of(wire, fetch_request(topic, offset=1, max_wait_ms=50))
    assert (row.error_code, len(row.records), row.high_watermark) == (0, 0, 1)


@pytest.mark.parametrize("offset", [-1, 1, 4, 2**62])
def test_a_fetch_outside_the_log_is_out_of_range(wire: Wire, offset: int) -> None:
    """47: at once, with high watermark and log start -1."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a", b"b", b"c"])
    cut = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    wire.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=REQUEST_TIMEOUT_MS), 2)
    began = time.monotonic()
    row = row_of(wire, fetch_request(topic, offset=offset, max_wait_ms=120_000))
    assert time.monotonic() - began < 60
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (row.high_watermark, row.log_start_offset, len(row.records)) == (-1, -1, 0)


def test_watermarks_are_always_real(wire: Wire) -> None:
    """48: also if no records are returned."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a", b"b", b"c"])
    cut = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    wire.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=REQUEST_TIMEOUT_MS), 2)
    for offset in (1, 3):
        row = row_of(wire, fetch_request(topic, offset=offset, max_wait_ms=0))
        assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (3, 3, 1)


def test_offsets_are_dense_from_zero(wire: Wire) -> None:
    """50: over batches and codecs."""
    topic = new_topic(wire)
    for codec in Codec:
        produce(wire, topic, batch_of(b"a", b"b", b"c", codec=codec))
    headers = batch_headers_of(wire, topic)
    assert [header.base_offset for header in headers] == [0, 3, 6, 9, 12]
    stored = read_records(fetch_records(wire, topic, 0))
    assert [record.offset for record in stored] == list(range(15))


def test_aborted_transactions_are_listed_only_for_read_committed(wire: Wire) -> None:
    """51: null otherwise."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a"])
    assert row_of(wire, fetch_request(topic)).aborted_transactions is None
    committed = row_of(wire, fetch_request(topic, isolation_level=READ_COMMITTED))
    assert committed.aborted_transactions == []
    assert len(committed.records) > 0


def open_session(wire: Wire, topic: str) -> int:
    request = fetch_request(topic, max_wait_ms=0)
    request.session_epoch = 0
    answer = wire.ask(request, FETCH_BY_NAME)
    assert answer.error_code == 0
    assert answer.session_id != 0
    return int(answer.session_id)


def session_request(
    session_id: int, epoch: int, topics: list[FetchTopic] | None = None, max_wait_ms: int = 0
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics or [],
    )


def test_a_session_sends_only_what_changed(wire: Wire) -> None:
    """52: new data in the next answer, and nothing after that."""
    topic = new_topic(wire, partitions=2)
    request = many_partitions(topic, [0, 1], MAX_BYTES)
    request.session_epoch = 0
    session = wire.ask(request, FETCH_BY_NAME).session_id
    produce(wire, topic, batch_of(b"a"), partition=1)
    answer = wire.ask(session_request(session, 1), FETCH_BY_NAME)
    assert answer.session_id == session
    assert sorted(sizes_by_partition(answer)) == [1]
    moved = FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=MAX_BYTES)
    answer = wire.ask(
        session_request(session, 2, [FetchTopic(topic=topic, partitions=[moved])]), FETCH_BY_NAME
    )
    assert sum(sizes_by_partition(answer).values()) == 0


def test_a_session_forgets_partitions(wire: Wire) -> None:
    """52: forgotten_topics_data."""
    topic = new_topic(wire, partitions=2)
    request = many_partitions(topic, [0, 1], MAX_BYTES)
    request.session_epoch = 0
    session = wire.ask(request, FETCH_BY_NAME).session_id
    forgetting = session_request(session, 1)
    forgetting.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[1])]
    wire.ask(forgetting, FETCH_BY_NAME)
    for partition in (0, 1):
        produce(wire, topic, batch_of(b"a"), partition)
    assert list(sizes_by_partition(wire.ask(session_request(session, 2), FETCH_BY_NAME))) == [0]


def test_a_fetch_may_ask_for_no_session(wire: Wire) -> None:
    """52: epoch -1 is answered with id 0."""
    topic = new_topic(wire)
    assert wire.ask(fetch_request(topic, max_wait_ms=0), FETCH_BY_NAME).session_id == 0


def test_session_errors_are_top_level(wire: Wire) -> None:
    """52: unknown id 70, wrong epoch 71."""
    topic = new_topic(wire)
    answer = wire.ask(session_request(123456789, 1), FETCH_BY_NAME)
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    session = open_session(wire, topic)
    answer = wire.ask(session_request(session, 9), FETCH_BY_NAME)
    assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])


def test_a_closed_session_is_unknown(wire: Wire) -> None:
    """52: epoch -1 with an id closes it."""
    session = open_session(wire, new_topic(wire))
    assert wire.ask(session_request(session, -1), FETCH_BY_NAME).session_id == 0
    answer = wire.ask(session_request(session, 1), FETCH_BY_NAME)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_no_preferred_replica_is_named(wire: Wire) -> None:
    """54: -1 without a selector."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a"])
    assert row_of(wire, fetch_request(topic)).preferred_read_replica == -1


@pytest.mark.parametrize("version", [4, 9, 10, 12])
def test_zstd_data_goes_to_every_version(wire: Wire, version: int) -> None:
    """55: Kafka 4 dropped the check."""
    topic = new_topic(wire)
    produce(wire, topic, batch_of(b"a" * 100, codec=Codec.ZSTD))
    row = row_of(wire, fetch_request(topic), version)
    assert row.error_code == 0
    assert [record.value for record in read_records(bytes(row.records))] == [b"a" * 100]


def test_unknown_topics_partitions_and_ids_are_errors_of_their_rows(wire: Wire) -> None:
    """28, 53: the rest of the request is served."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a"])
    request = many_partitions(topic, [0, 7], MAX_BYTES)
    absent = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MAX_BYTES)
    request.topics.append(FetchTopic(topic="absent", partitions=[absent]))
    answer = wire.ask(request, FETCH_BY_NAME)
    errors = {
        (row.topic, part.partition_index): part.error_code
        for row in answer.responses
        for part in row.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {(topic, 0): 0, (topic, 7): unknown, ("absent", 0): unknown}
    by_id = fetch_request("", max_wait_ms=0)
    by_id.topics[0].topic_id = uuid.uuid4()
    assert row_of(wire, by_id, 13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("epoch", "error"), [(0, 0), (-1, 0), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_the_leader_epoch_of_the_client_is_checked(wire: Wire, epoch: int, error: int) -> None:
    """25: an epoch newer than the broker's is unknown."""
    topic = new_topic(wire)
    produce_values(wire, topic, [b"a"])
    request = fetch_request(topic)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    assert row_of(wire, request).error_code == error


def test_segments_are_crossed_without_a_gap(wire: Wire) -> None:
    """45, 50: a consumer that follows the batches reads every offset."""
    topic = new_topic(wire, segment_bytes=1_048_576)
    for _ in range(5):
        produce_values(wire, topic, [b"x" * 300_000])
    assert [header.base_offset for header in batch_headers_of(wire, topic)] == list(range(5))
    assert list_offset(wire, topic, -1).offset == 5


def delete_before(wire: Wire, topic: str, offset: int) -> None:
    asked = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    answer = wire.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=REQUEST_TIMEOUT_MS), 2)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(("offset", "min_bytes"), [(2, 1 << 20), (3, 1 << 20), (4, 1), (4, 1 << 20)])
def test_a_fetch_that_waited_says_where_the_log_starts_when_it_is_answered(
    wire: Wire, connect: Any, offset: int, min_bytes: int
) -> None:
    topic = new_topic(wire)
    produce_values(wire, topic, [b"v%d" % number for number in range(4)])
    wire.send(fetch_request(topic, offset=offset, max_wait_ms=2000, min_bytes=min_bytes), FETCH_BY_NAME)
    delete_before(connect(), topic, 4)
    row = wire.receive(fetch_request(topic), FETCH_BY_NAME).responses[0].partitions[0]
    expected = ErrorCode.NONE if offset == 4 else ErrorCode.OFFSET_OUT_OF_RANGE
    assert (row.error_code, row.log_start_offset) == (expected, 4 if offset == 4 else -1)
