"""The cluster for tests of applications: what a client sees while brokers stop, fail and return."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from felice.metadata import layout
from felice.testing import Cluster
from waiting import LIMIT_S


def _produce(cluster: Cluster, topic: str, values: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "retry.backoff.ms": 20})
    for value in values:
        producer.produce(topic, b"%d" % value)
    assert producer.flush(60) == 0


def _consume(cluster: Cluster, topic: str, count: int, group: str) -> set[int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: set[int] = set()
    deadline = time.monotonic() + 2 * LIMIT_S
    while time.monotonic() < deadline:
        found |= {int(row.value() or b"-1") for row in consumer.consume(count, 0.1) if not row.error()}
        if len(found) >= count:
            break
    consumer.close()
    return found


def _stored_leader_after_stop(cluster: Cluster, broker_id: int, topic: str) -> int:
    """The leader as the metadata store has it at the moment when the broker has stopped.

    The other brokers have had no time to elect one because it is missing.
    """
    local = cluster._running.cluster

    async def stop_and_read() -> int:
        await local.stop_broker(broker_id)
        assert local._store is not None
        return layout.decode_state((await local._store.get(layout.state_path(topic, 0))).data).leader

    return cluster._running.run(stop_and_read())


def test_records_and_groups_survive_brokers_one_by_one() -> None:
    with Cluster(brokers=3, topics={"orders": 3}) as cluster:
        _produce(cluster, "orders", range(100))
        assert _consume(cluster, "orders", 100, "g") == set(range(100))
        cluster.wait_in_sync()
        first = cluster.leader("orders")
        cluster.kill_broker(first)
        cluster.wait_until(lambda found: found.leader("orders") not in (first, -1))
        assert first not in cluster.running
        _produce(cluster, "orders", range(100, 200))
        # The group's offsets moved with its coordinator: no record is read twice.
        assert _consume(cluster, "orders", 100, "g") == set(range(100, 200))
        cluster.start_broker(first)
        cluster.wait_in_sync()
        second = cluster.leader("orders")
        assert _stored_leader_after_stop(cluster, second, "orders") not in (second, -1)
        cluster.wait_until(lambda found: found.leader("orders") not in (second, -1))
        cluster.wait_until(lambda found: second not in found.isr("orders"))
        _produce(cluster, "orders", range(200, 300))
        assert _consume(cluster, "orders", 100, "g") == set(range(200, 300))


def test_replicas_are_kept_apart_by_rack() -> None:
    with Cluster(brokers=4, racks=("a", "b")) as cluster:
        assert [broker.rack for _, broker in sorted(cluster.image.brokers.items())] == ["a", "b", "a", "b"]
        cluster.create_topic("spread", 8, 2)
        racks = cluster.image.brokers
        for partition in cluster.image.topics["spread"].partitions:
            assert {racks[replica].rack for replica in partition.replicas} == {"a", "b"}


def test_a_cluster_names_what_it_cannot_do() -> None:
    with Cluster(brokers=2) as cluster:
        cluster.wait_until(lambda found: found.controller in (1, 2))
        assert cluster.port(1) != cluster.port(2)
        with pytest.raises(KeyError, match="none-0"):
            cluster.leader("none")
        with pytest.raises(TimeoutError, match="running"):
            cluster.wait_until(lambda found: False, 0.01)
        cluster.kill_broker(1)
        cluster.kill_broker(2)
        with pytest.raises(RuntimeError, match="no broker"):
            _ = cluster.image
