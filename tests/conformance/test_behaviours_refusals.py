"""Refusals: the code for an invalid name or cursor, and the other fields of a row with an error."""

from __future__ import annotations

import pytest

from conformance.batches import fetch_request
from conformance.group_calls import find_coordinator
from conformance.targets import Target
from conformance.topics import REQUEST_TIMEOUT_MS, batch_of, create_topic, new_topic, produce_request, record
from conformance.transaction_calls import PRODUCE_V2, TXN_OFFSET_COMMIT_V2, WireProducer, fetch_row
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from felice.protocol.messages.delete_groups import DeleteGroupsRequest
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from felice.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from felice.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from felice.protocol.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from felice.protocol.messages.describe_transactions import DescribeTransactionsRequest
from felice.protocol.messages.fetch import FetchRequest
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.records.builder import build_batch
from felice.records.compression import Codec
from waiting import wait_until


@pytest.fixture
def producer(wire: Wire) -> WireProducer:
    return WireProducer(wire, unique_name("tx")).begin_life()


@pytest.fixture
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("t"))


def test_producers_of_an_invalid_topic_name_are_refused(wire: Wire) -> None:
    asked = [TopicRequest(name=name, partition_indexes=[0]) for name in ("a b", "", "missing")]
    rows = [found.partitions[0] for found in wire.ask(DescribeProducersRequest(topics=asked)).topics]
    assert [row.error_code for row in rows] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("cursor", [("elsewhere", 0), (None, -1)])
def test_a_cursor_that_points_outside_the_request(
    wire: Wire, topic: str, cursor: tuple[str | None, int]
) -> None:
    name, index = cursor
    asked = DescribeTopicPartitionsRequest(
        topics=[DescribedTopic(name=topic)],
        response_partition_limit=10,
        cursor=Cursor(topic_name=name or topic, partition_index=index),
    )
    rows = wire.ask(asked).topics
    assert [(row.name, row.error_code, row.partitions) for row in rows] == [
        (topic, ErrorCode.INVALID_REQUEST, [])
    ]


@pytest.mark.parametrize("version", [3, 12])
def test_producing_to_a_topic_without_a_name(wire: Wire, version: int) -> None:
    row = wire.ask(produce_request("", batch_of(b"a")), version).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [4, 12])
def test_fetching_from_a_topic_without_a_name(wire: Wire, version: int) -> None:
    row = wire.ask(fetch_request(""), version).responses[0].partitions[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refused_batch_is_answered_with_the_start_of_its_log(wire: Wire) -> None:
    topic = new_topic(wire, max_message_bytes=200)
    for _ in range(3):
        assert wire.ask(produce_request(topic, batch_of(b"a")), 9).responses[0].partition_responses[0]
    cut = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    assert wire.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=REQUEST_TIMEOUT_MS), 2).topics[0].partitions
    out_of_order = batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    gap = batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=7)
    too_large = batch_of(b"a" * 300)
    rows = [
        wire.ask(produce_request(topic, batch), 9).responses[0].partition_responses[0]
        for batch in (out_of_order, gap, too_large)
    ]
    assert [(row.error_code, row.log_start_offset) for row in rows] == [
        (ErrorCode.NONE, 2),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2),
        (ErrorCode.MESSAGE_TOO_LARGE, -1),
    ]


def test_the_topic_and_the_batch_are_checked_before_the_acknowledgements(wire: Wire, topic: str) -> None:
    zstd = build_batch([record()], Codec.ZSTD)
    rows = [
        wire.ask(produce_request(name, batch, acks=2), 6).responses[0].partition_responses[0]
        for name, batch in ((unique_name("missing"), zstd), (topic, zstd), (topic, batch_of(b"a")))
    ]
    assert [(row.error_code, row.log_start_offset) for row in rows] == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1),
        (ErrorCode.INVALID_REQUIRED_ACKS, -1),
    ]


