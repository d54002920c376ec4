"""Three brokers and real clients: what was acknowledged survives, and every replica holds the same bytes."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from felice.controller.service import NewTopic
from felice.replication.partition import Partition
from felice.server.broker import Broker
from felice.server.embedded import EmbeddedCluster

SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path / "data", 3, properties=SETTINGS) as started:
        yield started


def eventually(condition: Callable[[], bool], within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


def create(cluster: EmbeddedCluster, name: str, *replicas: tuple[int, ...], **configs: str) -> str:
    wish = NewTopic(
        name,
        assignment=dict(enumerate(replicas)),
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    cluster.run(any_broker(cluster).controller.create_topic(wish))
    eventually(lambda: all(name in broker.image.topics for broker in cluster.cluster.brokers.values()))
    return name


def any_broker(cluster: EmbeddedCluster) -> Broker:
    return next(iter(cluster.cluster.brokers.values()))


def replica(cluster: EmbeddedCluster, broker_id: int, topic: str, partition: int = 0) -> Partition:
    return cluster.cluster.brokers[broker_id].partitions.find(topic, partition)


def leader_of(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> int:
    found = any_broker(cluster).image.partition(topic, partition)
    assert found is not None
    return found.leader


def stored(partition: Partition, end_offset: int) -> bytes:
    log, data, offset = partition.log, b"", partition.log.log_start_offset
    data = log.read_bytes(offset, 1 << 30, end_offset=end_offset)
    for segment in log.segments[1:]:
        if offset < segment.base_offset < end_offset:
            data += log.read_bytes(segment.base_offset, 1 << 30, end_offset=end_offset)
    return data


def assert_alike(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> None:
    """Every replica has the leader's bytes, all of them."""
    brokers = cluster.cluster.brokers

    def are_level() -> bool:
        ends = {
            (found.log_end_offset, found.high_watermark)
            for broker in brokers.values()
            if (found := broker.partitions.get(topic, partition)) is not None
        }
        return len(ends) == 1 and all(end == watermark for end, watermark in ends)

    eventually(are_level)
    copies = {
        broker_id: stored(found, found.high_watermark)
        for broker_id, broker in brokers.items()
        if (found := broker.partitions.get(topic, partition)) is not None
    }
    assert len(copies) > 1
    assert len(set(copies.values())) == 1, {broker_id: len(copy) for broker_id, copy in copies.items()}


def values_of(cluster: EmbeddedCluster, topic: str, count: int, **options: object) -> list[bytes]:
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest",
        "enable.auto.commit": False, **options,
    })  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    return found


def test_acknowledged_records_are_on_every_replica(cluster: EmbeddedCluster) -> None:
    topic = create(cluster, "t", (1, 2, 3))
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(2000):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    assert replica(cluster, 1, topic).high_watermark == 2000
    assert_alike(cluster, topic)
    assert replica(cluster, 1, topic).isr == (1, 2, 3)
    assert values_of(cluster, topic, 2000) == [b"%d" % number for number in range(2000)]


class Writer(threading.Thread):
    """Produces numbers one after the other, and remembers which were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, **options: object) -> None:
        super().__init__()
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self._topic = topic
        self._producer = confluent_kafka.Producer({
            "bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, "enable.idempotence": True,
            "retry.backoff.ms": 50, "message.timeout.ms": 60_000, "topic.metadata.refresh.interval.ms": 1000,
            **options,
        })  # fmt: skip

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            self._producer.produce(
                self._topic, b"%d" % number, partition=0, on_delivery=self._reporter(number)
            )
            self._producer.poll(0)
            number += 1
            time.sleep(0.001)
        self._producer.flush(60)

    def _reporter(self, number: int) -> Callable[[object, object], None]:
        def report(error: object, message: object) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failures.append(str(error))

        return report


def test_no_acknowledged_record_is_lost_while_leaders_are_killed(cluster: EmbeddedCluster) -> None:
    topic = create(cluster, "t", (1, 2, 3))
    writer = Writer(cluster.bootstrap, topic)
    writer.start()
    try:
        for _ in range(3):
            reached = len(writer.acknowledged)
            eventually(lambda reached=reached: len(writer.acknowledged) > reached + 200)
            victim = leader_of(cluster, topic)
            cluster.run(cluster.cluster.kill_broker(victim))
            reached = len(writer.acknowledged)
            eventually(lambda reached=reached: len(writer.acknowledged) > reached + 200)
            cluster.run(cluster.cluster.start_broker(victim))
            eventually(
                lambda: (
                    len(replica(cluster, leader_of(cluster, topic), topic).isr) == 3
                    if leader_of(cluster, topic) in cluster.cluster.brokers
                    else False
                )
            )
    finally:
        writer.stopping.set()
        writer.join()
    assert not writer.failures
    assert_alike(cluster, topic)
    leader = replica(cluster, leader_of(cluster, topic), topic)
    found = values_of(cluster, topic, leader.high_watermark)
    # Idempotence: each once, in order, and all that were promised.
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) >= len(writer.acknowledged)
