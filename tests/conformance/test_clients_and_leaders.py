"""Real clients after an unclean election truncated a log (KIP-320), and real clients that read from the nearest
replica.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import confluent_kafka
import confluent_kafka.admin
import pytest

import felice.client
from felice.replication.fetched import FetchedRecords
from felice.testing import Cluster
from peers.java import java_command, require_java_programs
from peers.pipe import PipePeer, record_from_json

pytestmark = pytest.mark.felice_only

TIMEOUT_S = 120.0
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Reader(Protocol):
    """A consumer of partition 0 that continues from its position."""

    def read_until(self, last_value: bytes) -> list[tuple[int, bytes]]: ...
    def close(self) -> None: ...


class PythonReader:
    """A consumer with confluent_kafka's names."""

    _module: Any = confluent_kafka

    def __init__(self, cluster: Cluster, topic: str, **options: str) -> None:
        self._consumer = self._module.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": str(uuid.uuid4()),
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **options,
            }
        )
        self._consumer.assign([self._module.TopicPartition(topic, 0, 0)])

    def read_until(self, last_value: bytes) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + TIMEOUT_S
        while not found or found[-1][1] != last_value:
            assert time.monotonic() < deadline, f"the last of {len(found)} is {found[-1:]}"
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append((message.offset(), message.value()))
        return found

    def close(self) -> None:
        self._consumer.close()


class FeliceReader(PythonReader):
    _module = felice.client


class JavaReader:
    def __init__(self, cluster: Cluster, topic: str, **options: str) -> None:
        programs = require_java_programs()
        self._peer = PipePeer(java_command("JavaPeer", first=[programs], options=["-Xmx256m"]))
        self._peer.call(
            "join",
            bootstrap=cluster.bootstrap,
            group=str(uuid.uuid4()),
            topics=[topic],
            member="m",
            options=options,
        )

    def read_until(self, last_value: bytes) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + TIMEOUT_S
        while not found or found[-1][1] != last_value:
            assert time.monotonic() < deadline, f"the last of {len(found)} is {found[-1:]}"
            for row in self._peer.call("poll", member="m", count=1, timeout_ms=200):
                record = record_from_json(row)
                assert record.offset is not None and record.value is not None
                found.append((record.offset, record.value))
        return found

    def close(self) -> None:
        self._peer.close()


READERS = [
    pytest.param(PythonReader, id="librdkafka"),
    pytest.param(JavaReader, id="java"),
]


FELICE = pytest.param(FeliceReader, id="felice")


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    """Closes every consumer that a test adds."""
    made: list[Reader] = []
    yield made
    for reader in made:
        reader.close()


def create(cluster: Cluster, topic: str, replicas: list[int], **config: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    named = {name.replace("_", "."): value for name, value in config.items()}
    requested = confluent_kafka.admin.NewTopic(topic, 1, replica_assignment=[replicas], config=named)
    admin.create_topics([requested])[topic].result(TIMEOUT_S)
    cluster.wait_until(lambda found: set(found.isr(topic)) == set(replicas), TIMEOUT_S)


def produce(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def named(letter: str, count: int) -> list[bytes]:
    return [f"{letter}{number}".encode() for number in range(count)]


@pytest.mark.parametrize("reader_of", READERS)
def test_a_reader_beyond_an_unclean_election_goes_back_to_where_the_logs_parted(
    reader_of: Callable[..., Reader], readers: list[Reader]
) -> None:
    """The offset of the consumer exists on the new leader with another record: only epochs show that."""
    with Cluster(brokers=3, properties={"auto.leader.rebalance.enable": "false"}) as cluster:
        create(cluster, "t", [1, 2], unclean_leader_election_enable="true")
        produce(cluster, "t", named("a", 10))
        reader = reader_of(cluster, "t")
        readers.append(reader)
        assert reader.read_until(b"a9") == list(enumerate(named("a", 10)))
        cluster.kill_broker(2)
        cluster.wait_until(lambda found: found.isr("t") == (1,), TIMEOUT_S)
        produce(cluster, "t", named("b", 10))
        assert reader.read_until(b"b9") == list(enumerate(named("b", 10), 10))
        cluster.kill_broker(1)
        cluster.start_broker(2)
        cluster.wait_until(lambda found: found.leader("t") == 2, TIMEOUT_S)
        produce(cluster, "t", named("c", 15))
        assert reader.read_until(b"c14") == list(enumerate(named("c", 15), 10))


@pytest.mark.parametrize("reader_of", [*READERS, FELICE])
def test_a_reader_is_served_by_the_replica_of_its_rack_while_that_is_in_sync(
    reader_of: Callable[..., Reader], readers: list[Reader]
) -> None:
    with Cluster(
        brokers=3, properties={"replica.selector.class": SELECTOR}, racks=("r1", "r2", "r3")
    ) as cluster:
        create(cluster, "t", [1, 2, 3])
        produce(cluster, "t", named("a", 100))
        reader = reader_of(cluster, "t", **{"client.rack": "r3"})
        readers.append(reader)
        assert [value for _, value in reader.read_until(b"a99")] == named("a", 100)
        served = consumers_served(cluster, "t", 3)
        produce(cluster, "t", named("b", 100))
        assert [value for _, value in reader.read_until(b"b99")] == named("b", 100)
        assert served
        cluster.kill_broker(3)
        produce(cluster, "t", named("c", 100))
        # With a rack, Java's consumer may rejoin its group when a replica's broker dies; without commits it then begins
        # at the first record again.
        assert [value for offset, value in reader.read_until(b"c99") if offset >= 200] == named("c", 100)


def consumers_served(cluster: Cluster, topic: str, broker_id: int) -> list[int]:
    """From now on: the offsets at which the broker's responses to consumers begin."""
    partition = cluster._running.cluster.brokers[broker_id].services.partitions.find(topic, 0)
    served: list[int] = []
    fetch = partition.fetch

    def counted(offset: int, *args: Any, **facts: Any) -> FetchedRecords:
        found = fetch(offset, *args, **facts)
        if found.records is not None:
            served.append(offset)
        return found

    partition.fetch = counted  # type: ignore[method-assign]
    return served
