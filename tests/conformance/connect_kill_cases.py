"""What the kill matrix kills: each connector, the server at its other side, and how what arrived is read."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from pyiceberg.catalog import load_catalog
from sqlalchemy.exc import OperationalError, ProgrammingError

from felice.client import Consumer, Producer, TopicPartition
from felice.dataclass import dataclass
from felice.pipelines.connect.connectors.hdfs.options import OPTIONS as HDFS_OPTIONS
from felice.pipelines.connect.connectors.hdfs.storage import Storage
from felice.testing import Broker, felice_broker
from peers.apache_kafka import free_port
from peers.databases import Database, running_database
from peers.gate import Gate
from peers.hdfs import running_hdfs
from peers.objects import Bucket, running_store
from peers.search import running_search

PROGRAMS = Path(__file__).parent / "programs"
STRINGS = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}
PLAIN = {**JSON, "value.converter.schemas.enable": "false"}


class Server(Protocol):
    """What can be killed and started again."""

    def start(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a case runs: `other` is the server at the connector's other side, as its peer gives it."""

    directory: Path
    broker: Broker
    other: Any = None


@dataclass(frozen=True, slots=True)
class Case:
    """A connector: its options, what has arrived, and for a source how a record is added to it."""

    name: str
    config: Callable[[Place], Mapping[str, str]]
    arrived: Callable[[Place], list[int]]
    once: bool = True
    add: Callable[[Place, int], None] | None = None
    """None for a sink."""
    other: Callable[[Path], AbstractContextManager[Any]] | None = None
    """Starts the server at the other side."""
    server: Callable[[Any], Server] = lambda other: other
    """The process of that server."""
    is_quick: bool = False
    """Whether it is one of those that the tests kill, too."""
    label: str = ""

    @property
    def id(self) -> str:
        return f"{self.name}{self.label}"


# Files and SQLite, which need no server


def _lines(place: Place) -> list[int]:
    file = place.directory / "out"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def _add_line(place: Place, number: int) -> None:
    with (place.directory / "in.log").open("a") as file:
        file.write(f"{number}\n")


def _rows_of_sqlite(place: Place) -> list[int]:
    if not (place.directory / "db").exists():
        return []
    connection = sqlite3.connect(place.directory / "db")
    try:
        return [number for (number,) in connection.execute('SELECT id FROM "numbers"')]
    except sqlite3.OperationalError:  # the table is not there yet
        return []
    finally:
        connection.close()


def _add_row_to_sqlite(place: Place, number: int) -> None:
    connection = sqlite3.connect(place.directory / "db")
    connection.execute("CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY NOT NULL)")
    connection.execute("INSERT INTO items VALUES (?)", (number,))
    connection.commit()
    connection.close()


def _rows_of_iceberg(place: Place) -> list[int]:
    catalog = load_catalog("iceberg", type="sql", uri=f"sqlite:///{place.directory}/catalog")
    if not catalog.table_exists("db.numbers"):
        return []
    return list(catalog.load_table("db.numbers").scan().to_arrow()["id"].to_pylist())


def _lines_of_files(place: Place) -> list[int]:
    names = (place.directory / "topics" / "numbers").glob("*/*.json")
    return [json.loads(line)["id"] for name in names for line in name.read_text().splitlines()]


# Topics


