"""Kills tasks of each connector in each phase of their work, and compares what arrived with what was sent.

`make connect-kills KILLS=20` kills so many times for each connector and phase; the tests do it once.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from connect_worker import distributed_options
from felice.client import Consumer, Producer, TopicPartition
from felice.dataclass import dataclass
from felice.testing import Broker, felice_broker

KILLS = int(os.environ.get("CONNECT_KILLS", "0"))
PHASES = ("read", "transform", "write", "flush", "commit")
PROGRAM = Path(__file__).parent / "programs" / "connect_killed.py"
RECORDS = 400
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
        offsets = f"offsets-{directory.name}"
        broker.create_topic(offsets, partitions=1)
        self._worker = {
            **distributed_options(
                broker.bootstrap, offset_flush_interval_ms="100", offset_storage_topic=offsets
            ),
            "exactly.once.source.support": "enabled",
            "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        }
        self._config = {
            "name": f"{case.name}-{directory.name}",
            "connector.class": case.name,
            **case.config(directory),
        }
        if case.add is None:
            self._config |= {
                "topics": "numbers",
                "consumer.override.auto.offset.reset": "earliest",
                # The next process takes the place of a killed one at once.
                "consumer.override.group.instance.id": "task",
                "consumer.override.max.poll.records": "20",
            }

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

    def run(self, phase: str | None, at: int = 1, *, before: bool = False) -> subprocess.Popen[bytes]:
        given = {
            "worker": self._worker,
            "connector": self._config,
            "phase": phase,
            "at": at,
            "before": before,
        }
        with (self._directory / "log").open("ab") as log:
            process = subprocess.Popen([sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stderr=log)
        assert process.stdin is not None
        process.stdin.write(json.dumps(given).encode() + b"\n")
        process.stdin.flush()
        return process

    def kill_in(self, phase: str) -> None:
        """A new process, killed in the phase: at one of its first calls, before or after the call."""
        process = self.run(phase, random.choice((1, 1, 2, 3)), before=random.random() < 0.5)
        self.send(20)
        try:
            code = process.wait(10)
        except subprocess.TimeoutExpired:  # there were fewer calls
            process.kill()
            code = process.wait()
        finally:
            assert process.stdin is not None
            process.stdin.close()
        assert code == -9, (self._directory / "log").read_text()[-3000:]

    def check(self) -> None:
        process = self.run(None)
        assert process.stdin is not None
        try:
            give_up_at = time.monotonic() + WAIT_S
            while set(found := self.case.arrived(self._directory, self._broker)) != set(range(self._sent)):
                log = (self._directory / "log").read_text()
                assert process.poll() is None, log[-3000:]
                missing = sorted(set(range(self._sent)) - set(found))
                assert time.monotonic() < give_up_at, (
                    f"missing after {WAIT_S:g} s: {missing[:20]}\n{log[-2000:]}"
                )
                time.sleep(0.3)
        finally:
            process.stdin.close()
            process.wait(30)
        twice = [number for number, count in Counter(found).items() if count > 1]
        assert not (self.case.once and twice), f"{len(twice)} records are there twice: {sorted(twice)[:20]}"
        print(f"{self.case.name}: {self._sent} records, {len(twice)} of them more than once")


@pytest.mark.parametrize("case", [one for one in CASES if KILLS or one.is_quick], ids=lambda case: case.name)
def test_nothing_is_lost(case: Case, tmp_path: Path) -> None:
    kills = KILLS or 1
    with felice_broker() as broker:
        killed = Killed(case, tmp_path, broker)
        killed.send(RECORDS)
        for phase in PHASES:
            for _ in range(kills):
                killed.kill_in(phase)
        killed.check()
