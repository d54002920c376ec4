"""A broker with its metadata in real ZooKeeper: what clients and operators see, and its errors without ZooKeeper."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from felice.server.process.embedded import EmbeddedBroker
from felice.server.startup import StartupError
from peers.apache_kafka import free_port
from peers.certificates import make_certificates
from peers.zookeeper import require_ensemble, secure_port
from waiting import wait_until

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with require_ensemble(tmp_path_factory.mktemp("zookeeper"), nodes=1) as ensemble:
        yield ensemble.connect


@pytest.fixture
def client(connect: str) -> Iterator[KazooClient]:
    """A view with kazoo alone, which does not know the chroot or the layout."""
    client = KazooClient(connect, timeout=60)
    client.start(60)
    yield client
    client.stop()
    client.close()


def start(data_dir: Path, connect: str, **properties: str) -> EmbeddedBroker:
    named = {name.replace("_", "."): text for name, text in properties.items()}
    return EmbeddedBroker(
        data_dir,
        properties={
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "30000",
            "zookeeper.connection.timeout.ms": "60000",
            "node.id": "7",
            **named,
        },
    )


def create_topic(broker: EmbeddedBroker, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics(
        [NewTopic(name, partitions, config={"retention.ms": "1000000"})]
    ).values():
        future.result(60)


def produce(broker: EmbeddedBroker, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(60) == 0


def consume(broker: EmbeddedBroker, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[str] = []
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
        if len(values) == count:
            break
    consumer.close()
    return values


def shape(value: Any) -> Any:
    """The structure of a value: its keys in order with their types, without what differs between clusters."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return type(value).__name__ if not isinstance(value, list) else [shape(inner) for inner in value]