def _records(topic: str, read: Callable[[bytes], int | None]) -> Callable[[Place], list[int]]:
    """The numbers in a topic's values that were committed; `read` gives None for a value without one."""

    def found(place: Place) -> list[int]:
        own = {"bootstrap.servers": place.broker.bootstrap, "group.id": "g"}
        consumer = Consumer({**own, "isolation.level": "read_committed"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        records: list[int | None] = []
        while messages := consumer.consume(1000, 0.5):
            records += [read(one.value() or b"") for one in messages if not one.error()]
        consumer.close()
        return [one for one in records if one is not None]

    return found


# PostgreSQL


@contextmanager
def _postgresql(directory: Path) -> Iterator[Database]:
    with running_database("postgresql", directory) as database:
        database.run("CREATE TABLE items (id INTEGER PRIMARY KEY NOT NULL)")
        yield database


def _rows(place: Place) -> list[int]:
    try:
        return [int(str(number)) for (number,) in place.other.rows('SELECT id FROM "numbers"')]
    except (OperationalError, ProgrammingError):  # it is away, or the table is not there yet
        return []


def _add_row(place: Place, number: int) -> None:
    place.other.run(f"INSERT INTO items VALUES ({number})")


def _of_database(**more: str) -> Callable[[Place], Mapping[str, str]]:
    options = {name.replace("_", "."): value for name, value in more.items()}
    patience = {"connection.attempts": "1000", "connection.backoff.ms": "200"}
    return lambda place: {**place.other.options, **patience, **options}


def _changes(place: Place) -> Mapping[str, str]:
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(place.other.port),
        "database.user": "felice",
        "database.password": "none",
        "database.dbname": "postgres",
        "topic.prefix": "out",
        "slot.name": "felice",
        "table.include.list": "public.items",
        "errors.max.retries": "-1",
        "retriable.restart.connector.wait.ms": "200",
        **PLAIN,
    }


def _id_after(data: bytes) -> int | None:
    return int(json.loads(data)["after"]["id"]) if data else None


# A store of objects, HDFS, a search engine, an HTTP server, another cluster


@dataclass(frozen=True, slots=True)
class _Gated:
    """A server in memory with a gate before it."""

    bucket: Bucket
    gate: Gate


@contextmanager
def _store(directory: Path) -> Iterator[_Gated]:
    with running_store() as bucket, Gate(urlsplit(bucket.url).port or 0) as gate:
        yield _Gated(bucket, gate)


def _objects(place: Place) -> list[int]:
    found = place.other.bucket.objects()
    return [json.loads(line)["id"] for data in found.values() for line in data.splitlines()]


def _to_objects(place: Place) -> Mapping[str, str]:
    return {
        **place.other.bucket.options,
        "store.url": f"http://127.0.0.1:{place.other.gate.port}",
        "s3.region": "us-east-1",
        "flush.size": "10",
        "retry.backoff.ms": "200",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        **PLAIN,
    }


def _to_hdfs(place: Place) -> Mapping[str, str]:
    return {
        "store.url": place.other.url,
        "flush.size": "10",
        "retry.backoff.ms": "200",
        "format.class": "io.confluent.connect.hdfs.json.JsonFormat",
        **PLAIN,
    }


def _lines_of_hdfs(place: Place) -> list[int]:
    storage = Storage(HDFS_OPTIONS.parse({**_to_hdfs(place), "topics": "numbers"}))
    found = []
    for folder in storage.names("topics/numbers"):
        for name in storage.names(f"topics/numbers/{folder}"):
            lines = storage.read(f"topics/numbers/{folder}/{name}").splitlines()
            found += [json.loads(line)["id"] for line in lines]
    return found


def _documents(place: Place) -> list[int]:
    try:
        return [one["id"] for one in place.other.documents("numbers").values()]
    except OSError:  # it is away, or the index is not there yet
        return []


class HttpLog:
    """A server that keeps the bodies of requests in a file, on the disk before it answers."""

    def __init__(self, file: Path) -> None:
        self.file, self.port = file, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(PROGRAMS / "http_log.py"), str(self.port), str(self.file)]
        self._process = subprocess.Popen(command)
        give_up_at = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5).close()
                return
            except OSError:
                assert time.monotonic() < give_up_at, "the server did not start"
                time.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def _http(directory: Path) -> Iterator[HttpLog]:
    server = HttpLog(directory / "bodies")
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _bodies(place: Place) -> list[int]:
    file = place.other.file
    bodies = file.read_text().split() if file.exists() else []
    return [int(number) for body in bodies for number in body.split(",") if number]


@contextmanager
def _cluster(directory: Path) -> Iterator[Broker]:
    with felice_broker(topics=["numbers"]) as broker:
        yield broker


def _add_record(place: Place, number: int) -> None:
    with Producer({"bootstrap.servers": place.other.bootstrap}) as producer:
        producer.produce("numbers", str(number))
        producer.flush()


