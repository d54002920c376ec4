"""Kafka Connect from Maven, standalone and distributed, copies a file line by line through a topic."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.kafka_application import KafkaApplication
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from peers.apache_kafka import free_port
from waiting import wait_until

pytestmark = pytest.mark.timeout(1800)

# Long enough for a JVM to start on a machine under heavy load.
TIMEOUT_S = 240.0
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


def write_properties(path: Path, properties: Mapping[str, object]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


def worker_properties(broker: Target) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": 500,
        "offset.flush.timeout.ms": 60_000,
        "task.shutdown.graceful.timeout.ms": 60_000,
        "listeners": f"http://127.0.0.1:{free_port()}",
    }


def source(topic: str, file: Path) -> dict[str, object]:
    return {"connector.class": "FileStreamSource", "tasks.max": 1, "topic": topic, "file": file}


def sink(topic: str, file: Path, session_timeout_ms: int = 60_000) -> dict[str, object]:
    options = {"connector.class": "FileStreamSink", "tasks.max": 1, "topics": topic, "file": file}
    sessions = {
        "session.timeout.ms": session_timeout_ms,
        "heartbeat.interval.ms": 1000,
        "auto.offset.reset": "earliest",
    }
    return {**options, **{f"consumer.override.{name}": value for name, value in sessions.items()}}


def append(path: Path, *lines: str) -> None:
    with path.open("a") as out:
        out.writelines(f"{line}\n" for line in lines)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def wait_copied(path: Path, wanted: list[str], application: KafkaApplication) -> None:
    try:
        wait_until(lambda: len(lines_of(path)) >= len(wanted), TIMEOUT_S)
    except AssertionError:
        raise AssertionError(f"{lines_of(path)} was copied: {application.account()}") from None
    assert lines_of(path) == wanted


def wait_copied_at_least_once(
    path: Path, wanted: list[str], application: KafkaApplication, seen: int
) -> None:
    """The lines after the first `seen`; one that was copied twice counts once."""

    def lines() -> list[str]:
        return list(dict.fromkeys(lines_of(path)[seen:]))

    try:
        wait_until(lambda: len(lines()) >= len(wanted), TIMEOUT_S)
    except AssertionError:
        raise AssertionError(f"{lines()} was copied: {application.account()}") from None
    assert lines() == wanted


def test_standalone_copies_a_file_through_a_topic_and_goes_on_after_a_restart(
    broker: Target, tmp_path: Path
) -> None:
    topic = create_topic(broker, unique_name("lines"))
    before, after = tmp_path / "before.txt", tmp_path / "after.txt"
    worker = {**worker_properties(broker), "offset.storage.file.filename": tmp_path / "offsets"}
    files = [
        write_properties(tmp_path / "worker.properties", worker),
        write_properties(
            tmp_path / "source.properties", {"name": f"{topic}-source", **source(topic, before)}
        ),
        write_properties(tmp_path / "sink.properties", {"name": f"{topic}-sink", **sink(topic, after)}),
    ]
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    append(before, "one", "two", "three")
    with KafkaApplication(tmp_path, main, *files) as application:
        wait_copied(after, ["one", "two", "three"], application)
        application.stop()
    append(before, "four", "five")
    with KafkaApplication(tmp_path, main, *files) as application:
        wait_copied(after, ["one", "two", "three", "four", "five"], application)
        application.stop()


class DistributedWorker:
    """One worker whose connectors, offsets and states live in compacted topics of the broker."""

    def __init__(self, broker: Target, directory: Path) -> None:
        name = unique_name("connect")
        self._directory = directory
        self._properties = {
            **worker_properties(broker),
            "group.id": name,
            "scheduled.rebalance.max.delay.ms": 0,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            **{f"{what}.storage.topic": f"{name}-{what}s" for what in ("config", "offset", "status")},
            **{f"{what}.storage.replication.factor": 1 for what in ("config", "offset", "status")},
            "offset.storage.partitions": 2,
            "status.storage.partitions": 1,
        }

    def start(self) -> KafkaApplication:
        file = write_properties(self._directory / "worker.properties", self._properties)
        return KafkaApplication(self._directory, "org.apache.kafka.connect.cli.ConnectDistributed", file)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        url = f"{self._properties['listeners']}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def offset(self, connector: str) -> object:
        """The committed offset of a connector with one partition; None while it has none, or the worker is busy."""
        try:
            found = self.ask("GET", f"/connectors/{connector}/offsets")["offsets"]
        except OSError:  # it rebalances
            return None
        return found[0]["offset"] if found else None

    def lists(self, *names: str) -> bool:
        """Whether the worker lists these connectors. Its REST resources appear some time after its port."""
        try:
            return bool(self.ask("GET", "/connectors") == list(names))
        except OSError:
            return False

    def create(self, name: str, config: Mapping[str, object]) -> None:
        texts = {key: str(value) for key, value in config.items()}

        def is_taken() -> bool:
            try:
                return bool(self.ask("PUT", f"/connectors/{name}/config", texts))
            except OSError:  # it starts, or chooses its leader
                return False

        wait_until(is_taken, TIMEOUT_S)


def test_distributed_keeps_connectors_and_offsets_in_the_broker_over_a_kill(
    broker: Target, tmp_path: Path
) -> None:
    topic = create_topic(broker, unique_name("lines"))
    before, after = tmp_path / "before.txt", tmp_path / "after.txt"
    worker = DistributedWorker(broker, tmp_path)
    append(before, "one", "two")
    with worker.start() as application:
        worker.create("reader", source(topic, before))
        # A killed worker's consumer is soon forgotten. On a machine under heavy load a session this short may also end
        # by itself, and then the sink copies again what it had not committed.
        worker.create("writer", sink(topic, after, session_timeout_ms=6000))
        wait_copied_at_least_once(after, ["one", "two"], application, seen=0)
        wait_until(lambda: worker.offset("reader") == {"position": len("one\ntwo\n")}, TIMEOUT_S)
        wait_until(lambda: worker.offset("writer") == {"kafka_offset": 2}, TIMEOUT_S)
        application.kill()
    seen = len(lines_of(after))
    append(before, "three")
    with worker.start() as application:
        wait_copied_at_least_once(after, ["three"], application, seen)
        wait_until(lambda: worker.lists("reader", "writer"), TIMEOUT_S)
        application.stop()