def test_two_batches_in_one_partition_open_no_transaction(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    asked = producer.produce_request(topic, b"a")
    data = asked.topic_data[0].partition_data[0]
    data.records = data.records + data.records
    row = wire.ask(asked, PRODUCE_V2).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.INVALID_RECORD
    found = wire.ask(DescribeTransactionsRequest(transactional_ids=[producer.transactional_id]))
    assert found.transaction_states[0].transaction_state == "Empty"


def test_a_partition_fences_a_producer_under_any_transactional_id(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    producer.write_v2(topic, b"a")
    assert producer.end_v2(True) == 0
    wait_until(lambda: fetch_row(wire, topic).last_stable_offset == 2)
    producer.epoch -= 1
    producer.transactional_id = unique_name("another")
    assert producer.send(topic, b"b", version=PRODUCE_V2).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_fetch_session_may_begin_without_partitions(wire: Wire) -> None:
    asked = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0)
    answer = wire.ask(asked, 12)
    assert answer.error_code == 0
    assert answer.session_id != 0


def test_a_duplicate_batch_gets_the_append_time_of_the_first(wire: Wire, topic: str) -> None:
    batch = batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    first, second = (
        wire.ask(produce_request(topic, batch), 9).responses[0].partition_responses[0] for _ in range(2)
    )
    assert (first.base_offset, first.log_append_time_ms) == (second.base_offset, -1)
    assert second.log_append_time_ms > 0


def test_verifying_a_partition_that_is_not_in_the_transaction(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    asked = AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    for version in (4, 5):
        answer = wire.ask(AddPartitionsToTxnRequest(transactions=[asked]), version)
        row = answer.results_by_transaction[0].topic_results[0].results_by_partition[0]
        assert row.partition_error_code == ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("group", "topics", "error"),
    [
        ("", "known", ErrorCode.INVALID_GROUP_ID),
        ("g", "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_offsets_that_cannot_be_committed_open_no_transaction(
    wire: Wire, producer: WireProducer, topic: str, group: str, topics: str, error: ErrorCode
) -> None:
    find_coordinator(wire, "g")
    name = topic if topics == "known" else unique_name("missing")
    assert producer.commit_offset(group, name, 5, TXN_OFFSET_COMMIT_V2) == error
    asked = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    assert wire.ask(asked).transaction_states[0].transaction_state == "Empty"


def test_a_group_exists_as_soon_as_a_transaction_commits_offsets_for_it(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    group = unique_name("g")
    find_coordinator(wire, group)
    wait_until(lambda: producer.commit_offset(group, topic, 5, TXN_OFFSET_COMMIT_V2) == 0)
    described = wire.ask(DescribeGroupsRequest(groups=[group])).groups[0]
    assert (described.error_code, described.group_state) == (0, "Empty")
    assert group in [row.group_id for row in wire.ask(ListGroupsRequest()).groups]
    member = {"generation_id": 4, "member_id": ""}
    assert (
        producer.commit_offset(group, topic, 6, TXN_OFFSET_COMMIT_V2, **member) == ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert wire.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code == 0
    assert producer.end_v2(True) == 0
    described = wire.ask(DescribeGroupsRequest(groups=[group])).groups[0]
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_producer_goes_on_after_its_transaction_timed_out(broker: Target, wire: Wire, topic: str) -> None:
    """KIP-588, KIP-890: it requests the next epoch with the one that it has."""
    producer = WireProducer(wire, unique_name("tx")).begin_life(timeout_ms=1000)
    producer.write_v2(topic, b"a")
    asked = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    wait_until(lambda: wire.ask(asked).transaction_states[0].transaction_state == "CompleteAbort")
    held = producer.epoch
    assert producer.init(resume=True) == 0
    assert producer.epoch == held + 1
    assert producer.send(topic, b"b", version=PRODUCE_V2).error_code == 0
    assert producer.end_v2(True) == 0
