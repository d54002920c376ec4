"""A broker that answers nothing keeps no client from asking another one, and no record from its report.

Clients mostly wait here. So the cases of a test run at the same time, each with a broker of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from felice.client import AdminClient, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from felice.client.blocking import BlockingClient
from felice.protocol.messages.metadata import MetadataRequest
from felice.testing import Broker
from proxy import (
    CUT,
    DEAF,
    HALF_CLOSED,
    KINDS,
    REFUSED,
    SILENT,
    SLOW,
    TRUNCATED,
    Fault,
    Proxy,
    behind,
    black_hole,
)
from unit.client.fake_broker import FakeBroker, brokers_at
from waiting import LIMIT_S, wait_until

Case = TypeVar("Case", bound=Hashable)
Outcome = TypeVar("Outcome")

# A client that waits for the silent address waits for `request.timeout.ms`, 30 s.
SOON_S = 20.0


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Broker, Proxy]]:
    with behind(topics={"t": 1}) as running:
        yield running


@pytest.fixture
def proxy(served: tuple[Broker, Proxy]) -> Proxy:
    served[1].repair()
    return served[1]


def in_time(call: Callable[[], Any]) -> Any:
    began = time.monotonic()
    found = call()
    assert time.monotonic() - began < SOON_S
    return found


def at_once(try_out: Callable[[Case], Outcome], cases: Sequence[Case]) -> dict[Case, Future[Outcome]]:
    with ThreadPoolExecutor(len(cases)) as pool:
        return {case: pool.submit(try_out, case) for case in cases}


def pass_over(kind: str) -> None:
    """The first address stays as it is, the second has a broker."""
    with behind(topics={"t": 1}) as (_, first), Broker(topics={"t": 1}) as second:
        first.set(Fault(kind))
        both = {"bootstrap.servers": f"{first.bootstrap},{second.bootstrap}"}
        with AdminClient(both) as admin:
            assert "t" in in_time(lambda: admin.list_topics(timeout=SOON_S)).topics
        with Consumer({**both, "group.id": "g"}) as consumer:
            assert in_time(lambda: consumer.get_watermark_offsets(TopicPartition("t", 0), SOON_S)) == (0, 0)
            assert in_time(lambda: consumer.committed([TopicPartition("t", 0)], SOON_S))[0].error is None
        with Producer(both) as producer:
            producer.produce("t", b"v")
            assert in_time(lambda: producer.flush(SOON_S)) == 0
        with BlockingClient(",".join(both.values())) as client:
            assert "t" in in_time(client.metadata).topics


FIRST = [SILENT, DEAF, TRUNCATED, HALF_CLOSED, CUT, REFUSED]


@pytest.fixture(scope="module")
def passed_over() -> dict[str, Future[None]]:
    return at_once(pass_over, FIRST)


@pytest.mark.parametrize("kind", FIRST)
def test_the_next_address_is_tried_soon(passed_over: dict[str, Future[None]], kind: str) -> None:
    passed_over[kind].result()


def test_a_paused_broker_is_passed_over() -> None:
    with black_hole() as paused, Broker(topics=["t"]) as live:
        config = {"bootstrap.servers": f"{paused},{live.bootstrap}"}
        with AdminClient(config) as admin:
            assert "t" in in_time(lambda: admin.list_topics(timeout=SOON_S)).topics


def test_metadata_come_from_another_broker_when_a_known_one_falls_silent() -> None:
    with FakeBroker({"t": 1}) as one, FakeBroker({"t": 1}) as other:
        usual = [broker.handlers[MetadataRequest] for broker in (one, other)]
        silent: list[FakeBroker] = []

        def answer(broker: FakeBroker, made: Any) -> Callable[[Any, int], Any]:
            def handle(request: Any, version: int) -> Any:
                from unit.client.fake_broker import Hang

                if broker in silent:
                    return Hang
                response = made(request, version)
                response.brokers = brokers_at({1: one.port, 2: other.port})
                return response

            return handle

        for broker, made in zip((one, other), usual, strict=True):
            broker.handlers[MetadataRequest] = answer(broker, made)
        with Consumer({"bootstrap.servers": one.bootstrap, "group.id": "g"}) as consumer:
            assert len(consumer.list_topics(timeout=LIMIT_S).brokers) == 2
            silent.append(one)
            for _ in range(3):
                assert "t" in in_time(lambda: consumer.list_topics(timeout=SOON_S)).topics
            assert other.asked(MetadataRequest)


@dataclass(frozen=True)
class Reported:
    """What became of two records, and how long it took."""

    reports: list[tuple[KafkaError | None, bytes]]
    left: int
    seconds: float
    has_closed: bool


def produce_into(fault: Fault) -> Reported:
    """Two records with a time limit of a second."""
    with behind(topics={"t": 1}) as (_, proxy):
        proxy.set(fault)
        reports: list[Any] = []
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "message.timeout.ms": 1000})
        began = time.monotonic()
        for value in (b"1", b"2"):
            producer.produce(
                "t", value, on_delivery=lambda error, message: reports.append((error, message.value()))
            )
        left = producer.flush(SOON_S)
        return Reported(reports, left, time.monotonic() - began, producer.close(SOON_S))


SILENCES = [
    Fault(kind, api=api)
    for kind in (SILENT, DEAF, TRUNCATED)
    for api in (None, "Metadata", "InitProducerId", "Produce")
]


@pytest.fixture(scope="module")
def reported() -> dict[Fault, Future[Reported]]:
    return at_once(produce_into, SILENCES)


@pytest.mark.parametrize("fault", SILENCES, ids=lambda fault: f"{fault.kind}-{fault.api}")
def test_a_record_is_reported_at_its_time_limit(
    reported: dict[Fault, Future[Reported]], fault: Fault
) -> None:
    found = reported[fault].result()
    assert found.left == 0 and found.has_closed
    assert 0.9 < found.seconds < SOON_S
    assert found.reports == [(KafkaError._MSG_TIMED_OUT, b"1"), (KafkaError._MSG_TIMED_OUT, b"2")]


def test_records_after_a_silence_arrive_once_and_in_order(served: tuple[Broker, Proxy], proxy: Proxy) -> None:
    broker, _ = served
    before = len(broker.records("t"))
    config = {"bootstrap.servers": proxy.bootstrap, "message.timeout.ms": 1000, "request.timeout.ms": 3000}
    with Producer(config) as producer:
        producer.produce("t", b"first")
        assert producer.flush(SOON_S) == 0
        proxy.set(Fault(SILENT, api="Produce"))
        producer.produce("t", b"lost")
        assert producer.flush(SOON_S) == 0
        proxy.repair()
        delivered: list[bytes] = []

        def deliver(value: bytes) -> None:
            reports: list[Any] = []
            producer.produce("t", value, on_delivery=lambda error, _: reports.append(error))
            producer.flush(SOON_S)
            if reports[0] is None:
                delivered.append(value)

        wait_until(lambda: deliver(b"after") or delivered)
        deliver(b"last")
    values = [row.value for row in broker.records("t")[before:]]
    assert [value for value in values if value != b"lost"] == [b"first", b"after", b"last"][: len(values)]


def test_slow_answers_are_waited_for(proxy: Proxy) -> None:
    """Slower than the time after which another address would be asked."""
    proxy.set(Fault(SLOW, seconds=0.6))
    with Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "g"}) as consumer:
        assert "t" in consumer.list_topics(timeout=LIMIT_S).topics
        assert consumer.committed([TopicPartition("t", 0)], LIMIT_S)[0].error is None


def test_a_connection_that_was_cut_at_any_request_is_opened_again(proxy: Proxy) -> None:
    with Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "g"}) as consumer:
        consumer.list_topics(timeout=LIMIT_S)
        for api in ("ListOffsets", "OffsetFetch"):
            proxy.set(Fault(CUT, api=api))
            with pytest.raises(KafkaException):
                consumer.committed([TopicPartition("t", 0)], 0.5)
                consumer.get_watermark_offsets(TopicPartition("t", 0), 0.5)
            proxy.fault = None
            assert consumer.committed([TopicPartition("t", 0)], LIMIT_S)[0].error is None


def test_a_call_that_ended_leaves_its_connection_to_be_found_dead(proxy: Proxy) -> None:
    """Calls with short limits only: the silent connection is given up after `request.timeout.ms` all the same."""
    config = {
        "bootstrap.servers": proxy.bootstrap,
        "group.id": "g",
        "request.timeout.ms": 1000,
        # The next connection is silent from its first request on.
        "socket.connection.setup.timeout.ms": 1000,
    }
    with Consumer(config) as consumer:
        consumer.list_topics(timeout=LIMIT_S)
        connections = proxy.connections
        proxy.set(Fault(SILENT, after=0))

        def tried_again() -> bool:
            with pytest.raises(KafkaException):
                consumer.list_topics(timeout=0.2)
            return proxy.connections > connections

        wait_until(tried_again)
        proxy.fault = None

        def answered() -> bool:
            try:
                return "t" in consumer.list_topics(timeout=5).topics
            except KafkaException:
                return False

        wait_until(answered)


def test_closing_a_member_of_a_group_ends_without_its_coordinator(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits on their way, the last commit and the farewell take 5 s each; here half a second."""
    monkeypatch.setattr("felice.client.consume.core._LAST_COMMIT_TIMEOUT_S", 0.5)
    monkeypatch.setattr("felice.client.group.membership._LEAVE_S", 0.5)
    consumer = Consumer(
        {"bootstrap.servers": proxy.bootstrap, "group.id": "closing", "auto.offset.reset": "earliest"}
    )
    with Producer({"bootstrap.servers": proxy.bootstrap}) as producer:
        producer.produce("t", b"v")
    consumer.subscribe(["t"])
    wait_until(lambda: consumer.poll(0.1))
    proxy.set(Fault(SILENT))
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(SOON_S)
    assert not closing.is_alive()


def end_transaction(kind: str) -> None:
    with behind(topics={"t": 1}) as (_, proxy):
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": "x"})
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        producer.produce("t", b"v")
        producer.flush(LIMIT_S)
        proxy.set(Fault(kind))
        group = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "g"}).consumer_group_metadata()
        calls = [
            lambda: producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], group, 0.5),
            lambda: producer.commit_transaction(0.5),
        ]
        for call in calls:
            with pytest.raises(KafkaException) as late:
                in_time(call)
            assert late.value.code in (KafkaError._TIMED_OUT, KafkaError._CONFLICT, KafkaError._STATE)
        proxy.repair()
        assert producer.close(LIMIT_S)


ENDINGS = [kind for kind in KINDS if kind != SLOW]


@pytest.fixture(scope="module")
def ended() -> dict[str, Future[None]]:
    return at_once(end_transaction, ENDINGS)


@pytest.mark.parametrize("kind", ENDINGS)
def test_transactions_end_at_their_limit(ended: dict[str, Future[None]], kind: str) -> None:
    ended[kind].result()
