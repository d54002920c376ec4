"""Files of the forms that people have for Kafka: each starts a broker, or is refused with what to do instead."""

from pathlib import Path

import pytest

from felice.cli import start
from felice.cli.faults import Fault
from felice.config import BrokerConfig, ConfigError

KRAFT_NODE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
share.coordinator.state.topic.min.isr=1
log.segment.bytes=1073741824
"""
WITH_ZOOKEEPER = """
broker.id=0
num.network.threads=3
socket.receive.buffer.bytes=102400
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
OWN_NAMES = """
process.roles=controller,broker
node.id=0
listeners=CLIENT://:9092,INTERNAL://:9094,CONTROLLER://:9093
advertised.listeners=CLIENT://localhost:9092,INTERNAL://localhost:9094
listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=0@localhost:9093
inter.broker.listener.name=INTERNAL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
max.request.size=1048576
"""
OF_AN_OPERATOR = """
process.roles=broker,controller
node.id=3
controller.listener.names=CONTROLPLANE-9090
controller.quorum.voters=3@localhost:9090
listener.security.protocol.map=CONTROLPLANE-9090:SSL,PLAIN-9092:PLAINTEXT
listeners=CONTROLPLANE-9090://0.0.0.0:9090,PLAIN-9092://0.0.0.0:9092
advertised.listeners=PLAIN-9092://localhost:9092
inter.broker.listener.name=PLAIN-9092
sasl.enabled.mechanisms=
ssl.endpoint.identification.algorithm=HTTPS
listener.name.controlplane-9090.ssl.client.auth=required
listener.name.controlplane-9090.ssl.endpoint.identification.algorithm=HTTPS
metric.reporters=org.example.Reporter
inter.broker.protocol.version=3.9
confluent.balancer.enable=true
"""
BROKER_ROLE = """
process.roles=broker
node.id=2
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
    """The configurations of the brokers that were started."""
    found: list[BrokerConfig] = []
    monkeypatch.setattr("felice.server.process.running.run", lambda config, **_: found.append(config))
    monkeypatch.setattr(start, "_configure_logs", lambda *_: None)
    return found


def run(directory: Path, text: str, *overrides: str) -> None:
    path = directory / "server.properties"
    path.write_text(f"log.dirs={directory}\n{text}")
    start.run_from_file(path, overrides, "text", "warning")


@pytest.mark.parametrize(
    ("text", "listeners"),
    [
        (KRAFT_NODE, ["PLAINTEXT://:9092"]),
        (WITH_ZOOKEEPER, ["PLAINTEXT://:9092"]),
        (OWN_NAMES, ["CLIENT://:9092", "INTERNAL://:9094"]),
        (OF_AN_OPERATOR, ["PLAIN-9092://0.0.0.0:9092"]),
        (f"{BROKER_ROLE}zookeeper.connect=localhost:2181\n", ["PLAINTEXT://localhost:9092"]),
    ],
    ids=["one node of KRaft", "ZooKeeper", "names of its own", "an operator's", "a broker's with ZooKeeper"],
)
def test_a_file_of_kafka_starts_a_broker(
    tmp_path: Path, started: list[BrokerConfig], text: str, listeners: list[str]
) -> None:
    run(tmp_path, text)
    (config,) = started
    assert [str(listener) for listener in config.parsed_listeners] == listeners
    assert config.log_directories == [tmp_path]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BROKER_ROLE, "set zookeeper.connect, or process.roles=broker,controller"),
        (BROKER_ROLE.replace("=broker\n", "= broker \n"), "set zookeeper.connect, or process.roles"),
        (
            BROKER_ROLE.replace("=broker\n", "=controller\n").replace("PLAINTEXT", "CONTROLLER"),
            "start its brokers only",
        ),
        (
            KRAFT_NODE.replace("servers=", "servers=a:1,b:1,"),
            "names 3 controllers; Felice has no KRaft quorum, set zookeeper.connect",
        ),
        (OWN_NAMES.replace("CLIENT:PLAINTEXT,", ""), "add CLIENT:SSL, for example"),
        (f"{KRAFT_NODE}advertised.listeners=PLAINTEXT://0.0.0.0:9092\n", "name a reachable address"),
    ],
)
def test_a_file_that_starts_no_broker_is_refused_with_what_to_do(
    tmp_path: Path, started: list[BrokerConfig], text: str, reason: str
) -> None:
    with pytest.raises((Fault, ConfigError)) as refused:
        run(tmp_path, text)
    assert reason in str(refused.value) and "\n" not in str(refused.value)
    assert not started


def test_the_command_line_can_turn_a_brokers_file_into_a_single_node(
    tmp_path: Path, started: list[BrokerConfig]
) -> None:
    run(tmp_path, BROKER_ROLE, "process.roles=broker,controller")
    assert len(started) == 1
