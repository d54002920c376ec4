"""Running brokers and a real ZooKeeper that is emptied, restored, edited by hand, or suspended twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from felice.ensemble import Ensemble
from felice.metadata.store import SessionState
from felice.server.process.embedded import EmbeddedBroker
from peers.zookeeper import require_ensemble
from waiting import wait_until

pytestmark = pytest.mark.timeout(900)

# A short session, so that brokers notice soon; the tests wait for states, however busy the machine is.
SESSION_MS = 3_000
_PATIENCE_S = 240.0


class Cluster:
    """Brokers of this process around one ZooKeeper server."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.ensemble: Ensemble = stack.enter_context(require_ensemble(directory / "zookeeper", nodes=1))
        self.brokers: dict[int, EmbeddedBroker] = {}
        self._stack = stack

    def start(self, number: int) -> EmbeddedBroker:
        broker = EmbeddedBroker(
            self.logs_of(number),
            properties={
                "zookeeper.connect": self.ensemble.connect,
                "zookeeper.session.timeout.ms": str(SESSION_MS),
                "zookeeper.connection.timeout.ms": "60000",
                "node.id": str(number),
                "default.replication.factor": "1",
                "offsets.topic.replication.factor": "1",
            },
        )
        self._stack.callback(broker.stop)
        self.brokers[number] = broker
        return broker

    def logs_of(self, number: int) -> Path:
        return self.directory / f"b{number}"

    def logs(self, number: int, *kinds: str) -> list[str]:
        """The partitions in a broker's directory, or those set aside as `kinds`."""
        names = [path.name for path in self.logs_of(number).iterdir() if path.is_dir()]
        if not kinds:
            return sorted(name for name in names if "." not in name)
        return sorted(
            name.partition(".")[0] for name in names if name.endswith(tuple(f"-{kind}" for kind in kinds))
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def create(self, name: str, replicas: int = 1) -> None:
        """Create the topic, also while the controller joins again after a pause of ZooKeeper."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})

        def created() -> bool:
            try:
                admin.create_topics([NewTopic(name, 1, replicas)])[name].result(120)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                    raise
                return False
            return True

        wait_until(created, _PATIENCE_S)

    def produce(self, name: str, count: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "delivery.timeout.ms": 240_000}
        )
        failures: list[object] = []
        for number in range(count):
            producer.produce(
                name, b"%d" % number, on_delivery=lambda error, _: error and failures.append(error)
            )
        assert producer.flush(_PATIENCE_S) == 0 and not failures

    def count(self, name: str) -> int:
        """Records that a consumer gets, with a patience that a missing topic uses up."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
        )
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=30)
        finally:
            consumer.close()
        return int(high)

    def stop_zookeeper(self) -> None:
        self.ensemble.nodes[0].stop()

    def start_zookeeper(self) -> None:
        self.ensemble.nodes[0].start()
        self.ensemble.wait_until_ready()

    @property
    def data(self) -> Path:
        return self.ensemble.nodes[0].directory / "data" / "version-2"

    def back_up(self, name: str) -> Path:
        """A copy of ZooKeeper's data, taken while it is stopped for a moment."""
        self.stop_zookeeper()
        copy = self.directory / name
        shutil.copytree(self.data, copy)
        self.start_zookeeper()
        return copy

    def restore(self, copy: Path | None) -> None:
        self.stop_zookeeper()
        shutil.rmtree(self.data)
        if copy is not None:
            shutil.copytree(copy, self.data)
        self.start_zookeeper()

    def has_expired(self, number: int) -> bool:
        broker = self.brokers[number]

        async def expired() -> bool:
            """Runs on the broker's loop: the question itself may notice the end, and then the broker joins again.

            Asks the session, not the store, which reports a new session only after it has cleared up behind the last.
            """
            session = broker.broker.membership._store._session
            session.look_at_the_clock()
            return session.state is SessionState.EXPIRED

        return broker.run(expired())

    def wait_joined(self, *numbers: int) -> None:
        def joined() -> bool:
            return all(
                self.brokers[number].broker.services.image_follower.is_following
                and set(numbers) <= self.brokers[number].broker.image.brokers.keys()
                for number in numbers
            )

        wait_until(joined, _PATIENCE_S)

    def epoch(self, number: int) -> int:
        found = self.brokers[number].broker.image.brokers.get(number)
        return -1 if found is None else found.epoch


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def test_brokers_keep_their_logs_when_zookeeper_is_emptied_and_another_broker_starts(
    cluster: Cluster,
) -> None:
    for number in (1, 2):
        cluster.start(number)
    cluster.wait_joined(1, 2)
    cluster.create("orders", 2)
    cluster.produce("orders", 5)
    own = cluster.brokers[1].broker.image.cluster_id
    cluster.restore(None)
    other = cluster.start(4).broker.image.cluster_id
    for number in (1, 2):
        broker = cluster.brokers[number].broker
        wait_until(lambda broker=broker: broker.lifecycle.failure is not None, _PATIENCE_S)
        assert f"has cluster {other}, but" in str(broker.lifecycle.failure)
        assert f"belong to cluster {own}" in str(broker.lifecycle.failure)
        assert "orders-0" in cluster.logs(number)
        assert cluster.logs(number, "stray", "delete") == []


