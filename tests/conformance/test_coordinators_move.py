"""Coordinators move with the leaders of their partitions: groups and transactions of real clients survive brokers that
die, stop, or hand partitions over.
"""

from __future__ import annotations

import json
import random
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from conformance.copying import QUICK, copy_exactly_once
from conformance.reassignment import move
from conformance.wire import unique_name
from felice.coordinator.runtime import partition_for
from felice.testing import Cluster

pytestmark = [pytest.mark.felice_only, pytest.mark.timeout(1800)]

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "replica.lag.time.max.ms": "3000",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, properties=SETTINGS) as started:
        yield started


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> Iterator[None]:
    yield
    for broker_id in (1, 2, 3):
        cluster.start_broker(broker_id)
    cluster.wait_in_sync(120)


def coordinator_of(cluster: Cluster, group: str) -> int:
    topic = cluster.image.topics[OFFSETS]
    return cluster.leader(OFFSETS, partition_for(group, len(topic.partitions)))


class Member:
    """A consumer on a thread: the records that it got, and how often its assignment changed."""

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 300,
                "statistics.interval.ms": 100,
                "stats_cb": self._on_statistics,
            }
        )
        self.seen: list[int] = []
        self.committed = 0
        self.assignments = 0
        self.errors: list[str] = []
        # Where it reaches its coordinator; empty while it does not.
        self.coordinator = ""
        self._stopping = threading.Event()
        self._consumer.subscribe([topic], on_assign=self._on_assign)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_assign(self, consumer: object, partitions: object) -> None:
        self.assignments += 1

    def _on_statistics(self, text: str) -> None:
        found = json.loads(text)["brokers"].get("GroupCoordinator", {})
        self.coordinator = found["nodename"] if found.get("state") == "UP" else ""

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            self.seen.append(int(message.value() or b""))
            try:
                self._consumer.commit(message, asynchronous=False)
                self.committed = len(self.seen)
            except confluent_kafka.KafkaException as error:
                self.errors.append(str(error))
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@contextmanager
def member_of(cluster: Cluster, topic: str, group: str) -> Iterator[Member]:
    member = Member(cluster, topic, group)
    try:
        yield member
    finally:
        member.stop()


def wait_followed(cluster: Cluster, member: Member, group: str) -> None:
    """Until the member has found the coordinator that its group has now.

    A commit that meets the old one may keep librdkafka from it for the rest of the session: it sends the commit again
    while it has no coordinator, loses it in turning to the next one, and takes that for the end of that one, over and
    over (confluentinc/librdkafka#3645).
    """

    def has_followed(found: Cluster) -> bool:
        leader = coordinator_of(found, group)
        return leader != -1 and member.coordinator == f"127.0.0.1:{found.port(leader)}"

    cluster.wait_until(has_followed, 120)


def produce(cluster: Cluster, topic: str, values: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(topic, b"%d" % value)
    assert producer.flush(120) == 0


def committed(cluster: Cluster, topic: str, group: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        (row,) = consumer.committed([TopicPartition(topic, 0)], 120)
        return row.offset
    finally:
        consumer.close()


def new_topic(cluster: Cluster) -> str:
    topic = unique_name("topic")
    cluster.create_topic(topic, 1, 3, {"min.insync.replicas": "2"})
    return topic


def kill(cluster: Cluster, broker_id: int) -> None:
    cluster.kill_broker(broker_id)


def stop(cluster: Cluster, broker_id: int) -> None:
    cluster.stop_broker(broker_id)


def test_the_internal_topics_have_three_replicas_of_which_two_must_be_in_sync(cluster: Cluster) -> None:
    topic = new_topic(cluster)
    with member_of(cluster, topic, unique_name("group")):
        cluster.wait_until(lambda found: OFFSETS in found.image.topics, 120)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": unique_name("id")}
    )
    producer.init_transactions(120)
    for name in (OFFSETS, TRANSACTIONS):
        assert {len(one.replicas) for one in cluster.image.topics[name].partitions} == {3}
        assert cluster.image.topic_configs[name]["min.insync.replicas"] == "2"


@pytest.mark.parametrize("end", [kill, stop])
def test_a_group_keeps_its_member_and_offsets_when_its_coordinator_dies(
    cluster: Cluster, end: Callable[[Cluster, int], None]
) -> None:
    """There is no rebalance: the member's session continues at the new coordinator."""
    topic, group = new_topic(cluster), unique_name("group")
    produce(cluster, topic, range(10))
    with member_of(cluster, topic, group) as member:
        cluster.wait_until(lambda _: member.committed == 10, 120)
        before = coordinator_of(cluster, group)
        end(cluster, before)
        cluster.wait_until(lambda found: coordinator_of(found, group) not in (before, -1), 120)
        wait_followed(cluster, member, group)
        produce(cluster, topic, range(10, 20))
        cluster.wait_until(lambda _: len(member.seen) == 20, 120)
        cluster.wait_until(lambda found: committed(found, topic, group) == 20, 120)
        assert member.seen == list(range(20))
        assert member.assignments == 1


def test_a_group_goes_on_while_its_partition_of_the_offsets_moves(cluster: Cluster) -> None:
    topic, group = new_topic(cluster), unique_name("group")
    produce(cluster, topic, range(10))
    with member_of(cluster, topic, group) as member:
        cluster.wait_until(lambda _: member.committed == 10, 120)
        index = partition_for(group, 3)
        for value, replicas in enumerate([[1, 2], [3], [2, 3], [1, 2, 3]], 10):
            move(cluster, OFFSETS, index, replicas)
            wait_followed(cluster, member, group)
            produce(cluster, topic, range(value, value + 1))
        cluster.wait_until(lambda _: len(member.seen) == 14, 120)
        cluster.wait_until(lambda found: committed(found, topic, group) == 14, 120)
        assert member.seen == list(range(14))
        assert member.assignments == 1


class Undertaker:
    """Kills a random broker and starts it again after a while."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._returning: list[threading.Thread] = []

    def __call__(self) -> None:
        self.finish()
        self._cluster.wait_in_sync(120)
        victim = self._dice.choice([1, 2, 3])
        self._cluster.kill_broker(victim)
        returning = threading.Timer(self._dice.random() * 2, lambda: self._cluster.start_broker(victim))
        returning.start()
        self._returning.append(returning)

    def finish(self) -> None:
        """Waits until all brokers are back."""
        while self._returning:
            self._returning.pop().join()


@pytest.mark.parametrize("client", ["confluent-kafka", "java", "aiokafka", "felice"])
def test_copies_are_exact_while_brokers_die_at_random(cluster: Cluster, client: str) -> None:
    """librdkafka and aiokafka use transaction V1, Java V2; offsets are committed in the transactions."""
    undertaker = Undertaker(cluster, zlib.crc32(client.encode()))
    plan = replace(QUICK, records=1500, kills=1, stops=0, broker_kills=3)

    def create(topic: str, partitions: int) -> None:
        cluster.create_topic(topic, partitions, 3, {"min.insync.replicas": "2"})

    try:
        seed = zlib.crc32(client.encode())
        copy_exactly_once(client, cluster.bootstrap, plan, seed, undertaker, create)
    finally:
        undertaker.finish()
