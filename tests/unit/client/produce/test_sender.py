"""What a producer sends to leaders, when it sends it again, and what the reports say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException, Message, Producer
from felice.client.model import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from felice.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from unit.client.confluent.test_producer import producer
from unit.client.fake_broker import Disconnect, FakeBroker, Hang

Reports = list[tuple[KafkaError | None, Message]]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 3}) as started:
        yield started


def wait(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def send(made: Producer, *values: bytes, partition: int = 0) -> Reports:
    """Queue records; their reports arrive with the next flush or poll."""
    reports: Reports = []
    for value in values:
        made.produce("t", value, partition=partition, on_delivery=lambda *report: reports.append(report))
    return reports


def answer(broker: FakeBroker, partition: int = 0, **fields: Any) -> ProduceResponse:
    row = PartitionProduceResponse(index=partition, **fields)
    topic = TopicProduceResponse(name="t", topic_id=broker.topics["t"][0], partition_responses=[row])
    return ProduceResponse(responses=[topic])


def test_every_field_of_a_produce_request_and_of_its_report(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, answer(broker, 2, base_offset=40, log_append_time_ms=1234))
    with producer(
        broker, acks=1, enable_idempotence=False, request_timeout_ms=70_000, linger_ms=60_000
    ) as made:
        reports = send(made, b"a", b"b", partition=2)
        made.flush()
    [request] = broker.asked(ProduceRequest)
    assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 70_000, None)
    [topic] = request.topic_data
    assert (topic.topic_id, [row.index for row in topic.partition_data]) == (broker.topics["t"][0], [2])
    found = [(error, message.offset(), message.partition()) for error, message in reports]
    assert found == [(None, 40, 2), (None, 41, 2)]
    for _, message in reports:
        assert message.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, 1234)
        assert 0 <= (message.latency() or 0) < 60


def test_without_the_broker_s_time_a_report_has_the_producer_s(broker: FakeBroker) -> None:
    with producer(broker) as made:
        reports: Reports = []
        made.produce("t", b"v", timestamp=77, on_delivery=lambda *report: reports.append(report))
        made.flush()
    assert reports[0][1].timestamp() == (TIMESTAMP_CREATE_TIME, 77)


def test_records_without_idempotence_have_no_numbers(broker: FakeBroker) -> None:
    with producer(broker, enable_idempotence=False) as made:
        send(made, b"v")
        made.flush()
    [header] = broker.batches("t", 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert broker.asked(InitProducerIdRequest) == []


def test_records_are_numbered_by_partition(broker: FakeBroker) -> None:
    with producer(broker, linger_ms=60_000) as made:
        for partition in (0, 1, 0):
            send(made, b"1", b"2", partition=partition)
            made.flush()
    assert [(row.producer_id, row.base_sequence) for row in broker.batches("t", 0)] == [(7, 0), (7, 2)]
    assert [row.base_sequence for row in broker.batches("t", 1)] == [0]
    assert len(broker.asked(InitProducerIdRequest)) == 1
    [asked] = broker.asked(InitProducerIdRequest)
    assert (asked.transactional_id, asked.transaction_timeout_ms) == (None, 60_000)


def test_a_producer_id_that_is_refused_for_a_while_is_asked_for_again(broker: FakeBroker) -> None:
    loading = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.script(InitProducerIdRequest, loading, Disconnect, loading)
    started = time.monotonic()
    with producer(broker) as made:
        reports = send(made, b"v")
        made.flush()
    assert reports[0][0] is None and len(broker.asked(InitProducerIdRequest)) == 4
    # The pauses grow from 100 ms.
    assert time.monotonic() - started >= 0.08 + 0.16 + 0.32


def test_a_full_batch_does_not_linger(broker: FakeBroker) -> None:
    with producer(broker, linger_ms=60_000, batch_num_messages=2) as made:
        reports = send(made, b"1", b"2", b"3")
        wait(lambda: made.poll(0.05) or len(reports) == 2)
        assert len(broker.asked(ProduceRequest)) == 1
        made.flush()
    assert [row.record_count for row in broker.batches("t", 0)] == [2, 1]


def test_records_linger_for_their_time(broker: FakeBroker) -> None:
    with producer(broker, linger_ms=1000) as made:
        made.list_topics()
        send(made, b"0")
        made.flush()
        started = time.monotonic()
        reports = send(made, b"1")
        reports += send(made, b"2")
        is_slow = time.monotonic() - started > 0.9
        wait(lambda: made.poll(0.05) or broker.ends["t", 0] == 3)
        assert time.monotonic() - started >= 0.99
    assert is_slow or [row.record_count for row in broker.batches("t", 0)] == [1, 2]


@pytest.mark.parametrize("limit", [1, 2])
def test_requests_in_flight_are_limited(broker: FakeBroker, limit: int) -> None:
    options = {"max_in_flight_requests_per_connection": limit, "batch_num_messages": 1}
    with producer(broker, **options) as made:
        send(made, b"0")
        made.flush()
        broker.script(ProduceRequest, *[Hang] * 10)
        send(made, *(b"%d" % number for number in range(5)))
        # The broker reads a connection's next request only after the one before it: look at what was sent.
        wait(lambda: made._core.sender._in_flight.get(1) == limit)
        time.sleep(0.15)
        assert made._core.sender._in_flight == {1: limit}
        made.purge()


def test_a_request_has_a_batch_of_each_partition(broker: FakeBroker) -> None:
    with producer(broker, linger_ms=60_000) as made:
        made.list_topics("t")
        for partition in range(3):
            send(made, b"v", partition=partition)
        made.flush()
    counts = [len(request.topic_data[0].partition_data) for request in broker.asked(ProduceRequest)]
    assert sum(counts) == 3 and len(counts) < 3


def test_a_throttled_producer_pauses(broker: FakeBroker) -> None:
    broker.script(
        ProduceRequest,
        ProduceResponse(throttle_time_ms=300, responses=answer(broker, base_offset=0).responses),
    )
    with producer(broker) as made:
        started = time.monotonic()
        send(made, b"1")
        made.flush()
        send(made, b"2")
        made.flush()
    assert time.monotonic() - started >= 0.3


def test_a_retry_waits_for_its_backoff_and_the_order_stays(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, *[broker.produce_error(ErrorCode.NOT_ENOUGH_REPLICAS)] * 3)
    started = time.monotonic()
    with producer(broker, retry_backoff_ms=100, retry_backoff_max_ms=200) as made:
        reports = send(made, b"1")
        made.flush()
    assert reports[0][0] is None
    assert time.monotonic() - started >= 0.08 + 0.16 + 0.16


@pytest.mark.parametrize(
    ("code", "is_refreshed"),
    [(ErrorCode.NOT_LEADER_OR_FOLLOWER, True), (ErrorCode.NOT_ENOUGH_REPLICAS, False)],
)
def test_metadata_are_asked_for_again_after_errors_of_leadership(
    broker: FakeBroker, code: int, is_refreshed: bool
) -> None:
    with producer(broker) as made:
        send(made, b"0")
        made.flush()
        before = len(broker.asked(MetadataRequest))
        broker.script(ProduceRequest, broker.produce_error(code))
        send(made, b"1")
        made.flush()
        if is_refreshed:
            wait(lambda: len(broker.asked(MetadataRequest)) > before)
        else:
            assert len(broker.asked(MetadataRequest)) == before


def test_a_hint_of_the_new_leader_is_followed() -> None:
    with FakeBroker({"t": 1}) as first, FakeBroker({"t": 1}) as second:
        usual = first.handlers[MetadataRequest]

        def both(request: MetadataRequest, version: int) -> MetadataResponse:
            response: MetadataResponse = usual(request, version)
            response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=second.port))
            return response

        first.handlers[MetadataRequest] = both
        second.handlers[MetadataRequest] = lambda request, version: Hang
        hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
        first.script(
            ProduceRequest,
            answer(first, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1, current_leader=hint),
        )
        with producer(first) as made:
            reports = send(made, b"v")
            made.flush()
        assert reports[0][0] is None and second.values("t", 0) == [b"v"]


def test_an_answer_that_leaves_out_a_partition_is_retried(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, ProduceResponse())
    with producer(broker) as made:
        reports = send(made, b"v")
        made.flush()
        assert reports[0][0] is None and len(broker.asked(ProduceRequest)) == 2
    broker.handlers[ProduceRequest] = lambda request, version: ProduceResponse()
    with producer(broker, retries=0) as made:
        reports = send(made, b"w")
        made.flush()
    [(error, _)] = reports
    assert error == KafkaError._BAD_MSG and error.str().endswith("the reply leaves out t-0")


def test_a_refused_record_has_the_reason_of_the_broker(broker: FakeBroker) -> None:
    broker.script(
        ProduceRequest,
        answer(broker, error_code=ErrorCode.INVALID_TIMESTAMP, base_offset=-1, error_message="too old"),
    )
    with producer(broker) as made:
        reports = send(made, b"v")
        made.flush()
    [(error, message)] = reports
    assert error == ErrorCode.INVALID_TIMESTAMP and error.str().endswith(": too old")
    assert message.offset() is None and message.error() == error


def test_a_late_record_says_why_it_was_not_delivered(broker: FakeBroker) -> None:
    broker.handlers[ProduceRequest] = broker.produce_error(ErrorCode.NOT_ENOUGH_REPLICAS)
    with producer(broker, delivery_timeout_ms=200) as made:
        reports = send(made, b"v")
        made.flush()
    [(error, _)] = reports
    assert error == KafkaError._MSG_TIMED_OUT
    assert (
        "not delivered in 200 ms" in error.str()
        or ErrorCode.NOT_ENOUGH_REPLICAS.message.rstrip(".") in error.str()
    )


def test_a_record_that_waits_for_room_expires(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, *[Hang] * 20)
    options = {
        "delivery_timeout_ms": 1000,
        "max_in_flight_requests_per_connection": 1,
        "batch_num_messages": 1,
    }
    with producer(broker, **options) as made:
        while not broker.asked(ProduceRequest):  # on a slow machine a record may expire before it is sent
            send(made, b"1")
            time.sleep(0.1)
        reports = send(made, b"2")

        def reported() -> bool:
            made.poll(0.05)
            return bool(reports)

        wait(reported)
        [(error, message)] = reports
        assert error == KafkaError._MSG_TIMED_OUT and error.str().endswith("not delivered in 1000 ms")
        assert message.value() == b"2"
        made.purge()


def test_an_unknown_topic_is_told_with_its_name(broker: FakeBroker) -> None:
    reports: Reports = []
    with producer(broker, topic_metadata_propagation_max_ms=100) as made:
        made.produce("no", b"v", on_delivery=lambda *report: reports.append(report))
        started = time.monotonic()
        made.flush()
        assert time.monotonic() - started < 25, "by default the time for the metadata is 30 s"
    [(error, message)] = reports
    assert error == KafkaError._UNKNOWN_TOPIC and error.str().endswith(": no") and message.topic() == "no"


def test_a_topic_without_a_broker_is_a_timeout_with_the_addresses() -> None:
    reports: Reports = []
    config = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 500}
    with Producer(config) as made:
        made.produce("t", b"v", on_delivery=lambda *report: reports.append(report))
        made.flush()
    [(error, _)] = reports
    assert error == KafkaError._MSG_TIMED_OUT and "127.0.0.1:1" in error.str()


def test_a_record_for_a_partition_that_the_topic_lacks_is_refused(broker: FakeBroker) -> None:
    with producer(broker) as made:
        reports = send(made, b"v", partition=9)
        made.flush()
    [(error, message)] = reports
    assert error == KafkaError._UNKNOWN_PARTITION and message.value() == b"v"


@pytest.mark.parametrize("is_asked", [True, False])
def test_new_partitions_are_used_once_the_metadata_show_them(broker: FakeBroker, is_asked: bool) -> None:
    with producer(broker, metadata_max_age_ms=1000) as made:
        send(made, b"0")
        made.flush()
        with pytest.raises(KafkaException) as raised:
            send(made, b"too early", partition=4)
        assert raised.value.code == KafkaError._UNKNOWN_PARTITION
        broker.topics["t"] = (broker.topics["t"][0], 5)
        if is_asked:
            made.list_topics("t")
        # Otherwise the metadata grow old. No other record wakes the sender.
        wait(lambda: len(made._accumulator.topics["t"].queues) == 5)
        reports = send(made, b"v", partition=4)
        made.flush()
    assert reports[0][0] is None and broker.values("t", 4) == [b"v"]


def test_a_partition_without_a_leader_is_waited_for(broker: FakeBroker) -> None:
    usual = broker.handlers[MetadataRequest]

    def leaderless(request: MetadataRequest, version: int) -> MetadataResponse:
        response: MetadataResponse = usual(request, version)
        for topic in response.topics:
            topic.partitions[0].leader_id = -1
        return response

    broker.script(MetadataRequest, *[leaderless] * 3)
    with producer(broker) as made:
        reports = send(made, b"v")
        made.flush()
    assert reports[0][0] is None and len(broker.asked(MetadataRequest)) >= 4


def test_a_closed_sender_sends_nothing(broker: FakeBroker) -> None:
    made = producer(broker, linger_ms=60_000)
    reports = send(made, b"v")
    made._thread.post(made._core.sender.close)
    made._thread.post(made._wake)
    assert made.flush(60) == 0 and broker.asked(ProduceRequest) == []
    assert [error for error, _ in reports] == [KafkaError._PURGE_QUEUE]
    made.close()


def test_a_refused_producer_id_is_told_with_its_request(broker: FakeBroker) -> None:
    denied = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker.script(InitProducerIdRequest, denied)
    with producer(broker) as made:
        reports = send(made, b"v")
        made.flush()
    [(error, _)] = reports
    assert error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and error.str().endswith(": InitProducerId")