def test_topics_newer_than_a_restored_snapshot_are_kept_and_come_back(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("old")
    before = cluster.back_up("before")
    cluster.wait_joined(1)
    cluster.create("new")
    cluster.produce("new", 3)
    after = cluster.back_up("after")
    cluster.wait_joined(1)
    cluster.restore(before)
    wait_until(lambda: cluster.logs(1, "stray") == ["new-0"], _PATIENCE_S)
    assert cluster.logs(1, "delete") == []
    cluster.produce("old", 1)
    cluster.restore(after)
    wait_until(lambda: "new-0" in cluster.logs(1) and cluster.logs(1, "stray") == [], _PATIENCE_S)
    cluster.wait_joined(1)
    cluster.produce("new", 1)
    assert cluster.count("new") == 4


def _remove_all(client: KazooClient, path: str) -> None:
    """Removes a node with all below it. A broker may create a state node meanwhile: then the removal starts again."""
    for _ in range(100):
        try:
            client.delete(path, recursive=True)
        except NotEmptyError:
            continue
        return
    raise AssertionError(f"{path} gets new nodes all the time")


def test_a_topic_whose_node_an_operator_removes_is_set_aside(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("orders")
    cluster.create("deleted")
    cluster.produce("orders", 3)
    client = KazooClient(cluster.ensemble.connect, timeout=60)
    client.start(60)
    try:
        _remove_all(client, "/brokers/topics/orders")
    finally:
        client.stop()
        client.close()
    wait_until(lambda: cluster.logs(1, "stray") == ["orders-0"], _PATIENCE_S)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["deleted"])["deleted"].result(120)
    wait_until(lambda: "deleted-0" not in cluster.logs(1), _PATIENCE_S)
    assert cluster.logs(1, "stray") == ["orders-0"]


def test_a_broker_that_was_down_deletes_what_was_deleted_meanwhile(cluster: Cluster) -> None:
    for number in (1, 2):
        cluster.start(number)
    cluster.wait_joined(1, 2)
    cluster.create("orders", 2)
    cluster.create("kept", 2)
    cluster.produce("orders", 3)
    cluster.brokers.pop(2).stop()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["orders"])["orders"].result(120)
    cluster.start(2)
    for number in (1, 2):
        wait_until(lambda number=number: "orders-0" not in cluster.logs(number), _PATIENCE_S)
        assert cluster.logs(number, "stray") == []
        assert "kept-0" in cluster.logs(number)
    wait_until(lambda: not cluster.brokers[1].broker.image.deleted_topics, _PATIENCE_S)


def test_brokers_outlive_pauses_of_zookeeper_during_their_return(cluster: Cluster) -> None:
    for number in (1, 2):
        cluster.start(number)
    cluster.wait_joined(1, 2)
    cluster.create("orders", 2)
    cluster.produce("orders", 3)
    zookeeper = cluster.ensemble.nodes[0]
    for _ in range(2):
        cluster.wait_joined(1, 2)
        epochs = [cluster.epoch(number) for number in (1, 2)]
        zookeeper.pause()
        followers = [cluster.brokers[number].broker.services.image_follower for number in (1, 2)]
        wait_until(lambda followers=followers: not any(one.is_following for one in followers), _PATIENCE_S)
        for _ in range(3):
            # The next pause begins as soon as a broker has its next session, while it registers.
            sessions = [cluster.brokers[number].broker.membership._store.session_id for number in (1, 2)]
            zookeeper.resume()
            wait_until(
                lambda sessions=sessions: (
                    sessions
                    != [cluster.brokers[number].broker.membership._store.session_id for number in (1, 2)]
                ),
                _PATIENCE_S,
            )
            zookeeper.pause()
            wait_until(lambda: all(cluster.has_expired(number) for number in (1, 2)), _PATIENCE_S)
        zookeeper.resume()
        cluster.wait_joined(1, 2)
        assert all(cluster.epoch(number) > epoch for number, epoch in zip((1, 2), epochs, strict=True))
        assert [cluster.brokers[number].broker.lifecycle.failure for number in (1, 2)] == [None, None]
    cluster.produce("orders", 1)
    assert cluster.count("orders") == 4
