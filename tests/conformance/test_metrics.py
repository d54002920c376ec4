"""The metrics of brokers of a cluster while one of them dies, restarts, and loses its session."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from felice.cli.metrics import samples
from felice.testing import Cluster

pytestmark = pytest.mark.felice_only

REPLICAS = "kafka.server:type=ReplicaManager,name="
CONTROLLER = "kafka.controller:type=KafkaController,name="
STATS = "kafka.controller:type=ControllerStats,name="
REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request="
# Long enough for a machine under heavy load.
WAIT_S = 60.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # Nothing but the test gives leaderships back.
    with Cluster(brokers=3, properties={"auto.leader.rebalance.enable": "false"}) as started:
        yield started


def metrics(cluster: Cluster, broker_id: int) -> Any:
    broker = cluster._running.cluster.brokers[broker_id]

    async def read() -> Any:
        return broker.services.metrics.snapshot()

    return cluster._running.run(read())


def total(cluster: Cluster, name: str) -> int:
    return sum(metrics(cluster, broker_id)[name] for broker_id in cluster.running)


def wait_for_totals(cluster: Cluster, **expected: int) -> None:
    """Waits until the metrics of the replica manager have these totals: brokers learn of a change one after another."""

    def totals() -> dict[str, int]:
        return {name: total(cluster, REPLICAS + name) for name in expected}

    try:
        cluster.wait_until(lambda _: totals() == expected, WAIT_S)
    except TimeoutError as error:
        raise AssertionError(f"{totals()}, not {expected}") from error


def produce(cluster: Cluster, topic: str, records: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for _ in range(records):
        producer.produce(topic, b"value", partition=0)
        producer.flush(WAIT_S)


def assigned(cluster: Cluster, topic: str, replicas: list[list[int]], **config: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    named = {name.replace("_", "."): value for name, value in config.items()}
    requested = confluent_kafka.admin.NewTopic(
        topic, len(replicas), replica_assignment=replicas, config=named
    )
    admin.create_topics([requested])[topic].result(WAIT_S)
    cluster.wait_until(lambda found: has_partitions(found, topic, len(replicas)), WAIT_S)
    cluster.wait_in_sync(WAIT_S)


def has_partitions(cluster: Cluster, topic: str, count: int) -> bool:
    found = cluster.image.topics.get(topic)
    return found is not None and len(found.partitions) == count


def test_a_healthy_cluster_counts_what_it_has(cluster: Cluster) -> None:
    assigned(cluster, "orders", [[1, 2, 3], [2, 3, 1], [2, 1, 3]])
    wait_for_totals(cluster, LeaderCount=3, PartitionCount=9)
    assert [metrics(cluster, broker)[f"{REPLICAS}LeaderCount"] for broker in (1, 2, 3)] == [1, 2, 0]
    assert [metrics(cluster, broker)[f"{REPLICAS}PartitionCount"] for broker in (1, 2, 3)] == [3, 3, 3]
    wait_for_totals(cluster, UnderReplicatedPartitions=0, UnderMinIsrPartitionCount=0, OfflineReplicaCount=0)
    assert total(cluster, f"{CONTROLLER}ActiveControllerCount") == 1
    assert metrics(cluster, cluster.controller)[f"{CONTROLLER}ActiveControllerCount"] == 1
    assert total(cluster, f"{CONTROLLER}ActiveBrokerCount") == 3
    assert total(cluster, f"{CONTROLLER}GlobalPartitionCount") == 3
    assert total(cluster, f"{CONTROLLER}PreferredReplicaImbalanceCount") == 0


def test_a_broker_that_dies_and_returns_shows_in_every_number(cluster: Cluster) -> None:
    assigned(cluster, "orders", [[2, 1, 3], [3, 2, 1]], min_insync_replicas="2")
    assigned(cluster, "alone", [[3]])
    elections = total(cluster, f"{STATS}LeaderElectionRateAndTimeMs")
    cluster.kill_broker(3)
    cluster.wait_until(
        lambda found: found.leader("orders", 1) == 2 and len(found.isr("orders", 0)) == 2, WAIT_S
    )
    wait_for_totals(cluster, UnderReplicatedPartitions=2, AtMinIsrPartitionCount=2)
    cluster.wait_until(lambda found: total(found, f"{CONTROLLER}OfflinePartitionsCount") == 1, WAIT_S)
    assert total(cluster, f"{STATS}LeaderElectionRateAndTimeMs") == elections + 1
    assert total(cluster, f"{STATS}UncleanLeaderElectionsPerSec") == 0
    # One leader is misplaced, one partition has no leader.
    assert total(cluster, f"{CONTROLLER}PreferredReplicaImbalanceCount") == 2
    cluster.kill_broker(1)
    cluster.wait_until(lambda found: found.isr("orders", 0) == (2,), WAIT_S)
    wait_for_totals(cluster, UnderMinIsrPartitionCount=2)
    expansions = total(cluster, f"{REPLICAS}IsrExpandsPerSec")
    cluster.start_broker(1)
    cluster.start_broker(3)
    cluster.wait_in_sync(WAIT_S)
    wait_for_totals(cluster, UnderReplicatedPartitions=0)
    cluster.wait_until(lambda found: total(found, f"{REPLICAS}IsrExpandsPerSec") >= expansions + 4, WAIT_S)
    time.sleep(1)  # long enough for a second count of the same replica
    assert total(cluster, f"{REPLICAS}IsrExpandsPerSec") == expansions + 4


def test_an_unclean_election_is_counted_as_one(cluster: Cluster) -> None:
    assigned(cluster, "lossy", [[2, 3]])
    cluster.stop_broker(3)
    produce(cluster, "lossy", 1)
    cluster.kill_broker(2)
    cluster.start_broker(3)
    cluster.wait_until(lambda found: 3 in found.image.brokers and found.leader("lossy") not in (2, 3), WAIT_S)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    change = confluent_kafka.admin.ConfigEntry(
        "unclean.leader.election.enable",
        "true",
        incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET,
    )
    resource = confluent_kafka.admin.ConfigResource(
        confluent_kafka.admin.ResourceType.TOPIC, "lossy", incremental_configs=[change]
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)
    cluster.wait_until(lambda found: found.leader("lossy") == 3, WAIT_S)
    cluster.wait_until(lambda found: total(found, f"{STATS}UncleanLeaderElectionsPerSec") == 1, WAIT_S)


def test_requests_are_counted_by_what_they_ask(cluster: Cluster) -> None:
    assigned(cluster, "orders", [[2, 3]])
    before = metrics(cluster, 2)
    produce(cluster, "orders", 5)
    after = metrics(cluster, 2)
    assert after[f"{REQUESTS}Produce"] - before[f"{REQUESTS}Produce"] == 5
    assert after[f"{REQUESTS}Fetch"] > before[f"{REQUESTS}Fetch"]
    assert after[f"{REQUESTS}OffsetCommit"] == 0


def page(cluster: Cluster, broker_id: int) -> dict[str, float]:
    """The series of one broker, as its endpoint serves them."""
    port = cluster._running.cluster.brokers[broker_id].monitoring.port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S) as response:
        return dict(samples(response.read().decode().splitlines()))


def test_lag_is_known_of_partitions_that_other_brokers_hold() -> None:
    with Cluster(brokers=3, properties={"felice.metrics.listener": "127.0.0.1:0"}) as cluster:
        assigned(cluster, "orders", [[1], [2], [3]])
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        for partition in range(3):
            for _ in range(10):
                producer.produce("orders", b"value", partition=partition)
        assert producer.flush(WAIT_S) == 0
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
        offsets = [
            confluent_kafka.TopicPartition("orders", partition, 10 - partition) for partition in range(3)
        ]
        deadline = time.monotonic() + 120
        while True:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
                break
            except confluent_kafka.KafkaException:
                assert time.monotonic() < deadline
        of_group = 'consumergroup="readers",topic="orders"'
        lags = {
            f'kafka_consumergroup_lag{{{of_group},partition="{number}"}}': float(number)
            for number in range(3)
        }
        found: dict[str, float] = {}
        while not lags.items() <= found.items():
            assert time.monotonic() < deadline, found
            # The coordinator asks the other leaders after its first page. A page is a second old at most.
            found = {
                name: value for broker_id in (1, 2, 3) for name, value in page(cluster, broker_id).items()
            }
            time.sleep(0.2)
        assert found[f"kafka_consumergroup_lag_sum{{{of_group}}}"] == 3
        consumer.close()
