"""Several brokers in one process: leaders and controller when a broker stops, dies or returns."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from felice.controller.topic_plans import NewTopic
from felice.env import Environment
from felice.env.ports import free_ports
from felice.metadata import PartitionImage
from felice.server.broker import Broker
from felice.server.process.embedded import EmbeddedCluster, embedded_config
from felice.server.process.local_cluster import LocalCluster
from felice.server.startup import StartupError
from waiting import wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path / "data", 3) as started:
        yield started


def create(cluster: EmbeddedCluster, name: str, *replicas: tuple[int, ...]) -> None:
    requested = NewTopic(name, assignment=dict(enumerate(replicas)))
    cluster.run(cluster.cluster.brokers[2].services.changes.cluster.create_topic(requested))


def row(broker: Broker, topic: str, partition: int = 0) -> PartitionImage:
    found = broker.image.partition(topic, partition)
    assert found is not None
    return found


def agree(cluster: EmbeddedCluster, says: Callable[[Broker], bool]) -> None:
    wait_until(lambda: all(says(broker) for broker in cluster.cluster.brokers.values()))


def test_every_broker_knows_all_and_one_is_the_controller(cluster: EmbeddedCluster) -> None:
    brokers = cluster.cluster.brokers
    agree(cluster, lambda broker: sorted(broker.image.brokers) == [1, 2, 3])
    wait_until(lambda: sum(broker.controller.is_controller for broker in brokers.values()) == 1)
    # Whoever is asked decides, and all hear of it.
    create(cluster, "a", (1, 2), (3, 1))
    agree(cluster, lambda broker: "a" in broker.image.topics)
    assert brokers[1].services.partitions.find("a", 0).is_leader
    assert not brokers[2].services.partitions.find("a", 0).is_leader
    assert brokers[2].services.partitions.get("a", 1) is None


def test_when_a_broker_dies_others_in_sync_lead_and_its_own_wait_for_it(cluster: EmbeddedCluster) -> None:
    create(cluster, "a", (1, 2, 3), (1, 3, 2), (2, 1, 3))
    create(cluster, "alone", (1,))
    cluster.run(cluster.cluster.kill_broker(1))
    agree(cluster, lambda broker: row(broker, "a").leader == 2 and row(broker, "alone").leader == -1)
    two = cluster.cluster.brokers[2]
    assert [(row(two, "a", n).leader_epoch, row(two, "a", n).isr) for n in range(3)] == [
        (1, (2, 3)),
        (1, (3, 2)),
        (0, (2, 3)),
    ]
    assert row(two, "alone").isr == (1,)
    assert two.services.partitions.find("a", 0).is_leader
    cluster.run(cluster.cluster.start_broker(1))
    agree(cluster, lambda broker: row(broker, "alone").leader == 1)
    assert row(two, "alone").leader_epoch == 2
    assert row(two, "a").leader == 2


def test_a_broker_that_stops_hands_its_leaderships_over_first(cluster: EmbeddedCluster) -> None:
    create(cluster, "a", (1, 2, 3), (2, 1, 3))
    two = cluster.cluster.brokers[2]
    cluster.run(cluster.cluster.stop_broker(1))
    assert (row(two, "a").leader, row(two, "a").isr) == (2, (2, 3))
    assert (row(two, "a", 1).leader, row(two, "a", 1).leader_epoch, row(two, "a", 1).isr) == (2, 0, (2, 3))


def test_another_broker_takes_over_from_a_controller_that_dies(cluster: EmbeddedCluster) -> None:
    brokers = cluster.cluster.brokers
    first, epoch = brokers[2].image.controller_id, brokers[2].image.controller_epoch
    cluster.run(cluster.cluster.kill_broker(first))
    agree(cluster, lambda broker: broker.image.controller_id not in (first, -1))
    agree(cluster, lambda broker: broker.image.controller_epoch == epoch + 1)
    # The images show the election before the elected broker has begun its work.
    wait_until(lambda: sum(broker.controller.is_controller for broker in brokers.values()) == 1)


def test_a_cluster_comes_back_with_its_topics(tmp_path: Path) -> None:
    with EmbeddedCluster(tmp_path / "data", 3) as first:
        create(first, "a", (1, 2, 3), (2, 3, 1))
        cluster_id = first.cluster.brokers[1].image.cluster_id
    with EmbeddedCluster(tmp_path / "data", 3) as second:
        assert second.cluster.brokers[1].image.cluster_id == cluster_id
        agree(second, lambda broker: row(broker, "a").leader > 0 and row(broker, "a", 1).leader > 0)


@contextmanager
def second_of_two_ports() -> Iterator[int]:
    """A port that is listened on, behind one that is free."""
    while True:
        [free] = free_ports(1)
        try:
            taken = socket.create_server(("127.0.0.1", free + 1))
        except OSError:
            continue
        with taken:
            yield free + 1
            return


def test_a_busy_port_of_one_broker_is_found_before_the_cluster_begins(tmp_path: Path) -> None:
    with second_of_two_ports() as port, pytest.raises(StartupError, match=f"{port}.*in use"):
        EmbeddedCluster(tmp_path / "data", 2, port - 1)
    assert not (tmp_path / "data").exists()


def test_an_impossible_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="1 to 100"):
        EmbeddedCluster(tmp_path / "data", 0)
    with pytest.raises(StartupError, match="ports"):
        EmbeddedCluster(tmp_path / "data", 3, 65_534)


@pytest.mark.parametrize("step", ["retire", "stop"])
def test_a_broker_that_cannot_stop_keeps_neither_the_others_nor_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def scenario() -> None:
        cluster = LocalCluster(tmp_path, 3, "127.0.0.1", 0, {})
        await cluster.start()
        brokers = list(cluster.brokers.values())
        real = getattr(brokers[0], step)

        async def fail(**options: bool) -> None:
            await real(**options)
            raise RuntimeError("it would not stop")

        monkeypatch.setattr(brokers[0], step, fail)
        with pytest.raises(RuntimeError, match="would not stop"):
            await cluster.stop()
        assert all(broker.lifecycle.is_stopping for broker in brokers)
        # The store's files are free again.
        again = LocalCluster(tmp_path, 3, "127.0.0.1", 0, {})
        await again.start()
        await again.kill()

    asyncio.run(asyncio.wait_for(scenario(), 120))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_that_was_never_started_can_be_ended(tmp_path: Path, end: str) -> None:
    config = embedded_config(tmp_path, 0, {})
    asyncio.run(getattr(Broker(config, Environment.system()), end)())
    assert not any(path.name == ".kafka_cleanshutdown" for path in tmp_path.rglob("*"))
