"""Transactions of other clients: all clients see what one commits, and none sees what one aborts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import aiokafka
import kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from peers.java import require_java, run_tool

# Long enough for a machine under heavy load.
TIMEOUT_S = 180
TRANSACTION_MS = 600_000
ROUNDS = (("first", True), ("second", False), ("third", True))
COMMITTED = sorted(f"{name}-{number}" for name, kept in ROUNDS if kept for number in range(5))
EVERYTHING = sorted(f"{name}-{number}" for name, _ in ROUNDS for number in range(5))


def values_of(name: str) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(5)]


def confluent_writes(bootstrap: str, topic: str, transactional_id: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_MS,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    for name, kept in ROUNDS:
        producer.begin_transaction()
        for number, value in enumerate(values_of(name)):
            producer.produce(topic, value, partition=number % 2)
        assert producer.flush(TIMEOUT_S) == 0
        if kept:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)


def aiokafka_writes(bootstrap: str, topic: str, transactional_id: str) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_MS,
        )
        async with producer:
            for name, kept in ROUNDS:
                await producer.begin_transaction()
                for number, value in enumerate(values_of(name)):
                    await producer.send_and_wait(topic, value, partition=number % 2)
                if kept:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(asyncio.wait_for(write(), TIMEOUT_S))


def kafka_python_writes(bootstrap: str, topic: str, transactional_id: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_MS,
    )
    with contextlib.closing(producer):
        producer.init_transactions()
        for name, kept in ROUNDS:
            producer.begin_transaction()
            for number, value in enumerate(values_of(name)):
                producer.send(topic, value, partition=number % 2).get(TIMEOUT_S)
            if kept:
                producer.commit_transaction()
            else:
                producer.abort_transaction()


def confluent_reads(bootstrap: str, topic: str, isolation: str, count: int) -> list[str]:
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "isolation.level": isolation,
        "enable.auto.commit": False,
    }
    consumer = Consumer(options)
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(2)])
        return read(count, lambda: [m.value() for m in consumer.consume(100, 0.3) if m.error() is None])


def kafka_python_reads(bootstrap: str, topic: str, isolation: str, count: int) -> list[str]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, isolation_level=isolation
    )
    with contextlib.closing(consumer):
        partitions = [kafka.TopicPartition(topic, number) for number in range(2)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        return read(count, lambda: [row.value for rows in consumer.poll(300).values() for row in rows])


def aiokafka_reads(bootstrap: str, topic: str, isolation: str, count: int) -> list[str]:
    async def consume() -> list[str]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
        found: list[bytes] = []
        async with consumer:
            partitions = [aiokafka.TopicPartition(topic, number) for number in range(2)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            quiet_since = time.monotonic()
            while time.monotonic() - quiet_since < 1.0:
                rows = await consumer.getmany(timeout_ms=300)
                new = [row.value for batch in rows.values() for row in batch]
                quiet_since = time.monotonic() if new or len(found) < count else quiet_since
                found += new
        return sorted(value.decode() for value in found)

    return asyncio.run(asyncio.wait_for(consume(), TIMEOUT_S))


def read(count: int, poll: Callable[[], list[bytes]]) -> list[str]:
    """Reads until the expected records and then nothing for a while have come, so that it notices surplus records."""
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    quiet = 0
    while time.monotonic() < deadline and quiet < 3:
        new = poll()
        found += new
        quiet = 0 if new or len(found) < count else quiet + 1
    return sorted(value.decode() for value in found)


def console_reads(bootstrap: str, topic: str, isolation: str, count: int) -> list[str]:
    """Reads `count` records. Visible aborted records would be among them, because they come before the last record."""
    require_java()
    done = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--isolation-level", isolation),
        *("--max-messages", str(count), "--timeout-ms", "180000"),
        check=False,
    )
    return sorted(done.stdout.split())


WRITERS = {
    "confluent-kafka": confluent_writes,
    "aiokafka": aiokafka_writes,
    "kafka-python": kafka_python_writes,
}
READERS = {
    "confluent-kafka": confluent_reads,
    "kafka-python": kafka_python_reads,
    "aiokafka": aiokafka_reads,
    "java": console_reads,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_read_committed_clients_see_exactly_the_committed_records(broker: Target, writer: str) -> None:
    topic = create_topic(broker, unique_name("t"), 2)
    WRITERS[writer](broker.bootstrap, topic, unique_name("tx"))
    for name, reads in READERS.items():
        assert reads(broker.bootstrap, topic, "read_committed", len(COMMITTED)) == COMMITTED, name
    assert confluent_reads(broker.bootstrap, topic, "read_uncommitted", len(EVERYTHING)) == EVERYTHING


def test_offsets_are_committed_and_aborted_with_the_transaction(broker: Target) -> None:
    topic = create_topic(broker, unique_name("t"))
    group = unique_name("g")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique_name("tx")})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    where = TopicPartition(topic, 0)
    producer.init_transactions(TIMEOUT_S)
    for offset, kept in ((3, True), (5, False)):
        producer.begin_transaction()
        wanted = [TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(wanted, consumer.consumer_group_metadata(), TIMEOUT_S)
        if kept:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
        assert consumer.committed([where], TIMEOUT_S)[0].offset == 3
    consumer.close()


def test_the_second_producer_of_an_id_fences_the_first(broker: Target) -> None:
    topic = create_topic(broker, unique_name("t"), 2)
    options = {"bootstrap.servers": broker.bootstrap, "transactional.id": unique_name("tx")}
    first, second = Producer(options), Producer(options)
    first.init_transactions(TIMEOUT_S)
    first.begin_transaction()
    first.produce(topic, b"zombie", partition=0)
    assert first.flush(TIMEOUT_S) == 0
    second.init_transactions(TIMEOUT_S)
    with pytest.raises(KafkaException):
        first.commit_transaction(TIMEOUT_S)
    second.begin_transaction()
    second.produce(topic, b"next", partition=0)
    second.commit_transaction(TIMEOUT_S)
    assert confluent_reads(broker.bootstrap, topic, "read_committed", 1) == ["next"]
