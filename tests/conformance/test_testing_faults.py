"""Other clients meet exactly the faults that `felice.testing` injects."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.errors import KafkaError as AiokafkaError

import felice.client
from felice.testing import AsyncBroker, Broker, ErrorCode, FaultKind, felice_broker

pytestmark = pytest.mark.felice_only
# Long enough for a machine under heavy load.
WAIT_S = 60.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 1, "other": 1}) as running:
        yield running


class Reports:
    """The result of each record that a producer was given."""

    def __init__(self) -> None:
        self.errors: list[Any] = []

    def __call__(self, error: Any, message: Any) -> None:
        self.errors.append(error)


def producer(kind: Any, broker: Broker, **settings: Any) -> Any:
    return kind.Producer(
        {"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 20, "linger.ms": 0, **settings}
    )


def consumer(kind: Any, broker: Broker, **settings: Any) -> Any:
    return kind.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "group",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def produce(client: Any, topic: str = "orders", value: bytes = b"v") -> list[Any]:
    reports = Reports()
    client.produce(topic, value, on_delivery=reports)
    assert client.flush(WAIT_S) == 0
    return reports.errors


def read(client: Any, count: int, timeout_s: float = WAIT_S) -> list[Any]:
    deadline, found = time.monotonic() + timeout_s, []
    while len(found) < count and time.monotonic() < deadline:
        message = client.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    return found


both = pytest.mark.parametrize("kind", [confluent_kafka, felice.client], ids=["confluent", "felice"])


@both
def test_three_refused_produces_are_retried_and_the_record_is_there_once(broker: Broker, kind: Any) -> None:
    fault = broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders", times=3)
    assert produce(producer(kind, broker)) == [None]
    assert fault.fired == 3
    assert [(injection.api, injection.topics) for injection in broker.faults.injected] == [
        ("Produce", ("orders",))
    ] * 3
    assert [record.value for record in broker.records("orders")] == [b"v"]
    broker.faults.assert_all_fired()


@both
def test_a_permanent_error_reaches_the_application(broker: Broker, kind: Any) -> None:
    broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="orders")
    [error] = produce(producer(kind, broker))
    assert error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert produce(producer(kind, broker), "other") == [None]
    assert broker.records("orders") == []


@both
def test_a_lost_acknowledgement_makes_a_plain_producer_write_twice_and_an_idempotent_one_once(
    broker: Broker, kind: Any
) -> None:
    for topic, idempotent, copies in (("orders", False, 2), ("other", True, 1)):
        broker.faults.drop("Produce", topic=topic, applied=True)
        assert produce(producer(kind, broker, **{"enable.idempotence": idempotent}), topic) == [None]
        assert len(broker.records(topic)) == copies
    broker.faults.assert_all_fired()


@both
def test_a_delayed_fetch_comes_late_and_whole(broker: Broker, kind: Any) -> None:
    broker.produce("orders", "late")
    with broker.faults.delay("Fetch", 600) as fault:
        client = consumer(kind, broker)
        began = time.monotonic()
        client.assign([kind.TopicPartition("orders", 0, 0)])
        [message] = read(client, 1)
        assert time.monotonic() - began > 0.6
        fault.wait_fired(timeout_s=WAIT_S)
    assert message.value() == b"late"
    client.close()


@both
def test_a_consumer_outlives_failing_fetches_and_commits(broker: Broker, kind: Any) -> None:
    for number in range(5):
        broker.produce("orders", str(number))
    broker.faults.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders", times=2)
    broker.faults.fail("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
    broker.faults.fail("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=1)
    broker.faults.fail("JoinGroup", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
    client = consumer(kind, broker, **{"enable.auto.commit": False})
    client.subscribe(["orders"])
    assert [message.value() for message in read(client, 5)] == [b"0", b"1", b"2", b"3", b"4"]
    client.commit(asynchronous=False)
    client.close()
    broker.faults.assert_all_fired()


@both
def test_broken_connections_are_opened_again(broker: Broker, kind: Any) -> None:
    client = producer(kind, broker, **{"client.id": "cut-me"})
    assert produce(client) == [None]
    assert broker.faults.drop_connections("somebody-else") == 0
    assert broker.faults.drop_connections("cut-me") >= 1
    assert produce(client) == [None]
    assert len(broker.records("orders")) == 2
    assert {injection.kind for injection in broker.faults.injected} == {FaultKind.DROP}


@both
def test_a_black_hole_swallows_until_it_is_removed(broker: Broker, kind: Any) -> None:
    client = producer(kind, broker, **{"enable.idempotence": True})
    reports = Reports()
    with broker.faults.black_hole("Produce", topic="orders") as hole:
        client.produce("orders", b"v", on_delivery=reports)
        hole.wait_fired(timeout_s=WAIT_S)
        client.flush(0.3)
        assert reports.errors == []
    assert client.flush(WAIT_S) == 0
    assert reports.errors == [None]
    assert len(broker.records("orders")) == 1


@both
def test_acknowledged_records_survive_kill_9_and_the_clients_continue(broker: Broker, kind: Any) -> None:
    client = producer(kind, broker)
    assert produce(client, value=b"before") == [None]
    broker.kill()
    broker.restart()
    assert produce(client, value=b"after") == [None]
    reader = consumer(kind, broker)
    reader.subscribe(["orders"])
    assert [message.value() for message in read(reader, 2)] == [b"before", b"after"]
    reader.close()


def test_aiokafka_retries_what_is_refused_inside_one_loop() -> None:
    async def scenario() -> None:
        async with felice_broker(topics=["orders"]) as broker:
            client = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=20)
            await client.start()
            fault = broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders", times=3)
            await client.send_and_wait("orders", b"v")
            assert fault.fired == 3
            broker.faults.drop("Produce", topic="orders")
            await client.send_and_wait("orders", b"w")
            broker.faults.fail("Produce", ErrorCode.MESSAGE_TOO_LARGE)
            with pytest.raises(AiokafkaError):
                await client.send_and_wait("orders", b"x")
            await client.stop()
            assert [record.value for record in await broker.records("orders")] == [b"v", b"w"]
            broker.faults.assert_all_fired()

    asyncio.run(scenario())


def test_aiokafka_reads_through_failing_and_late_fetches() -> None:
    async def scenario() -> None:
        async with AsyncBroker(topics=["orders"]) as broker:
            await broker.produce("orders", "v", key="k", headers=[("h", b"1")])
            broker.faults.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
            broker.faults.delay("Fetch", 50)
            client = aiokafka.AIOKafkaConsumer(
                "orders",
                bootstrap_servers=broker.bootstrap,
                group_id="group",
                auto_offset_reset="earliest",
                retry_backoff_ms=20,
            )
            await client.start()
            message = await asyncio.wait_for(client.getone(), WAIT_S)
            assert (message.key, message.value, message.headers) == (b"k", b"v", (("h", b"1"),))
            await client.stop()
            broker.faults.assert_all_fired()

    asyncio.run(scenario())


def test_another_process_reaches_the_broker(broker: Broker) -> None:
    program = (
        "import sys, confluent_kafka\n"
        "p = confluent_kafka.Producer({'bootstrap.servers': sys.argv[1]})\n"
        "p.produce('orders', b'from afar')\n"
        "sys.exit(p.flush(60))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, broker.bootstrap])
    [record] = broker.wait_for_records("orders", 1, WAIT_S)
    assert child.wait(WAIT_S) == 0
    assert record.value == b"from afar"
