"""Three brokers and real clients: acknowledged records survive, and all replicas have the same bytes."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import felice.client
from felice.client.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from felice.controller.topic_plans import NewTopic
from felice.replication.partition import Partition
from felice.server.broker import Broker
from felice.server.process.embedded import EmbeddedCluster
from waiting import wait_until

SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
}
# Long enough for a machine under heavy load.
WAIT_S = 120.0

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path / "data", 3, properties=SETTINGS) as started:
        yield started


def create(cluster: EmbeddedCluster, name: str, *replicas: tuple[int, ...], **configs: str) -> str:
    requested = NewTopic(
        name,
        assignment=dict(enumerate(replicas)),
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    cluster.run(any_broker(cluster).services.changes.cluster.create_topic(requested))
    wait_until(lambda: all(name in broker.image.topics for broker in cluster.cluster.brokers.values()))
    return name


def any_broker(cluster: EmbeddedCluster) -> Broker:
    return next(iter(cluster.cluster.brokers.values()))


def replica(cluster: EmbeddedCluster, broker_id: int, topic: str, partition: int = 0) -> Partition:
    return cluster.cluster.brokers[broker_id].services.partitions.find(topic, partition)


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
    """Waits until every replica has the bytes of the leader."""
    brokers = cluster.cluster.brokers

    def are_level() -> bool:
        ends = {
            (found.log_end_offset, found.high_watermark)
            for broker in brokers.values()
            if (found := broker.services.partitions.get(topic, partition)) is not None
        }
        return len(ends) == 1 and all(end == watermark for end, watermark in ends)

    wait_until(are_level)
    copies = {
        broker_id: stored(found, found.high_watermark)
        for broker_id, broker in brokers.items()
        if (found := broker.services.partitions.get(topic, partition)) is not None
    }
    assert len(copies) > 1
    assert len(set(copies.values())) == 1, {broker_id: len(copy) for broker_id, copy in copies.items()}


def values_of(cluster: EmbeddedCluster, topic: str, count: int, **options: object) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": str(uuid.uuid4()),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
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
    assert producer.flush(WAIT_S) == 0
    assert replica(cluster, 1, topic).high_watermark == 2000
    assert_alike(cluster, topic)
    wait_until(lambda: replica(cluster, 1, topic).isr == (1, 2, 3))
    assert values_of(cluster, topic, 2000) == [b"%d" % number for number in range(2000)]


class Writer(threading.Thread):
    """Produces consecutive numbers, and remembers which were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, **options: object) -> None:
        super().__init__()
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 2,
                "enable.idempotence": True,
                "retry.backoff.ms": 50,
                "message.timeout.ms": 240_000,
                "topic.metadata.refresh.interval.ms": 1000,
                **options,
            }
        )

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            self._producer.produce(
                self._topic, b"%d" % number, partition=0, on_delivery=self._reporter(number)
            )
            self._producer.poll(0)
            number += 1
            time.sleep(0.001)
        self._producer.flush(300)

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
            wait_until(lambda reached=reached: len(writer.acknowledged) > reached + 200)
            victim = leader_of(cluster, topic)
            cluster.run(cluster.cluster.kill_broker(victim))
            reached = len(writer.acknowledged)
            wait_until(lambda reached=reached: len(writer.acknowledged) > reached + 200)
            cluster.run(cluster.cluster.start_broker(victim))
            wait_until(
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


def test_a_consumer_sees_no_gap_while_leaders_change(cluster: EmbeddedCluster) -> None:
    topic = create(cluster, "t", (1, 2, 3))
    writer = Writer(cluster.bootstrap, topic)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []

    def read_until(count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            for message in consumer.consume(500, 0.1):
                assert message.error() is None, message.error()
                assert message.offset() == len(found)
                found.append(message.value())

    writer.start()
    try:
        read_until(300)
        cluster.run(cluster.cluster.kill_broker(leader_of(cluster, topic)))
        read_until(len(found) + 500)
    finally:
        writer.stopping.set()
        writer.join()
    read_until(len(writer.acknowledged))
    consumer.close()
    assert found == [b"%d" % number for number in range(len(found))]


def test_transactions_span_brokers(cluster: EmbeddedCluster) -> None:
    """The coordinator and the leaders of two partitions are three brokers, so markers and AddPartitionsToTxn go between
    them.
    """
    topic = create(cluster, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    for index in range(4):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"tx-{index}"}
        )
        producer.init_transactions(WAIT_S)
        for outcome in ("commit", "abort", "commit"):
            producer.begin_transaction()
            for partition in range(3):
                producer.produce(topic, f"{outcome}-{index}".encode(), partition=partition)
            if outcome == "commit":
                producer.commit_transaction(WAIT_S)
            else:
                assert producer.flush(WAIT_S) == 0
                producer.abort_transaction(WAIT_S)
    for partition in range(3):
        leader = replica(cluster, leader_of(cluster, topic, partition), topic, partition)
        wait_until(lambda leader=leader: leader.last_stable_offset == leader.log_end_offset)
        assert_alike(cluster, topic, partition)
    found = values_of(cluster, topic, 8, **{"isolation.level": "read_committed"})
    assert sorted(found) == sorted([f"commit-{index}".encode() for index in range(4)] * 2)
    # What was aborted every replica knows, and hides from those who ask.
    for broker_id in (1, 2, 3):
        log = replica(cluster, broker_id, topic).log
        assert len(log.aborted_transactions(0, log.log_end_offset)) == 4


def test_below_min_isr_acks_all_is_refused_and_comes_back(cluster: EmbeddedCluster) -> None:
    topic = create(cluster, "t", (1, 2, 3))
    for broker_id in (2, 3):
        cluster.run(cluster.cluster.kill_broker(broker_id))
    wait_until(lambda: replica(cluster, 1, topic).isr == (1,))
    bootstrap = f"127.0.0.1:{cluster.cluster.ports[1]}"
    errors: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "retries": 0,
            "message.timeout.ms": 60_000,
        }
    )
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_S)
    assert [error.code() for error in errors] == [confluent_kafka.KafkaError.NOT_ENOUGH_REPLICAS]  # type: ignore[attr-defined]
    cluster.run(cluster.cluster.start_broker(2))
    wait_until(lambda: len(replica(cluster, 1, topic).isr) == 2)
    producer.produce(topic, b"y", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors[1] is None


def test_records_that_are_deleted_go_from_every_replica(cluster: EmbeddedCluster) -> None:
    topic = create(cluster, "t", (1, 2, 3))
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(WAIT_S) == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = confluent_kafka.TopicPartition(topic, 0, 60)
    assert next(iter(admin.delete_records([asked]).values())).result(60).low_watermark == 60
    assert {replica(cluster, broker_id, topic).log_start_offset for broker_id in (1, 2, 3)} == {60}


def test_a_failed_disk_moves_leadership_and_leaves_the_isr(tmp_path: Path) -> None:
    settings = {**SETTINGS, "replica.lag.time.max.ms": "2000"}
    with EmbeddedCluster(tmp_path / "data", 3, properties=settings) as cluster:
        topic, other = create(cluster, "t", (1, 2, 3)), create(cluster, "u", (2, 1, 3))
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        producer.produce(topic, b"before", partition=0)
        producer.produce(other, b"before", partition=0)
        assert producer.flush(WAIT_S) == 0
        directory = cluster.cluster.brokers[1].directories[0]

        async def fail() -> None:
            directory.fail(OSError(5, "Input/output error"))

        cluster.run(fail())
        wait_until(lambda: leader_of_known(cluster, 2, topic) == (2, (2, 3)))
        wait_until(lambda: leader_of_known(cluster, 2, other) == (2, (2, 3)))
        producer.produce(topic, b"after", partition=0)
        producer.produce(other, b"after", partition=0)
        assert producer.flush(WAIT_S) == 0
        assert values_of(cluster, topic, 2) == [b"before", b"after"]


def test_a_failed_disk_of_the_last_isr_member_allows_an_unclean_election(tmp_path: Path) -> None:
    """To a live broker, or to one that returns later; without unclean elections the partition waits for the disk."""
    unclean = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1"}
    with EmbeddedCluster(tmp_path / "data", 3, properties=SETTINGS) as cluster:
        prefers_to_go_on = create(cluster, "t", (1, 2), **unclean)
        prefers_to_wait = create(cluster, "u", (1, 2), min_insync_replicas="1")
        cluster.run(cluster.cluster.kill_broker(2))
        for topic in (prefers_to_go_on, prefers_to_wait):
            wait_until(lambda topic=topic: leader_of_known(cluster, 1, topic) == (1, (1,)))  # type: ignore[misc]
        directory = cluster.cluster.brokers[1].directories[0]

        async def fail() -> None:
            directory.fail(OSError(5, "Input/output error"))

        cluster.run(fail())
        cluster.run(cluster.cluster.start_broker(2))
        wait_until(lambda: leader_of_known(cluster, 2, prefers_to_go_on) == (2, (2,)))
        assert leader_of_known(cluster, 2, prefers_to_wait) == (1, (1,))
        assert 1 in cluster.cluster.brokers


def leader_of_known(cluster: EmbeddedCluster, by: int, topic: str) -> tuple[int, tuple[int, ...]]:
    found = cluster.cluster.brokers[by].image.partition(topic, 0)
    assert found is not None
    return found.leader, found.isr


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_catches_up_slowly_and_delays_no_client(tmp_path: Path, side: str) -> None:
    limit, size = f"{side}.replication.throttled.rate", 500_000
    # One answer may always pass.
    settings = {**SETTINGS, limit: "1000", "replica.fetch.max.bytes": "50000"}
    with EmbeddedCluster(tmp_path / "data", 3, properties=settings) as cluster:
        topic = create(cluster, "t", (1, 2, 3), **{f"{side}_replication_throttled_replicas": "*"})
        cluster.run(cluster.cluster.kill_broker(3))
        # A replica that is in sync is not throttled: at this rate it would need 450 s.
        produce_slices(cluster, topic, size)
        set_broker_default(cluster, limit, "200000")
        began = time.monotonic()
        cluster.run(cluster.cluster.start_broker(3))
        wait_until(lambda: replica(cluster, 1, topic).isr == (1, 2, 3))
        assert time.monotonic() - began > 0.7
        assert_alike(cluster, topic)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_rate_that_was_far_too_low_can_be_raised(tmp_path: Path, side: str) -> None:
    limit = f"{side}.replication.throttled.rate"
    settings = {**SETTINGS, limit: "1", "replica.fetch.max.bytes": "50000"}
    with EmbeddedCluster(tmp_path / "data", 3, properties=settings) as cluster:
        topic = create(cluster, "t", (1, 2, 3), **{f"{side}_replication_throttled_replicas": "*"})
        cluster.run(cluster.cluster.kill_broker(3))
        produce_slices(cluster, topic, 500_000)
        cluster.run(cluster.cluster.start_broker(3))
        # After the first answer, the replica would wait for 50,000 seconds.
        wait_until(lambda: replica(cluster, 3, topic).log.log_end_offset > 0)
        assert replica(cluster, 1, topic).isr == (1, 2)
        set_broker_default(cluster, limit, "100000000")
        wait_until(lambda: replica(cluster, 1, topic).isr == (1, 2, 3))
        assert_alike(cluster, topic)


def produce_slices(cluster: EmbeddedCluster, topic: str, size_bytes: int) -> None:
    """Produces records of 10,000 bytes in a batch each."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1}
    )
    for _ in range(size_bytes // 10_000):
        producer.produce(topic, bytes(10_000), partition=0)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def set_broker_default(cluster: EmbeddedCluster, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "", incremental_configs=[entry])
    with felice.client.AdminClient({"bootstrap.servers": cluster.bootstrap}) as admin:
        [done] = admin.incremental_alter_configs([resource]).values()
        done.result(WAIT_S)
    brokers = cluster.cluster.brokers
    wait_until(
        lambda: all(broker.settings.config.originals.get(name) == value for broker in brokers.values())
    )


def test_a_group_goes_on_when_its_coordinator_dies(cluster: EmbeddedCluster) -> None:
    topic = create(cluster, "t", (1, 2, 3))
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(200):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 120_000,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []

    def read_until(count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())

    read_until(100)
    consumer.commit(asynchronous=False)
    cluster.run(cluster.cluster.kill_broker(leader_of(cluster, "__consumer_offsets")))
    read_until(200)
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            consumer.commit(asynchronous=False)
            break
        except confluent_kafka.KafkaException as error:
            assert error.args[0].retriable() and time.monotonic() < deadline, error
            time.sleep(0.5)
    consumer.close()
    assert found == [b"%d" % number for number in range(200)]
    again = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    [position] = again.committed([confluent_kafka.TopicPartition(topic, 0)], WAIT_S)
    again.close()
    assert position.offset == 200


def test_a_transaction_ends_though_its_coordinator_died(cluster: EmbeddedCluster) -> None:
    topic = create(cluster, "t", (1, 2, 3))
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "tx", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(WAIT_S)
    for fate in ("kept", "dropped"):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, f"{fate}-{number}".encode(), partition=0)
        assert producer.flush(WAIT_S) == 0
        coordinator = any_broker(cluster).services.coordinators.transactions.leader_of("tx")
        cluster.run(cluster.cluster.kill_broker(coordinator))
        if fate == "kept":
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        cluster.run(cluster.cluster.start_broker(coordinator))
        wait_until(lambda: len(replica(cluster, leader_of(cluster, topic), topic).isr) == 3)
    leader = replica(cluster, leader_of(cluster, topic), topic)
    wait_until(lambda: leader.last_stable_offset == leader.log_end_offset)
    found = values_of(cluster, topic, 20, **{"isolation.level": "read_committed"})
    assert found == [b"kept-%d" % number for number in range(20)]
    assert_alike(cluster, topic)
