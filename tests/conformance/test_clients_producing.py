"""Acknowledgements, idempotence and record sizes, with the clients' own settings."""

import asyncio
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import felice.client
from conformance.batches import batch_headers_of
from conformance.targets import Target
from conformance.topics import create_topic, list_offset
from conformance.wire import Wire, unique_name
from peers.clients import Clients
from peers.record import PeerRecord
from waiting import LIMIT_S, wait_until

COUNT = 300
MEBIBYTE = 1 << 20
CONFLUENT_FACES = {"confluent-kafka": confluent_kafka, "felice": felice.client}


def send_many(module: Any, bootstrap: str, topic: str, **settings: Any) -> list[Any]:
    """The errors that the client reported for each of COUNT records."""
    reported: list[Any] = []
    named = {name.replace("_", "."): value for name, value in settings.items()}
    producer = module.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.size": 2000, **named})
    for number in range(COUNT):
        producer.produce(
            topic, value=b"%d" % number, partition=0, on_delivery=lambda error, _: reported.append(error)
        )
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0
    return reported


def assert_written_once_in_order(wire: Wire, topic: str) -> None:
    wait_until(lambda: list_offset(wire, topic, -1).offset == COUNT)
    headers = batch_headers_of(wire, topic)
    assert sum(header.record_count for header in headers) == COUNT


@pytest.mark.parametrize("name", CONFLUENT_FACES)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(broker: Target, wire: Wire, name: str, acks: str) -> None:
    topic = create_topic(broker, unique_name("acks"))
    assert send_many(CONFLUENT_FACES[name], broker.bootstrap, topic, acks=acks) == [None] * COUNT
    assert_written_once_in_order(wire, topic)


@pytest.mark.parametrize("name", CONFLUENT_FACES)
def test_an_idempotent_producer_numbers_its_batches(broker: Target, wire: Wire, name: str) -> None:
    topic = create_topic(broker, unique_name("idempotent"))
    reported = send_many(CONFLUENT_FACES[name], broker.bootstrap, topic, enable_idempotence=True)
    assert reported == [None] * COUNT
    assert_sequences_are_contiguous(wire, topic)


def assert_sequences_are_contiguous(wire: Wire, topic: str) -> None:
    assert_written_once_in_order(wire, topic)
    expected = 0
    for header in batch_headers_of(wire, topic):
        assert header.producer_id >= 0
        assert header.base_sequence == expected
        expected += header.record_count


def test_aiokafka_and_kafka_python_produce_idempotently(broker: Target, wire: Wire) -> None:
    topic = create_topic(broker, unique_name("idempotent"))
    asyncio.run(send_with_aiokafka(broker.bootstrap, topic))
    assert_sequences_are_contiguous(wire, topic)
    topic = create_topic(broker, unique_name("idempotent"))
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True, linger_ms=1)
    sent = [producer.send(topic, b"%d" % number, partition=0) for number in range(COUNT)]
    assert [future.get(LIMIT_S).offset for future in sent] == list(range(COUNT))
    producer.close()
    assert_sequences_are_contiguous(wire, topic)


async def send_with_aiokafka(bootstrap: str, topic: str) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=1)
    async with producer:
        sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(COUNT)]
        await asyncio.gather(*sent)


@pytest.mark.parametrize(
    "name", ["felice", "confluent-kafka", "kafka-python", "aiokafka", "java", "franz-go", "kafkajs"]
)
def test_a_record_near_the_limit_travels_and_comes_back(broker: Target, clients: Clients, name: str) -> None:
    """A record of 900 kB, where a megabyte is allowed, is larger than every first buffer."""
    topic, client = create_topic(broker, unique_name("large")), clients.get(name)
    value = bytes(range(256)) * 3600
    client.produce(broker.bootstrap, topic, [PeerRecord(b"k", value)], "none")
    (record,) = client.consume(broker.bootstrap, topic, 1)
    assert record.value == value


@pytest.mark.parametrize("name", CONFLUENT_FACES)
def test_a_record_over_the_topics_limit_fails_its_delivery_report(broker: Target, name: str) -> None:
    """The delivery report has MESSAGE_TOO_LARGE, and smaller records are still sent."""
    module = CONFLUENT_FACES[name]
    topic = create_topic(broker, unique_name("large"), max_message_bytes=10_000)
    reported: list[Any] = []
    producer = module.Producer({"bootstrap.servers": broker.bootstrap})
    for size in (20_000, 100):
        producer.produce(topic, value=b"x" * size, on_delivery=lambda error, _: reported.append(error))
        assert producer.flush(LIMIT_S) == 0
    assert reported[0].code() == module.KafkaError.MSG_SIZE_TOO_LARGE
    assert reported[1] is None


def test_many_partitions_are_written_and_read(broker: Target, clients: Clients) -> None:
    """One fetch of a consumer covers a hundred partitions of a topic."""
    topic = create_topic(broker, unique_name("wide"), partitions=100)
    records = [PeerRecord(b"k", b"%d" % number, partition=number) for number in range(100)]
    clients.get("confluent-kafka").produce(broker.bootstrap, topic, records, "none")
    for name in ("java", "confluent-kafka", "felice"):
        seen = clients.get(name).consume(broker.bootstrap, topic, 100)
        assert sorted((row.partition, row.value) for row in seen) == [(n, b"%d" % n) for n in range(100)]
