import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException, Message, Producer, ThrottleEvent, aio
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import ProduceRequest
from unit.client.fake_broker import Disconnect, FakeBroker
from waiting import LIMIT_S

Reports = list[tuple[KafkaError | None, Message]]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 1, "wide": 3}) as started:
        yield started


def producer(broker: FakeBroker, **keys: Any) -> Producer:
    config = {
        "retry.backoff.ms": 5,
        "retry.backoff.max.ms": 20,
        "linger.ms": 0,
        "bootstrap.servers": broker.bootstrap,
    }
    return Producer({**config, **{name.replace("_", "."): value for name, value in keys.items()}})


def send(made: Producer, values: list[bytes], topic: str = "t", partition: int = 0) -> Reports:
    reports: Reports = []
    for value in values:
        made.produce(topic, value, partition=partition, on_delivery=lambda *report: reports.append(report))
    assert made.flush(LIMIT_S) == 0
    return reports


def test_report_has_partition_and_offset_of_the_record(broker: FakeBroker) -> None:
    with producer(broker) as made:
        [(error, message)] = send(made, [b"v"])
    assert error is None
    assert (message.topic(), message.partition(), message.offset(), message.value()) == ("t", 0, 0, b"v")
    assert message.latency() is not None and message.timestamp()[1] > 0


@pytest.mark.parametrize(
    "failure",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.CORRUPT_MESSAGE, Disconnect],
)
def test_transient_failure_is_retried_with_the_same_sequence(broker: FakeBroker, failure: Any) -> None:
    broker.script(ProduceRequest, broker.produce_error(failure) if failure is not Disconnect else Disconnect)
    with producer(broker) as made:
        [(error, message)] = send(made, [b"v"])
    assert error is None and message.offset() == 0
    assert len(broker.asked(ProduceRequest)) == 2
    assert [header.base_sequence for header in broker.batches("t", 0)] == [0]


def test_order_survives_retries_with_many_batches_in_flight(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, *[broker.produce_error(ErrorCode.NOT_ENOUGH_REPLICAS)] * 7)
    values = [b"%d" % number for number in range(40)]
    with producer(broker, batch_num_messages=2) as made:
        send(made, values)
    assert broker.values("t", 0) == values
    sequences = [(header.base_sequence, header.record_count) for header in broker.batches("t", 0)]
    assert [sequence for sequence, _ in sequences] == [
        sum(n for _, n in sequences[:i]) for i in range(len(sequences))
    ]