def test_clients_are_served_and_operators_find_kafkas_nodes(
    connect: str, client: KazooClient, tmp_path: Path
) -> None:
    with start(tmp_path / "data", f"{connect}/layout/of") as broker:
        create_topic(broker, "orders", 2)
        produce(broker, "orders", ["one", "two"])
        assert consume(broker, "orders", 2) == ["one", "two"]

        def read(path: str) -> Any:
            return json.loads(client.get(f"/layout/of{path}")[0])

        assert set(client.get_children("/layout/of")) >= {
            "admin",
            "brokers",
            "cluster",
            "config",
            "controller",
        }
        controller = read("/controller")
        assert controller.pop("timestamp").isdigit()
        assert controller == {"version": 2, "brokerid": 7, "kraftControllerEpoch": -1}
        assert client.get("/layout/of/controller_epoch")[0] == b"1"
        registration = read("/brokers/ids/7")
        assert registration.pop("timestamp").isdigit()
        assert registration == {
            "version": 5,
            "host": "127.0.0.1",
            "port": broker.port,
            "endpoints": [f"PLAINTEXT://127.0.0.1:{broker.port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "rack": None,
            "jmx_port": -1,
            "features": {
                "group.version": {"min_version": 0, "max_version": 1},
                "transaction.version": {"min_version": 0, "max_version": 2},
            },
        }
        topic = read("/brokers/topics/orders")
        assert re.fullmatch(r"[\w-]{22}", topic.pop("topic_id"))
        assert topic == {
            "version": 3,
            "partitions": {"0": [7], "1": [7]},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        assert read("/brokers/topics/orders/partitions/1/state") == {
            "version": 1,
            "leader": 7,
            "leader_epoch": 0,
            "controller_epoch": 1,
            "isr": [7],
        }
        assert read("/config/topics/orders") == {"version": 1, "config": {"retention.ms": "1000000"}}
        assert shape(read("/cluster/id")) == {"version": "str", "id": "str"}
        ephemeral = {
            path
            for path in ("/controller", "/brokers/ids/7", "/cluster/id")
            if client.exists(f"/layout/of{path}").ephemeralOwner
        }
        assert ephemeral == {"/controller", "/brokers/ids/7"}
        # Kafka's broker epoch is the czxid of its registration.
        assert broker.broker.image.brokers[7].epoch == client.exists("/layout/of/brokers/ids/7").czxid


def test_a_broker_comes_back_to_its_data_and_follows_what_others_write(
    connect: str, client: KazooClient, tmp_path: Path
) -> None:
    with start(tmp_path / "data", f"{connect}/again") as broker:
        create_topic(broker, "kept", 1)
        produce(broker, "kept", ["one", "two"])
        assert consume(broker, "kept", 2) == ["one", "two"]
    assert client.get_children("/again/brokers/ids") == []
    with start(tmp_path / "data", f"{connect}/again") as broker:
        produce(broker, "kept", ["three"])
        # The group's place was kept too.
        assert consume(broker, "kept", 1) == ["three"]
        assert client.get("/again/controller_epoch")[0] == b"2"
        changed = json.dumps({"version": 1, "config": {"retention.ms": "77"}}).encode()
        client.set("/again/config/topics/kept", changed)

        async def wait_changed() -> bool:
            return await broker.broker.services.watcher.wait_until(
                lambda image: image.topic_configs["kept"].get("retention.ms") == "77", 60.0
            )

        assert broker.run(wait_changed())


def test_a_killed_broker_registers_again_after_its_session_expired(
    connect: str, client: KazooClient, tmp_path: Path
) -> None:
    broker = start(tmp_path / "data", f"{connect}/killed", zookeeper_session_timeout_ms="1500")
    create_topic(broker, "kept", 1)
    produce(broker, "kept", ["one"])
    # So short a session may also end before the kill, on a machine under heavy load; the broker then registers again.
    epoch = czxid_of(client, "/killed/brokers/ids/7")
    broker.kill()
    # It waits for its own session timeout until the registration of its previous life is gone.
    with start(tmp_path / "data", f"{connect}/killed", zookeeper_session_timeout_ms="30000") as broker:
        assert client.exists("/killed/brokers/ids/7").czxid > epoch
        assert consume(broker, "kept", 1) == ["one"]


def czxid_of(client: KazooClient, path: str) -> int:
    """The number of the transaction that created this node. Waits until it is there."""
    found: list[Any] = []

    def is_there() -> bool:
        found.append(client.exists(path))
        return found[-1] is not None

    wait_until(is_there)
    return int(found[-1].czxid)


def test_a_broker_that_loses_its_ensemble_stops_leading_in_time_and_leads_again_by_itself(
    tmp_path: Path,
) -> None:
    with (
        require_ensemble(tmp_path / "zookeeper", nodes=1) as ensemble,
        start(tmp_path / "data", ensemble.connect, zookeeper_session_timeout_ms="2000") as broker,
    ):
        create_topic(broker, "orders", 1)
        produce(broker, "orders", ["one"])
        wait_until(lambda: 7 in broker.broker.image.brokers)
        epoch = epoch_of(broker)
        ensemble.nodes[0].pause()
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": "all",
                "delivery.timeout.ms": "300000",
            }
        )
        # Far longer than the session timeout, for a busy machine: a broker with this fault leads for ever.
        wait_until(lambda: refuses(broker, "orders"), 60)
        outcomes: list[object] = []
        producer.produce("orders", b"two", on_delivery=lambda error, message: outcomes.append(error))
        producer.flush(1.0)
        assert outcomes == [], "nothing is acknowledged by a broker that may have been replaced"
        ensemble.nodes[0].resume()
        assert producer.flush(240) == 0
        assert outcomes == [None]
        assert consume(broker, "orders", 2) == ["one", "two"]
        wait_until(lambda: epoch_of(broker) > epoch)


def epoch_of(broker: EmbeddedBroker) -> int:
    """-1 while the broker is not registered."""
    found = broker.broker.image.brokers.get(7)
    return -1 if found is None else found.epoch


