"""Python clients behind the face of `peers.clients`: confluent-kafka, kafka-python, aiokafka, and our own."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import aiokafka
import confluent_kafka
import kafka

import felice.client
from peers.clients import CONSUME_TIMEOUT_S, Assignment, GroupMember, PeerClient, PollingMember
from peers.record import PeerRecord

HEARTBEAT_MS = 300
# Members of a group must not expire on a machine under heavy load.
SESSION_MS = 60_000
SEND_TIMEOUT_S = 100


class Confluent:
    """confluent-kafka, or any module with its face."""

    name = "confluent-kafka"
    module: Any = confluent_kafka

    def produce(self, bootstrap: str, topic: str, records: Sequence[PeerRecord], codec: str) -> None:
        failures: list[Any] = []
        producer = self.module.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
        )
        for record in records:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=record.partition,
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(SEND_TIMEOUT_S) == 0
        assert not failures, failures

    def consume(self, bootstrap: str, topic: str, count: int) -> list[PeerRecord]:
        consumer = self.module.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        )
        try:
            partitions = consumer.list_topics(topic, SEND_TIMEOUT_S).topics[topic].partitions
            beginning = self.module.OFFSET_BEGINNING
            consumer.assign([self.module.TopicPartition(topic, number, beginning) for number in partitions])
            return _read(count, lambda: _confluent_poll(consumer))
        finally:
            consumer.close()

    def join(self, bootstrap: str, group: str, topics: Sequence[str]) -> GroupMember:
        return ConfluentMember(self.module, bootstrap, group, topics)


def _read(count: int, poll: Callable[[], list[PeerRecord]]) -> list[PeerRecord]:
    records: list[PeerRecord] = []
    deadline = time.monotonic() + CONSUME_TIMEOUT_S
    while len(records) < count and time.monotonic() < deadline:
        records += poll()
    return records


def _confluent_poll(consumer: Any) -> list[PeerRecord]:
    messages = consumer.consume(500, timeout=0.1)
    for message in messages:
        assert message.error() is None, message.error()
    return [
        PeerRecord(
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
            timestamp_ms=message.timestamp()[1],
            partition=message.partition(),
            offset=message.offset(),
        )
        for message in messages
    ]


class ConfluentMember(PollingMember):
    def __init__(self, module: Any, bootstrap: str, group: str, topics: Sequence[str]) -> None:
        self._topics = list(topics)
        self._consumer = module.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "session.timeout.ms": SESSION_MS,
                "partition.assignment.strategy": "range",
            }
        )
        super().__init__()

    def open(self) -> None:
        self._consumer.subscribe(self._topics)

    def poll_once(self) -> list[PeerRecord]:
        return _confluent_poll(self._consumer)

    def current_assignment(self) -> Assignment:
        return {(row.topic, row.partition) for row in self._consumer.assignment()}

    def commit_polled(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Felice(Confluent):
    name = "felice"
    module = felice.client


class KafkaPython:
    name = "kafka-python"

    def produce(self, bootstrap: str, topic: str, records: Sequence[PeerRecord], codec: str) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20
        )
        with contextlib.closing(producer):
            futures = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            for future in futures:
                future.get(SEND_TIMEOUT_S)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[PeerRecord]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
        with contextlib.closing(consumer):
            numbers = consumer.partitions_for_topic(topic) or ()
            partitions = [kafka.TopicPartition(topic, number) for number in numbers]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            return _read(count, lambda: _kafka_python_poll(consumer))

    def join(self, bootstrap: str, group: str, topics: Sequence[str]) -> GroupMember:
        return KafkaPythonMember(bootstrap, group, topics)


def subscribe_kafka_python(consumer: Any, topics: Sequence[str]) -> None:
    """Subscribes, and lets the consumer know the topics' partitions before its first poll joins the group.

    Else a leader may assign by metadata that lacks the topic ("No partition metadata"), and when the metadata
    comes it joins again. That second assignment is lost if the poll that asked for it ends between the answers to
    JoinGroup and SyncGroup (3.0.12): the next poll sees nothing left to join, and never takes it.
    """
    consumer.subscribe(topics)
    known = consumer.topics()
    assert known.issuperset(topics), f"{topics} are not all in {known}"


def _kafka_python_poll(consumer: Any) -> list[PeerRecord]:
    polled = consumer.poll(timeout_ms=100)
    return [
        PeerRecord(
            key=row.key,
            value=row.value,
            headers=tuple(row.headers),
            timestamp_ms=row.timestamp,
            partition=row.partition,
            offset=row.offset,
        )
        for rows in polled.values()
        for row in rows
    ]


class KafkaPythonMember(PollingMember):
    def __init__(self, bootstrap: str, group: str, topics: Sequence[str]) -> None:
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        self._topics = list(topics)
        super().__init__()

    def open(self) -> None:
        subscribe_kafka_python(self._consumer, self._topics)

    def poll_once(self) -> list[PeerRecord]:
        return _kafka_python_poll(self._consumer)

    def current_assignment(self) -> Assignment:
        return {(row.topic, row.partition) for row in self._consumer.assignment()}

    def commit_polled(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    name = "aiokafka"

    def produce(self, bootstrap: str, topic: str, records: Sequence[PeerRecord], codec: str) -> None:
        asyncio.run(self._produce(bootstrap, topic, records, codec))

    async def _produce(self, bootstrap: str, topic: str, records: Sequence[PeerRecord], codec: str) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20
        )
        async with producer:
            futures = [
                await producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            await asyncio.wait_for(asyncio.gather(*futures), SEND_TIMEOUT_S)

    def consume(self, bootstrap: str, topic: str, count: int) -> list[PeerRecord]:
        return asyncio.run(self._consume(bootstrap, topic, count))

    async def _consume(self, bootstrap: str, topic: str, count: int) -> list[PeerRecord]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        async with consumer:
            await consumer._client.force_metadata_update()
            metadata = await consumer._client.fetch_all_metadata()
            numbers = metadata.partitions_for_topic(topic) or ()
            partitions = [aiokafka.TopicPartition(topic, number) for number in numbers]
            consumer.assign(partitions)
            records: list[PeerRecord] = []
            deadline = time.monotonic() + CONSUME_TIMEOUT_S
            while len(records) < count and time.monotonic() < deadline:
                records += await _aiokafka_poll(consumer)
            return records

    def join(self, bootstrap: str, group: str, topics: Sequence[str]) -> GroupMember:
        return AiokafkaMember(bootstrap, group, topics)


async def _aiokafka_poll(consumer: Any) -> list[PeerRecord]:
    polled = await consumer.getmany(timeout_ms=100)
    return [
        PeerRecord(
            key=row.key,
            value=row.value,
            headers=tuple(row.headers),
            timestamp_ms=row.timestamp,
            partition=row.partition,
            offset=row.offset,
        )
        for rows in polled.values()
        for row in rows
    ]


class AiokafkaMember(PollingMember):
    def __init__(self, bootstrap: str, group: str, topics: Sequence[str]) -> None:
        self._settings = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "session_timeout_ms": SESSION_MS,
        }
        self._topics = list(topics)
        super().__init__()

    def open(self) -> None:
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        self._runner = asyncio.Runner()
        self._runner.get_loop()
        self._consumer = self._runner.run(self._start((RangePartitionAssignor,)))

    async def _start(self, strategy: tuple[Any, ...]) -> Any:
        settings = {**self._settings, "partition_assignment_strategy": strategy}
        consumer = aiokafka.AIOKafkaConsumer(*self._topics, **settings)
        await consumer.start()
        return consumer

    def poll_once(self) -> list[PeerRecord]:
        return self._runner.run(_aiokafka_poll(self._consumer))

    def current_assignment(self) -> Assignment:
        return {(row.topic, row.partition) for row in self._consumer.assignment()}

    def commit_polled(self) -> None:
        self._runner.run(self._consumer.commit())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


CLIENTS: dict[str, Callable[[], PeerClient]] = {
    Confluent.name: Confluent,
    Felice.name: Felice,
    KafkaPython.name: KafkaPython,
    Aiokafka.name: Aiokafka,
}