def test_permanent_failure_is_reported_once_and_not_retried(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, broker.produce_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with producer(broker) as made:
        [(error, message)] = send(made, [b"v"])
        assert error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert message.value() == b"v" and message.offset() is None
    assert len(broker.asked(ProduceRequest)) == 1


def test_gap_left_by_a_failed_batch_starts_a_new_epoch(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, broker.produce_error(ErrorCode.INVALID_RECORD))
    with producer(broker) as made:
        send(made, [b"lost"])
        send(made, [b"kept"])
    [header] = broker.batches("t", 0)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_sequence_lost_by_the_broker_starts_again_in_a_new_epoch(broker: FakeBroker) -> None:
    with producer(broker) as made:
        send(made, [b"one"])
        broker.script(ProduceRequest, broker.produce_error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
        [(error, _)] = send(made, [b"two"])
    assert error is None
    numbering = [(header.producer_epoch, header.base_sequence) for header in broker.batches("t", 0)]
    assert numbering == [(0, 0), (1, 0)]
    assert broker.values("t", 0) == [b"one", b"two"]


def test_duplicate_sequence_counts_as_delivered(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, broker.produce_error(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    with producer(broker) as made:
        [(error, message)] = send(made, [b"v"])
    assert error is None and message.offset() is None


def test_batch_too_large_for_the_topic_is_split(broker: FakeBroker) -> None:
    too_large = broker.produce_error(ErrorCode.MESSAGE_TOO_LARGE)
    broker.script(ProduceRequest, too_large, too_large)
    with producer(broker, linger_ms=60_000) as made:
        reports = send(made, [b"%d" % number for number in range(8)])
    assert [error for error, _ in reports] == [None] * 8
    assert broker.values("t", 0) == [b"%d" % number for number in range(8)]
    assert sorted(message.offset() or 0 for _, message in reports) == list(range(8))
    assert len(broker.batches("t", 0)) > 1


def test_single_record_too_large_is_reported(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, broker.produce_error(ErrorCode.MESSAGE_TOO_LARGE))
    with producer(broker) as made:
        [(error, _)] = send(made, [b"v"])
    assert error == KafkaError.MSG_SIZE_TOO_LARGE


def test_delivery_timeout_ends_the_retries(broker: FakeBroker) -> None:
    broker.handlers[ProduceRequest] = broker.produce_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    started = time.monotonic()
    with producer(broker, delivery_timeout_ms=200) as made:
        [(error, _)] = send(made, [b"v"])
    assert error == KafkaError._MSG_TIMED_OUT
    assert time.monotonic() - started < LIMIT_S


def test_retries_are_bounded_when_asked(broker: FakeBroker) -> None:
    broker.handlers[ProduceRequest] = broker.produce_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with producer(broker, retries=2) as made:
        [(error, _)] = send(made, [b"v"])
    assert error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(broker.asked(ProduceRequest)) == 3


def test_acks_zero_expects_no_response(broker: FakeBroker) -> None:
    with producer(broker, acks=0) as made:
        [(error, message)] = send(made, [b"v"])
        assert error is None and message.offset() is None
        made.list_topics()  # behind it on the same connection: the broker has seen the record
    assert broker.values("t", 0) == [b"v"]
    assert not broker.asked(InitProducerIdRequest)


def test_producer_id_is_requested_until_a_broker_grants_it(broker: FakeBroker) -> None:
    loading = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.script(InitProducerIdRequest, loading, loading)
    with producer(broker) as made:
        [(error, _)] = send(made, [b"v"])
    assert error is None and broker.batches("t", 0)[0].producer_id == 7


def test_refused_producer_id_fails_the_waiting_records(broker: FakeBroker) -> None:
    refusal = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker.script(InitProducerIdRequest, refusal)
    with producer(broker) as made:
        [(error, _)] = send(made, [b"v"])
    assert error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_unknown_topic_is_reported_after_the_propagation_time(broker: FakeBroker) -> None:
    with producer(broker, topic_metadata_propagation_max_ms=100) as made:
        reports: Reports = []
        made.produce(
            "nowhere", b"v", b"k", headers=[("h", b"x")], timestamp=5, callback=lambda *r: reports.append(r)
        )
        assert made.flush(LIMIT_S) == 0
    [(error, message)] = reports
    assert error == message.error() == KafkaError._UNKNOWN_TOPIC
    assert (message.topic(), message.partition(), message.offset()) == ("nowhere", None, None)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("h", b"x")])
    assert message.timestamp()[1] == 5


def test_topic_created_while_records_wait_gets_them(broker: FakeBroker) -> None:
    missing = broker._metadata(MetadataRequest(topics=None), 13)
    missing.topics = [broker._topic("late")]
    broker.script(MetadataRequest, missing, missing)
    broker.topics["late"] = broker.topics["t"]
    with producer(broker) as made:
        [(error, _)] = send(made, [b"v"], topic="late", partition=-1)
    assert error is None


def test_full_queue_raises_buffer_error(broker: FakeBroker) -> None:
    with producer(broker, queue_buffering_max_messages=1, linger_ms=60_000) as made:
        made.produce("t", b"1", partition=0)
        with pytest.raises(BufferError):
            made.produce("t", b"2", partition=0)


def test_purge_reports_the_waiting_records(broker: FakeBroker) -> None:
    reports: Reports = []
    with producer(broker, linger_ms=60_000) as made:
        made.produce("t", b"1", partition=0, on_delivery=lambda *report: reports.append(report))
        made.purge()
        assert made.flush(LIMIT_S) == 0
    assert reports[0][0] == KafkaError._PURGE_QUEUE and reports[0][1].value() == b"1"
    assert not broker.asked(ProduceRequest)


def test_callback_that_raises_does_not_lose_the_reports_after_it(broker: FakeBroker) -> None:
    seen: list[bytes | None] = []

    def report(error: KafkaError | None, message: Message) -> None:
        seen.append(message.value())
        if message.value() == b"0":
            raise RuntimeError("mine")

    made = producer(broker, linger_ms=20)
    for number in range(3):
        made.produce("t", b"%d" % number, partition=0, on_delivery=report)
    with pytest.raises(RuntimeError, match="mine"):
        made.flush(LIMIT_S)
    made.flush(LIMIT_S)
    made.close()
    assert seen == [b"0", b"1", b"2"]


def test_only_errors_are_reported_when_asked(broker: FakeBroker) -> None:
    broker.script(ProduceRequest, broker.produce_error(ErrorCode.INVALID_RECORD))
    with producer(broker, delivery_report_only_error=True) as made:
        assert [error for error, _ in send(made, [b"bad"])] == [ErrorCode.INVALID_RECORD]
        assert send(made, [b"good"]) == []


def test_value_of_a_wrong_type_is_refused_and_text_is_utf8(broker: FakeBroker) -> None:
    with producer(broker) as made:
        with pytest.raises(TypeError, match="value"):
            made.produce("t", 5)
        with pytest.raises(TypeError, match="header"):
            made.produce("t", b"v", headers={"h": 5})
        made.produce("t", "grüße", key="k", headers={"a": "b", "c": None}, partition=0)
    assert broker.values("t", 0) == ["grüße".encode()]


def test_closed_producer_refuses_records(broker: FakeBroker) -> None:
    made = producer(broker)
    made.close()
    made.close()
    for call in (lambda: made.produce("t", b"v"), made.flush, made.poll, made.init_transactions):
        with pytest.raises(RuntimeError, match="the producer is closed"):
            call()


def test_unreachable_broker_is_reported_to_error_cb_with_address() -> None:
    errors: list[KafkaError] = []
    made = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 1000, "error_cb": errors.append}
    )
    reports: Reports = []
    made.produce("t", b"v", on_delivery=lambda *report: reports.append(report))
    made.flush(LIMIT_S)
    made.close()
    assert reports[0][0] == KafkaError._MSG_TIMED_OUT and "127.0.0.1:1" in reports[0][0].str()
    assert errors[0] == KafkaError._ALL_BROKERS_DOWN