def _mirrored(place: Place) -> Mapping[str, str]:
    bytes_as_they_are = "org.apache.kafka.connect.converters.ByteArrayConverter"
    return {
        "source.cluster.alias": "a",
        "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": place.other.bootstrap,
        "target.cluster.bootstrap.servers": place.broker.bootstrap,
        "topics": "numbers",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "key.converter": bytes_as_they_are,
        "value.converter": bytes_as_they_are,
    }


CASES = (
    Case(
        "file-source",
        lambda place: {"file": f"{place.directory}/in.log", "topic": "out", "batch.size": "20"},
        _records("out", int),
        add=_add_line,
        is_quick=True,
    ),
    Case(
        "files-source",
        lambda place: {"files": f"{place.directory}/*.log", "topic": "out", "batch.size": "20"},
        _records("out", int),
        add=_add_line,
    ),
    Case("file-sink", lambda place: {"file": f"{place.directory}/out", **STRINGS}, _lines, once=False),
    Case(
        "jdbc-source",
        lambda place: {
            "connection.url": f"jdbc:sqlite:{place.directory}/db",
            "mode": "incrementing",
            "topic.prefix": "out-",
            "batch.max.rows": "20",
            "poll.interval.ms": "10",
            **PLAIN,
        },
        _records("out-items", lambda data: json.loads(data)["id"]),
        add=_add_row_to_sqlite,
    ),
    Case(
        "jdbc-source",
        _of_database(
            mode="incrementing",
            incrementing_column_name="id",
            topic_prefix="out-",
            batch_max_rows="20",
            poll_interval_ms="10",
            table_whitelist="items",
            **PLAIN,
        ),
        _records("out-items", lambda data: json.loads(data)["id"]),
        add=_add_row,
        other=_postgresql,
        server=lambda database: database.server,
        label="-postgresql",
    ),
    Case(
        "jdbc-sink",
        lambda place: {
            "connection.url": f"jdbc:sqlite:{place.directory}/db",
            "auto.create": "true",
            "offsets.table": "offsets",
            **JSON,
        },
        _rows_of_sqlite,
        is_quick=True,
    ),
    Case(
        "jdbc-sink",
        _of_database(
            auto_create="true", offsets_table="offsets", max_retries="1000", retry_backoff_ms="200", **JSON
        ),
        _rows,
        other=_postgresql,
        server=lambda database: database.server,
        label="-postgresql",
    ),
    Case(
        "postgres-cdc",
        _changes,
        _records("out.public.items", _id_after),
        add=_add_row,
        other=_postgresql,
        server=lambda database: database.server,
    ),
    Case(
        "s3-sink",
        _to_objects,
        _objects,
        other=_store,
        server=lambda gated: gated.gate,
    ),
    Case(
        "hdfs-sink",
        lambda place: {
            "store.url": f"file://{place.directory}",
            "flush.size": "10",
            "format.class": "io.confluent.connect.hdfs.json.JsonFormat",
            **PLAIN,
        },
        _lines_of_files,
        is_quick=True,
    ),
    Case("hdfs-sink", _to_hdfs, _lines_of_hdfs, other=running_hdfs, label="-hdfs"),
    Case(
        "iceberg-sink",
        lambda place: {
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": f"sqlite:///{place.directory}/catalog",
            "iceberg.catalog.warehouse": f"file://{place.directory}/lake",
            "iceberg.tables": "db.numbers",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.control.commit.interval-ms": "0",
            **PLAIN,
        },
        _rows_of_iceberg,
        is_quick=True,
    ),
    Case(
        "elasticsearch-sink",
        lambda place: {
            "connection.url": place.other.url,
            "key.ignore": "true",
            "schema.ignore": "true",
            "max.retries": "1000",
            "retry.backoff.ms": "200",
            **PLAIN,
        },
        _documents,
        other=running_search,
    ),
    Case(
        "http-sink",
        lambda place: {
            "http.api.url": f"http://127.0.0.1:{place.other.port}/",
            "batch.max.size": "10",
            "batch.separator": ",",
            "max.retries": "1000",
            "retry.backoff.ms": "200",
            **STRINGS,
        },
        _bodies,
        once=False,
        other=_http,
    ),
    Case("mirror-source", _mirrored, _records("a.numbers", int), add=_add_record, other=_cluster),
)
