"""Kills tasks of each connector in each phase of their work, and compares what arrived with what was sent.

`make connect-kills KILLS=20` kills so many times for each connector and phase; the tests do it once.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from felice.client import Consumer, Producer, TopicPartition
from felice.dataclass import dataclass
from felice.pipelines.connect.connectors.file import FileStreamSource, FileStreamSourceTask
from felice.pipelines.connect.model.errors import ConnectError
from felice.testing import Broker, felice_broker
from felice.testing.connectors import PHASES, ConnectorKit, TaskFailed

KILLS = int(os.environ.get("CONNECT_KILLS", "0"))
RECORDS = 300
WAIT_S = 60.0
STRINGS = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}
PLAIN = {**JSON, "value.converter.schemas.enable": "false"}
pytestmark = pytest.mark.timeout(max(180, KILLS * 300))


@dataclass(frozen=True, slots=True)
class Case:
    """A connector: its options in a directory, how records are added to its source, and what is at its target."""

    name: str
    config: Callable[[Path], Mapping[str, str]]
    arrived: Callable[[Path, Broker], list[int]]
    once: bool = True
    add: Callable[[Path, int], None] | None = None
    """Adds a record to a source; None for a sink."""
    is_quick: bool = True
    """Whether it is one of those that the tests kill, too."""


def _lines(directory: Path, _: Broker) -> list[int]:
    file = directory / "out"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def _add_line(directory: Path, number: int) -> None:
    with (directory / "in").open("a") as file:
        file.write(f"{number}\n")


def _rows(directory: Path, _: Broker) -> list[int]:
    if not (directory / "db").exists():
        return []
    connection = sqlite3.connect(directory / "db")
    try:
        return [number for (number,) in connection.execute('SELECT id FROM "numbers"')]
    except sqlite3.OperationalError:  # the table is not there yet
        return []
    finally:
        connection.close()


def _add_row(directory: Path, number: int) -> None:
    connection = sqlite3.connect(directory / "db")
    connection.execute("CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY NOT NULL)")
    connection.execute("INSERT INTO items VALUES (?)", (number,))
    connection.commit()
    connection.close()


def _iceberg(directory: Path, _: Broker) -> list[int]:
    catalog = load_catalog("iceberg", type="sql", uri=f"sqlite:///{directory}/catalog")
    if not catalog.table_exists("db.numbers"):
        return []
    return list(catalog.load_table("db.numbers").scan().to_arrow()["id"].to_pylist())


def _files(directory: Path, _: Broker) -> list[int]:
    names = (directory / "topics" / "numbers").glob("*/*.json")
    return [json.loads(line)["id"] for name in names for line in name.read_text().splitlines()]


def _records(topic: str, read: Callable[[bytes], int]) -> Callable[[Path, Broker], list[int]]:
    def found(_: Path, broker: Broker) -> list[int]:
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed"}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        records: list[int] = []
        while messages := consumer.consume(1000, 0.5):
            records += [read(one.value() or b"") for one in messages if not one.error()]
        consumer.close()
        return records

    return found


CASES = (
    Case(
        "file-source",
        lambda place: {"file": f"{place}/in", "topic": "out", "batch.size": "20"},
        _records("out", int),
        add=_add_line,
    ),
    Case(
        "jdbc-source",
        lambda place: {
            "connection.url": f"jdbc:sqlite:{place}/db",
            "mode": "incrementing",
            "topic.prefix": "out-",
            "batch.max.rows": "20",
            "poll.interval.ms": "10",
            **PLAIN,
        },
        _records("out-items", lambda data: json.loads(data)["id"]),
        add=_add_row,
        is_quick=False,
    ),
    Case("file-sink", lambda place: {"file": f"{place}/out", **STRINGS}, _lines, once=False, is_quick=False),
    Case(
        "jdbc-sink",
        lambda place: {
            "connection.url": f"jdbc:sqlite:{place}/db",
            "auto.create": "true",
            "offsets.table": "offsets",
            **JSON,
        },
        _rows,
    ),
    Case(
        "hdfs-sink",
        lambda place: {
            "store.url": f"file://{place}",
            "flush.size": "10",
            "format.class": "io.confluent.connect.hdfs.json.JsonFormat",
            **PLAIN,
        },
        _files,
    ),
    Case(
        "iceberg-sink",
        lambda place: {
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": f"sqlite:///{place}/catalog",
            "iceberg.catalog.warehouse": f"file://{place}/lake",
            "iceberg.tables": "db.numbers",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.control.commit.interval-ms": "0",
            **PLAIN,
        },
        _iceberg,
    ),
)


class Killed:
    """A connector whose task is started and killed again and again."""

    def __init__(self, case: Case, directory: Path, broker: Broker) -> None:
        self.case, self._directory, self._broker = case, directory, broker
        self._sent = 0
        self._config = {"name": case.name, "connector.class": case.name, **case.config(directory)}
        if case.add is None:
            self._config |= {"topics": "numbers", "consumer.override.max.poll.records": "20"}
        self._kit = ConnectorKit(broker.bootstrap, self._config, directory=directory)

    def send(self, count: int) -> None:
        if self.case.add is not None:
            for number in range(self._sent, self._sent + count):
                self.case.add(self._directory, number)
        else:
            producer = Producer({"bootstrap.servers": self._broker.bootstrap})
            for number in range(self._sent, self._sent + count):
                producer.produce("numbers", self._value(number))
            producer.flush()
        self._sent += count

    def _value(self, number: int) -> str:
        if self.case.name == "file-sink":
            return str(number)
        payload = {"id": number}
        if self._config["value.converter.schemas.enable"] == "false":
            return json.dumps(payload)
        schema = {"type": "struct", "fields": [{"field": "id", "type": "int32"}], "name": "v"}
        return json.dumps({"schema": schema, "payload": payload})

    def kill_in(self, phase: str) -> None:
        """A new process, killed in the phase: at one of its first calls, before or after the call."""
        self.send(60)  # three batches, so that there are so many calls
        self._kit.kill(phase, call=random.choice((1, 1, 2)), before=random.random() < 0.5, within_s=6)

    def check(self) -> None:
        with self._kit.running() as process:
            give_up_at = time.monotonic() + WAIT_S
            while set(found := self.case.arrived(self._directory, self._broker)) != set(range(self._sent)):
                assert process.poll() is None, self._kit.log[-3000:]
                missing = sorted(set(range(self._sent)) - set(found))
                assert time.monotonic() < give_up_at, f"missing: {missing[:20]}\n{self._kit.log[-2000:]}"
                time.sleep(0.3)
        twice = [number for number, count in Counter(found).items() if count > 1]
        assert not (self.case.once and twice), f"{len(twice)} records are there twice: {sorted(twice)[:20]}"
        print(f"{self.case.name}: {self._sent} records, {len(twice)} of them more than once")


@pytest.mark.parametrize("case", [one for one in CASES if KILLS or one.is_quick], ids=lambda case: case.name)
def test_nothing_is_lost(case: Case, tmp_path: Path) -> None:
    with felice_broker(topics=["numbers"]) as broker:
        killed = Killed(case, tmp_path, broker)
        killed.send(RECORDS)
        for phase in PHASES:
            for _ in range(KILLS or 1):
                killed.kill_in(phase)
        killed.check()


class Broken(FileStreamSource):
    """Loses what it has read when it starts again."""

    @classmethod
    def task_class(cls) -> type[FileStreamSourceTask]:
        return BrokenTask


class BrokenTask(FileStreamSourceTask):
    def start(self, config: Mapping[str, str]) -> None:
        if "fails" in config:
            raise ConnectError("it never works")
        super().start(config)
        self._position = Path(config["file"]).stat().st_size


def test_the_kit_finds_a_connector_that_loses_records(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(f"{number}\n" for number in range(100)))
    plugin = "conformance.test_connect_kills:Broken"
    config = {"name": "broken", "connector.class": "Broken", "file": f"{tmp_path}/in", "topic": "out"}
    with felice_broker(topics=["out"]) as broker:
        kit = ConnectorKit(broker.bootstrap, config, directory=tmp_path, plugin=plugin)
        kit.kill("write", before=True, within_s=3)
        with kit.running():
            time.sleep(2)
        assert _records("out", int)(tmp_path, broker) != list(range(100))
        with pytest.raises(ValueError, match="one of the phases"):
            kit.kill("sleep")
        failing = ConnectorKit(
            broker.bootstrap, {**config, "fails": "yes"}, directory=tmp_path, plugin=plugin
        )
        with pytest.raises(TaskFailed, match="it never works"):
            failing.kill("read")
        with pytest.raises(TaskFailed, match="it never works"), failing.running() as process:
            process.wait(30)