def refuses(broker: EmbeddedBroker, topic: str) -> bool:
    """Whether a client gets NOT_LEADER_OR_FOLLOWER from this broker."""
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    with Wire(broker.bootstrap) as wire:
        answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]))
    return bool(answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_two_brokers_of_one_number_and_a_directory_of_another_cluster_are_refused(
    connect: str, tmp_path: Path
) -> None:
    with start(tmp_path / "one", f"{connect}/mine", zookeeper_session_timeout_ms="60000"):
        # The second broker waits this long for the first one's session to end. On a machine under heavy load its own
        # short session may end before.
        for session_timeout_ms in ("1000", "20000"):
            with pytest.raises(StartupError) as refused:
                start(tmp_path / "two", f"{connect}/mine", zookeeper_session_timeout_ms=session_timeout_ms)
            if "is alive" in str(refused.value):
                break
        assert re.search(r"another broker with node\.id 7 is alive at 127\.0\.0\.1", str(refused.value))
    with pytest.raises(
        StartupError, match=r"belongs to cluster .*, and there is none at .*/theirs; .*chroot"
    ):
        start(tmp_path / "one", f"{connect}/theirs")
    with start(tmp_path / "three", f"{connect}/theirs"):
        pass
    with pytest.raises(StartupError, match=r"belongs to cluster .*, this broker to cluster .*chroot"):
        start(tmp_path / "one", f"{connect}/theirs")


def test_the_command_says_in_one_line_what_keeps_it_from_its_ensemble(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    command = [sys.executable, "-m", "felice.cli.main", "broker", str(properties)]
    for timeout_ms in (700, 20_000):
        properties.write_text(
            f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:{free_port()}\nlog.dirs={tmp_path / 'data'}\n"
            f"zookeeper.connect=127.0.0.1:{free_port()}\nzookeeper.connection.timeout.ms={timeout_ms}\n"
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if "connection refused" in done.stderr:
            break  # the machine was quick enough for an attempt
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("error: zookeeper.connect=127.0.0.1:")
    assert f"within {timeout_ms} ms" in line and "connection refused" in line
    assert not (tmp_path / "data").exists(), "nothing is made before the cluster is known"


def test_metadata_written_over_tls_with_a_password_cannot_be_changed_by_others(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    port = free_port()
    settings = secure_port(port, tmp_path)
    tls = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(tmp_path / "ca.pem"),
        "zookeeper.set.acl": "true",
    }

    def command(number: int, password: str, certificate: str) -> list[str]:
        properties = tmp_path / f"server-{number}.properties"
        lines = {
            "node.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            "log.dirs": str(tmp_path / f"data-{number}"),
            "zookeeper.connect": f"localhost:{port}/secure",
            "zookeeper.digest.auth": f"felice:{password}",
            "zookeeper.ssl.keystore.location": str(tmp_path / certificate),
            **tls,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return [sys.executable, "-m", "felice.cli.main", "broker", str(properties)]

    with require_ensemble(tmp_path / "zookeeper", nodes=1, settings=settings, with_tls=True) as ensemble:
        broker = subprocess.Popen(command(1, "right", "client.pem"), stdout=subprocess.PIPE, text=True)
        assert broker.stdout is not None
        try:
            bootstrap = broker.stdout.readline().strip().rpartition("//")[2]
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)
            stranger = KazooClient(ensemble.connect, timeout=60)
            stranger.start(60)
            assert stranger.get_children("/secure/brokers/topics") == ["orders"]
            for path in ("/secure/brokers/topics/orders", "/secure/controller", "/secure/brokers/ids/1"):
                with pytest.raises(NoAuthError):
                    stranger.set(path, b"{}")
            with pytest.raises(NoAuthError):
                stranger.create("/secure/config/users/alice", b"")
            stranger.stop()
            stranger.close()
            refused = subprocess.run(
                command(2, "wrong", "server.pem"), capture_output=True, text=True, timeout=300
            )
            assert refused.returncode == 1
            [line] = refused.stderr.splitlines()
            assert "ZooKeeper does not allow it; check the broker's login (zookeeper.digest.auth" in line
            assert "right" not in line and "wrong" not in line
        finally:
            broker.terminate()
            broker.communicate(timeout=120)
