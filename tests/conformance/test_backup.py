"""Runs the commands of docs/backup.md with other paths, on a broker in a process of its own."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from felice.server.process.embedded import EmbeddedBroker
from felice.server.startup import StartupError
from peers.apache_kafka import free_port

pytestmark = pytest.mark.felice_only

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"
TIMEOUT_S = 300
# What the page calls systemctl: starts the broker and waits until it serves, stops it and waits until it has ended.
SYSTEMCTL = """#!/bin/bash
set -eu
case $1 in
start)
    : > "$HERE/felice.log"
    felice broker "$HERE/server.properties" < /dev/null > "$HERE/felice.log" 2>&1 &
    echo $! > "$HERE/pid"
    until grep -q "Felice is ready" "$HERE/felice.log"; do kill -0 $(cat "$HERE/pid"); sleep 0.05; done ;;
stop)
    kill -TERM $(cat "$HERE/pid")
    while kill -0 $(cat "$HERE/pid") 2> /dev/null; do sleep 0.05; done ;;
esac
"""


class Machine:
    """Directories in place of /var/lib/felice and /backup, and a broker started and stopped in place of `systemctl`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "felice" / "1"
        self.bootstrap = f"127.0.0.1:{free_port()}"
        for path in (self.data.parent, root / "backup", root / "bin"):
            path.mkdir()
        properties = {
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
        }
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (root / "server.properties").write_text(text)
        (root / "bin" / "systemctl").write_text(SYSTEMCTL)
        (root / "bin" / "systemctl").chmod(0o755)

    def run(self, block: str) -> str:
        """The commands of a block of the page."""
        (commands,) = re.findall(rf"^```sh {block}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        for there, here in (("/var/lib/felice", self.data.parent), ("/backup", self.root / "backup")):
            commands = commands.replace(there, str(here))
        return self.shell(commands)

    def shell(self, commands: str) -> str:
        path = os.pathsep.join([str(self.root / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {
            **os.environ,
            "PATH": path,
            "HERE": str(self.root),
            "FELICE_BOOTSTRAP_SERVER": self.bootstrap,
        }
        done = subprocess.run(
            ["bash", "-euc", commands], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @functools.cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def produce(self, topic: str, *values: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(TIMEOUT_S) == 0

    def consume(self, topic: str, count: int) -> list[str]:
        """Reads the next records of a group and commits them."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.subscribe([topic])
        values: list[str] = []
        while len(values) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None and message.error() is None
            values.append(message.value().decode())
        consumer.commit(asynchronous=False)
        consumer.close()
        return values

    def topic_id(self, topic: str) -> str:
        described = self.admin.describe_topics(TopicCollection([topic]))
        return str(described[topic].result(TIMEOUT_S).topic_id)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    made.shell("systemctl start felice@1")
    yield made
    made.shell("systemctl stop felice@1")


def _fill(machine: Machine) -> None:
    machine.admin.create_topics([NewTopic("kept", 1, 1, config={"retention.ms": "123456789"})])[
        "kept"
    ].result(TIMEOUT_S)
    machine.produce("kept", "a", "b", "c")
    assert machine.consume("kept", 2)[:1] == ["a"]
    change = ConfigEntry("max.connections", "500", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[change])
    machine.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def test_a_backup_is_restored_with_records_offsets_ids_and_configurations(machine: Machine) -> None:
    _fill(machine)
    topic_id = machine.topic_id("kept")
    assert "created /brokers/topics/kept" in machine.run("backup")
    machine.produce("kept", "later")
    machine.admin.create_topics([NewTopic("newer", 1, 1)])["newer"].result(TIMEOUT_S)
    machine.admin.delete_topics(["kept"])["kept"].result(TIMEOUT_S)
    machine.run("restore")
    assert machine.topic_id("kept") == topic_id
    assert "newer" not in machine.admin.list_topics(timeout=TIMEOUT_S).topics
    resource = ConfigResource(ResourceType.TOPIC, "kept")
    configs = machine.admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["retention.ms"].value == "123456789"
    resource = ConfigResource(ResourceType.BROKER, "1")
    assert (
        machine.admin.describe_configs([resource])[resource].result(TIMEOUT_S)["max.connections"].value
        == "500"
    )
    consumer = Consumer({"bootstrap.servers": machine.bootstrap, "group.id": "readers"})
    assert consumer.get_watermark_offsets(TopicPartition("kept", 0), timeout=TIMEOUT_S) == (0, 3)
    (committed,) = consumer.committed([TopicPartition("kept", 0)], timeout=TIMEOUT_S)
    consumer.close()
    assert committed.offset == 2
    machine.produce("kept", "d")
    assert machine.consume("kept", 2) == ["c", "d"]
    assert not list(machine.data.glob("*-stray"))


def test_a_snapshot_of_the_file_system_is_a_backup(machine: Machine, tmp_path: Path) -> None:
    """A copy of an idle broker's files equals such a snapshot."""
    _fill(machine)
    shutil.copytree(machine.data, tmp_path / "backup" / "felice-1")
    assert not (tmp_path / "backup" / "felice-1" / ".kafka_cleanshutdown").exists()
    machine.produce("kept", "later")
    machine.run("restore")
    assert machine.consume("kept", 1) == ["c"]
    assert not list(machine.data.glob("*-stray"))


def test_metadata_alone_is_copied_beside_a_running_broker(machine: Machine, tmp_path: Path) -> None:
    _fill(machine)
    machine.run("metadata")
    paths = [node["path"] for node in json.loads((tmp_path / "backup" / "nodes.json").read_text())["nodes"]]
    assert "/brokers/topics/kept" in paths


def test_logs_without_their_metadata_and_half_a_store_are_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data"):
        pass
    shutil.copytree(tmp_path / "data", tmp_path / "half")
    shutil.rmtree(tmp_path / "half" / "metadata")
    with pytest.raises(StartupError, match="whose metadata is gone"):
        EmbeddedBroker(tmp_path / "half")