def test_table_rows_go_by_partition_column_or_by_key(broker: FakeBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    with producer(broker) as made:
        table = pa.table({"value": [b"a", b"b", b"c"], "partition": [2, 0, 2]})
        assert made.produce_arrow("wide", table) == 3
        assert made.flush(LIMIT_S) == 0
        assert broker.values("wide", 2) == [b"a", b"c"] and broker.values("wide", 0) == [b"b"]
        keys = [b"%d" % number for number in range(50)]
        made.produce_arrow("wide", pa.table({"key": keys, "value": keys}))
        for key in keys:
            made.produce("wide", b"+" + key, key=key)
        made.flush(LIMIT_S)
        for number in range(3):
            found = broker.values("wide", number)
            columnar = {value for value in found if value in keys}
            assert columnar == {value[1:] for value in found if value and value.startswith(b"+")}
        with pytest.raises(KafkaException, match="3"):
            made.produce_arrow("wide", pa.table({"value": [b"a"], "partition": [3]}))


def test_column_that_would_be_lost_is_refused(broker: FakeBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"value": [b"a"], "colour": [b"red"], "taste": [b"sour"]})
    with producer(broker) as made:
        with pytest.raises(KafkaException, match="'colour', 'taste'"):
            made.produce_arrow("wide", table)
        with pytest.raises(KafkaException, match="no column 'id'"):
            made.produce_arrow("wide", table.select(["value"]), key="id")
        assert made.produce_arrow("wide", table.select(["value", "colour"]), key="colour") == 1
        assert made.flush(LIMIT_S) == 0
    assert [values for number in range(3) if (values := broker.values("wide", number))] == [[b"a"]]


def test_value_that_is_not_bytes_or_text_is_refused_with_advice(broker: FakeBroker) -> None:
    with producer(broker) as made, pytest.raises(TypeError, match=r"got int; .*serializer"):
        made.produce("t", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "choice", [lambda key, count: count, lambda key, count: -3, lambda key, count: 1 // 0]
)
def test_failing_partitioner_fails_only_its_own_records(broker: FakeBroker, choice: Any) -> None:
    def partitioner(key: bytes | None, count: int) -> int:
        return 0 if key == b"good" else choice(key, count)

    reports: Reports = []
    with producer(broker, partitioner=partitioner) as made:
        for key in (b"bad", b"good"):
            made.produce("wide", b"v", key, on_delivery=lambda *report: reports.append(report))
        assert made.flush(LIMIT_S) == 0, "a record was forgotten"
        # The topic is known now, so the caller gets the error at once.
        with pytest.raises((KafkaException, ZeroDivisionError)):
            made.produce("wide", b"v", b"bad")
        assert made.flush(LIMIT_S) == 0
    failed = {message.key(): error for error, message in reports}
    assert failed[b"bad"] is not None and failed[b"good"] is None


@pytest.mark.parametrize("timestamp", [-5, 2**63, "soon"])
def test_invalid_timestamp_is_refused_and_queues_nothing(broker: FakeBroker, timestamp: Any) -> None:
    with producer(broker) as made:
        for _ in range(2):
            with pytest.raises((KafkaException, ValueError, TypeError, OverflowError)):
                made.produce("t", b"v", timestamp=timestamp)
            assert made.flush(LIMIT_S) == 0
            send(made, [b"good"])
    assert broker.values("t", 0) == [b"good", b"good"]


def test_halves_of_a_batch_that_was_too_large_keep_their_order_without_idempotence(
    broker: FakeBroker,
) -> None:
    too_large = broker.produce_error(ErrorCode.MESSAGE_TOO_LARGE)
    passing = broker.produce_error(ErrorCode.NOT_ENOUGH_REPLICAS)
    broker.script(ProduceRequest, too_large, too_large, passing)
    values = [b"%d" % number for number in range(8)]
    with producer(broker, enable_idempotence=False, linger_ms=60_000) as made:
        send(made, values)
    assert broker.values("t", 0) == values


def test_topic_that_is_not_a_string_is_refused_and_queues_nothing(broker: FakeBroker) -> None:
    with producer(broker) as made:
        with pytest.raises(TypeError, match="topic"):
            made.produce(None, b"v")  # type: ignore[arg-type]
        [(error, _)] = send(made, [b"v"])
        assert error is None


@pytest.mark.parametrize("key", ["on_delivery", "delivery.report.only.error"])
def test_asyncio_producer_refuses_keys_without_effect(key: str) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", key: print if key == "on_delivery" else True}
    with pytest.raises(KafkaException, match="asyncio"):
        aio.Producer(config)


def test_asyncio_producer_reports_an_outage() -> None:
    errors: list[KafkaError] = []

    async def main() -> None:
        config = {"bootstrap.servers": "127.0.0.1:1", "error_cb": errors.append, "delivery.timeout.ms": 1000}
        async with aio.Producer(config) as made:
            with pytest.raises(KafkaException):
                await made.send_and_wait("t", b"v")

    asyncio.run(main())
    assert errors and errors[0] == KafkaError._ALL_BROKERS_DOWN


def test_throttling_is_reported_to_the_application_and_once_more_when_it_ends(
    broker: FakeBroker,
) -> None:
    slow = InitProducerIdResponse(throttle_time_ms=1500, producer_id=1, producer_epoch=0)
    broker.script(InitProducerIdRequest, slow)
    events: list[ThrottleEvent] = []
    config = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "throttle_cb": events.append}
    with Producer(config) as made:
        send(made, [b"v"])
    assert [(event.broker_name, event.throttle_time) for event in events] == [
        (broker.bootstrap, 1.5),
        (broker.bootstrap, 0.0),
    ]
    assert str(events[0]) == f"{broker.bootstrap}/{events[0].broker_id} throttled for 1500 ms"
    assert events[0].broker_id >= 0
