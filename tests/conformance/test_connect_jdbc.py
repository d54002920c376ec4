"""Sources and sinks of databases: SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from conformance.registry_process import RegistryProcess
from connect_contexts import NotedSink, StoredOffsets
from connect_worker import running_worker
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.connectors.jdbc import source_task
from felice.pipelines.connect.connectors.jdbc.sink import JdbcSink
from felice.pipelines.connect.connectors.jdbc.sink_task import JdbcSinkTask
from felice.pipelines.connect.connectors.jdbc.source import JdbcSource
from felice.pipelines.connect.connectors.jdbc.source_task import JdbcSourceTask
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord, SourceRecord
from felice.pipelines.connect.model.schema import (
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    decimal_of,
    logical,
    simple,
    struct,
)
from felice.pipelines.connect.storage.offset_records import key_text
from felice.testing import Broker, felice_broker
from peers.databases import KINDS, Database, missing, running_database
from waiting import wait_until

AVRO = "io.confluent.connect.avro.AvroConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
TIMEOUT_S = 120
pytestmark = pytest.mark.timeout(TIMEOUT_S)
UTC = datetime.UTC


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    why = missing(request.param)
    if why is not None:
        pytest.skip(why)
    with running_database(request.param, tmp_path_factory.mktemp("database")) as started:
        yield started


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    """The database without tables."""
    yield server
    tables = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
        "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
        "mariadb": "SELECT table_name FROM information_schema.tables WHERE table_schema = 'felice'",
    }[server.kind]
    quote = "`" if server.kind == "mariadb" else '"'
    for (name,) in server.rows(tables):
        server.run(f"DROP TABLE {quote}{name}{quote}")


# Sources


class Source:
    """A source with its tasks, polled by the test. Offsets are kept over `again`."""

    def __init__(self, database: Database, offsets: dict[str, Place] | None = None, **more: str) -> None:
        self.offsets: dict[str, Place] = {} if offsets is None else offsets
        self._config = {
            "name": "source",
            **database.options,
            "topic.prefix": "t-",
            "poll.interval.ms": "0",
            "connection.backoff.ms": "10",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        errors = [error for one in JdbcSource.validate(self._config) for error in one.errors]
        assert not errors, errors
        connector = JdbcSource()
        connector.context = None  # type: ignore[assignment]
        connector.start(self._config)
        self.configs = connector.task_configs(9)
        connector.stop()
        self._tasks = []
        for config in self.configs:
            task = JdbcSourceTask()
            task.context = StoredOffsets(self.offsets)
            task.start(config)
            self._tasks.append(task)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._tasks:
            task.stop()
            task.close()

    def records(self, commits: int | None = None) -> list[SourceRecord]:
        """What the tasks have. Offsets of the first `commits` records, or of all, are kept."""
        found: list[SourceRecord] = []
        for task in self._tasks:
            for _ in range(3):
                found += task.poll() or ()
        for record in found[:commits]:
            self.offsets[key_text(record.source_partition)] = record.source_offset
        return found


def values(records: Sequence[SourceRecord], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(record.value[name] for name in names) for record in records]


def test_rows_with_larger_ids_are_read_once(database: Database) -> None:
    database.run("CREATE TABLE o (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))")
    database.run("INSERT INTO o VALUES (1, 'a'), (5, NULL)")
    with Source(database, mode="incrementing", incrementing_column_name="id") as source:
        first = source.records()
        assert values(first, "id", "name") == [(1, "a"), (5, None)]
        assert {record.topic for record in first} == {"t-o"}
        assert first[-1].source_offset == {"incrementing": 5}
        database.run("INSERT INTO o VALUES (3, 'late'), (6, 'b')")
        # A smaller id that comes later is never seen: as in Confluent's connector.
        assert values(source.records(), "id") == [(6,)]
    with Source(database, source.offsets, mode="incrementing", incrementing_column_name="id") as again:
        assert again.records() == []


@pytest.mark.parametrize("mode", ["incrementing", "timestamp"])
def test_a_connection_that_breaks_within_a_result_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    original = source_task._with_next
    breaks_after = iter((3, 2, 0))

    def broken(rows: Iterator[Any]) -> Iterator[Any]:
        most = next(breaks_after, None)
        for number, pair in enumerate(original(rows)):
            if number == most:
                raise sqlalchemy.exc.OperationalError("FETCH", {}, Exception("the connection is lost"))
            yield pair

    monkeypatch.setattr(source_task, "_with_next", broken)
    with running_database("sqlite", tmp_path) as database:
        database.run(
            "CREATE TABLE items (id INTEGER PRIMARY KEY NOT NULL, at TIMESTAMP NOT NULL)",
            *(f"INSERT INTO items VALUES ({one}, '2026-01-01 00:00:0{one // 2}')" for one in range(10)),
        )
        options = {"mode": mode, "incrementing_column_name": "id", "timestamp_column_name": "at"}
        del options["timestamp_column_name" if mode == "incrementing" else "incrementing_column_name"]
        with Source(database, **options) as source:
            ids = [one.value["id"] for _ in range(3) for one in source.records()]
    assert list(dict.fromkeys(ids)) == list(range(10))
    # Rows of one time come again; rows with larger ids do not.
    assert mode == "timestamp" or ids == list(range(10))


def test_the_numbered_column_is_found(database: Database) -> None:
    kind = {"sqlite": "INTEGER PRIMARY KEY", "postgresql": "SERIAL PRIMARY KEY"}.get(
        database.kind, "INTEGER PRIMARY KEY AUTO_INCREMENT"
    )
    database.run(f"CREATE TABLE o (n {kind}, name VARCHAR(9))", "INSERT INTO o (name) VALUES ('a'), ('b')")
    with Source(database, mode="incrementing", validate_non_null="false") as source:
        assert values(source.records(), "n", "name") == [(1, "a"), (2, "b")]


def test_equal_times_are_never_skipped(database: Database) -> None:
    at = "TIMESTAMP(6)" if database.kind != "sqlite" else "TIMESTAMP"
    database.run(f"CREATE TABLE o (name VARCHAR(9), changed {at} NOT NULL)")
    for name, second in (("a", 1), ("b", 2), ("c", 2), ("d", 2), ("e", 3)):
        database.run(f"INSERT INTO o VALUES ('{name}', '2026-01-01 00:00:0{second}.000000')")
    options = {"mode": "timestamp", "timestamp_column_name": "changed", "batch_max_rows": "2"}
    with Source(database, **options) as source:
        # The crash comes after three records: two of the three with one time.
        assert values(source.records(commits=3), "name") == [("a",), ("b",), ("c",), ("d",), ("e",)]
    with Source(database, source.offsets, **options) as again:
        assert values(again.records(), "name") == [("b",), ("c",), ("d",), ("e",)]
    with Source(database, source.offsets, **options) as end:
        assert end.records() == []
        database.run("INSERT INTO o VALUES ('later', '2037-01-01 00:00:00.000000')")
        assert end.records() == []  # not before its time


def test_changes_are_seen_by_time_and_id(database: Database) -> None:
    at = "TIMESTAMP(6)" if database.kind != "sqlite" else "TIMESTAMP"
    database.run(f"CREATE TABLE o (id INTEGER NOT NULL, name VARCHAR(9), changed {at} NOT NULL)")
    for number in (1, 2, 3):
        database.run(f"INSERT INTO o VALUES ({number}, 'n{number}', '2026-01-01 00:00:01.000000')")
    options = {
        "mode": "timestamp+incrementing",
        "timestamp_column_name": "changed",
        "incrementing_column_name": "id",
    }
    with Source(database, **options) as source:
        assert values(source.records(commits=2), "id") == [(1,), (2,), (3,)]
    with Source(database, source.offsets, **options) as again:
        assert values(again.records(), "id") == [(3,)]
        database.run("UPDATE o SET name = 'new', changed = '2026-01-01 00:00:02.500000' WHERE id = 1")
        (changed,) = again.records()
        assert (changed.value["name"], changed.value["changed"]) == (
            "new",
            datetime.datetime(2026, 1, 1, 0, 0, 2, 500_000, UTC),
        )
        assert changed.source_offset["incrementing"] == 1


def test_bulk_reads_everything_each_time(database: Database) -> None:
    database.run("CREATE TABLE o (id INTEGER)", "INSERT INTO o VALUES (1), (2)")
    with Source(database, mode="bulk", poll_interval_ms="1000000") as source:
        assert values(source.records(), "id") == [(1,), (2,)]
        assert source.records() == []
    with Source(database, source.offsets, mode="bulk") as again:
        assert len(again.records()) >= 2


def test_a_query_is_read(database: Database) -> None:
    database.run("CREATE TABLE o (id INTEGER, n INTEGER)", "INSERT INTO o VALUES (1, 10), (2, 20), (3, NULL)")
    query = "SELECT id, n * 2 AS twice, 'x:y' AS text FROM o WHERE id < 9"
    with Source(database, mode="incrementing", incrementing_column_name="id", query=query) as source:
        found = source.records()
        assert values(found, "id", "twice", "text") == [(1, 20, "x:y"), (2, 40, "x:y"), (3, None, "x:y")]
        assert {(record.topic, key_text(record.source_partition)) for record in found} == {
            ("t-", '{"query":"query"}')
        }
        database.run("INSERT INTO o VALUES (4, 1)")
        assert values(source.records(), "id") == [(4,)]


def test_tables_are_chosen_and_divided(database: Database) -> None:
    for name in ("a1", "a2", "b1", "b2", "c"):
        database.run(f"CREATE TABLE {name} (id INTEGER)", f"INSERT INTO {name} VALUES (1)")
    with Source(database, mode="bulk", table_include_list="a.,b.", table_exclude_list="b2") as source:
        assert sorted(record.topic for record in source.records())[:3] == ["t-a1"] * 3
        assert len(source.configs) == 3
    with Source(database, mode="bulk", table_whitelist="c") as source:
        assert {record.topic for record in source.records()} == {"t-c"}


def test_types_of_columns(database: Database) -> None:
    columns = {
        "sqlite": "i INTEGER, d DECIMAL(10, 2), f REAL, t TEXT, b BLOB, day DATE, flag BOOLEAN",
        "postgresql": "i BIGINT, d DECIMAL(10, 2), f DOUBLE PRECISION, t TEXT, b BYTEA, day DATE, flag BOOLEAN",
        "mariadb": "i BIGINT, d DECIMAL(10, 2), f DOUBLE, t TEXT, b BLOB, day DATE, flag BOOLEAN",
    }[database.kind]
    literal = "'\\x00ff'" if database.kind == "postgresql" else "x'00ff'"
    flag = "TRUE" if database.kind == "postgresql" else "1"
    database.run(
        f"CREATE TABLE o ({columns})",
        f"INSERT INTO o VALUES (9007199254740993, 12345678.90, 1.5, 'é', {literal}, '2026-02-28', {flag})",
        "INSERT INTO o (i) VALUES (NULL)",
    )
    with Source(database, mode="bulk", poll_interval_ms="1000000") as source:
        one, empty = source.records()
    found = {name: one.value[name] for name in one.value}
    assert found.pop("flag") == (True if database.kind != "mariadb" else 1)
    assert found == {
        "i": 9007199254740993,
        "d": decimal.Decimal("12345678.90"),
        "f": 1.5,
        "t": "é",
        "b": b"\x00\xff",
        "day": datetime.date(2026, 2, 28),
    }
    assert all(empty.value[name] is None for name in empty.value)
    assert one.value_schema is not None and one.value_schema.name == "o"


@pytest.mark.parametrize(
    ("statements", "options", "text"),
    [
        (["CREATE TABLE o (id INTEGER)"], {"incrementing_column_name": "id"}, "must be NOT NULL"),
        (
            ["CREATE TABLE o (id INTEGER NOT NULL)"],
            {"incrementing_column_name": "no"},
            "does not exist in the table",
        ),
        (
            ["CREATE TABLE o (id VARCHAR(9) NOT NULL)"],
            {"incrementing_column_name": "id"},
            "must hold whole numbers",
        ),
        (["CREATE TABLE o (id VARCHAR(9) NOT NULL)"], {}, "no column that the database numbers itself"),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    database: Database, statements: list[str], options: dict[str, str], text: str
) -> None:
    database.run(*statements)
    with Source(database, mode="incrementing", **options) as source, pytest.raises(ConnectError, match=text):
        source.records()


def test_a_database_that_is_away(tmp_path: Path) -> None:
    config = {
        "connection.url": "jdbc:postgresql://127.0.0.1:9/x?password=hunter2",
        "connection.attempts": "2",
        "connection.backoff.ms": "10",
        "mode": "bulk",
        "topic.prefix": "t",
    }
    connector = JdbcSource()
    with pytest.raises(ConnectError, match="cannot be used") as failed:
        connector.start(config)
    assert "hunter2" not in str(failed.value)
    task = JdbcSourceTask()
    task.context = StoredOffsets({})
    task.start({**config, "query": "SELECT 1"})
    assert task.poll() is None  # the first failure is tolerated
    with pytest.raises(ConnectError, match="cannot be read"):
        task.poll()
    task.close()


# Sinks


KEY = simple(INT32)
VALUE = struct({"id": simple(INT32), "name": simple(STRING, optional=True)}, name="v")


class Sink:
    def __init__(self, database: Database, **more: str) -> None:
        config = {
            "name": "sink",
            **database.options,
            "auto.create": "true",
            "retry.backoff.ms": "10",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        errors = [error for one in JdbcSink.validate(config) for error in one.errors]
        assert not errors, errors
        self.task = JdbcSinkTask()
        self.context = self.task.context = NotedSink()
        self.task.start(config)
        self._offset = 0

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self.task.stop()

    def record(self, value: Any, key: Any = None, schema: Schema = VALUE, topic: str = "o") -> SinkRecord:
        self._offset += 1
        return SinkRecord(
            topic,
            0,
            None if key is None else KEY,
            key,
            None if value is None else schema,
            None if value is None else Struct(schema, value),
            offset=self._offset - 1,
            original_topic=topic,
        )

    def put(self, *rows: Any, **more: Any) -> None:
        """Rows are dicts, or pairs of a key and a dict or None."""
        made = [
            self.record(row[1], row[0], **more) if isinstance(row, tuple) else self.record(row, **more)
            for row in rows
        ]
        self.task.put(made)


def test_rows_are_inserted_into_a_new_table(database: Database) -> None:
    with Sink(database) as sink:
        sink.put({"id": 1, "name": "a"}, {"id": 2, "name": None})
        sink.put({"id": 1, "name": "again"})
    assert sorted(database.rows("SELECT id, name FROM o"), key=str) == [(1, "a"), (1, "again"), (2, None)]


def test_rows_are_upserted_and_deleted_in_order(database: Database) -> None:
    options = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": "true"}
    with Sink(database, **options) as sink:
        sink.put((1, {"id": 1, "name": "a"}), (2, {"id": 2, "name": "b"}), (1, {"id": 1, "name": "c"}))
        sink.put((1, None), (2, None), (2, {"id": 2, "name": "back"}), (3, {"id": 3, "name": "x"}), (3, None))
    assert database.rows("SELECT id, name FROM o") == [(2, "back")]


def test_rows_are_updated(database: Database) -> None:
    database.run("CREATE TABLE o (id INTEGER PRIMARY KEY, name VARCHAR(9))", "INSERT INTO o VALUES (1, 'a')")
    with Sink(database, insert_mode="update", pk_mode="record_value", pk_fields="id") as sink:
        sink.put({"id": 1, "name": "b"}, {"id": 2, "name": "nobody"})
    assert database.rows("SELECT id, name FROM o") == [(1, "b")]


def test_the_place_of_a_record_is_a_key(database: Database) -> None:
    with Sink(database, insert_mode="upsert", pk_mode="kafka") as sink:
        records = [sink.record({"id": 7, "name": "a"}), sink.record({"id": 7, "name": "b"})]
        sink.task.put(records)
        sink.task.put(records)
    found = database.rows("SELECT __connect_topic, __connect_partition, __connect_offset, id, name FROM o")
    assert sorted(found, key=str) == [("o", 0, 0, 7, "a"), ("o", 0, 1, 7, "b")]


def test_columns_are_added(database: Database) -> None:
    wider = struct(
        {"id": simple(INT32), "name": simple(STRING, optional=True), "n": simple(INT64).with_default(5)},
        name="v",
    )
    with Sink(database, auto_evolve="true") as sink:
        sink.put({"id": 1, "name": "a"})
        sink.put({"id": 2, "name": "b", "n": 9}, {"id": 3, "name": "c", "n": None}, schema=wider)
        needed = struct({"id": simple(INT32), "must": simple(INT32)})
        with pytest.raises(ConnectError, match="not optional and does not have a default"):
            sink.put({"id": 4, "must": 1}, schema=needed)
    assert database.rows("SELECT id, name, n FROM o ORDER BY id") == [(1, "a", 5), (2, "b", 9), (3, "c", 5)]
    with Sink(database) as sink, pytest.raises(ConnectError, match="auto-evolution is disabled"):
        sink.put({"id": 4, "must": 1}, schema=struct({"id": simple(INT32), "must": simple(INT32)}))


def test_tables_that_are_missing(database: Database) -> None:
    with (
        Sink(database, auto_create="false") as sink,
        pytest.raises(ConnectError, match="auto-creation is disabled"),
    ):
        sink.put({"id": 1, "name": "a"})


def test_a_record_that_the_database_refuses_is_reported_alone(database: Database) -> None:
    database.run("CREATE TABLE o (id INTEGER PRIMARY KEY, name VARCHAR(20))")
    with Sink(database) as sink, pytest.raises(ConnectError, match="refuses the record"):
        sink.put({"id": 1, "name": "a"}, {"id": 1, "name": "twice"})
    assert database.rows("SELECT id, name FROM o") in ([], [(1, "a")])
    database.run("DELETE FROM o")
    with Sink(database) as sink:
        sink.context.tolerates = True
        sink.put({"id": 1, "name": "a"}, {"id": 1, "name": "twice"}, {"id": 2, "name": "b"})
        assert [offset for offset, _ in sink.context.reported] == [1]
        sink.task.put([sink.record(None)])
        assert "no value" in sink.context.reported[-1][1]
    assert database.rows("SELECT id, name FROM o ORDER BY id") == [(1, "a"), (2, "b")]


def test_offsets_are_written_with_the_rows(database: Database) -> None:
    with Sink(database, offsets_table="connect_offsets") as sink:
        sink.task.open([("o", 0), ("p", 1)])
        assert sink.context.sought == {}
        records = [sink.record({"id": number, "name": "a"}) for number in range(5)]
        sink.task.put(records)
    with Sink(database, offsets_table="connect_offsets") as again:
        again.task.open([("o", 0), ("p", 1)])
        assert again.context.sought == {("o", 0): 5}
        # A task that has lost its partition, and does not know it yet, writes nothing twice.
        with pytest.raises(ConnectError, match="another task has the partition"):
            again.task.put(records[2:])
    assert database.rows("SELECT COUNT(*) FROM o") == [(5,)]


def test_values_of_every_type_come_back(database: Database) -> None:
    schema = struct(
        {
            "i8": simple(INT8),
            "i64": simple(INT64),
            "f": simple(FLOAT64),
            "r": simple(FLOAT32),
            "flag": simple("boolean"),
            "text": simple(STRING),
            "raw": simple(BYTES),
            "n": decimal_of(3),
            "day": logical(DATE),
            "time": logical(TIME),
            "at": logical(TIMESTAMP),
        }
    )
    value = {
        "i8": -128,
        "i64": 2**63 - 1,
        "f": 0.1,
        "r": 1.5,
        "flag": True,
        "text": "a'b\"é:x",
        "raw": b"\x00\xff",
        "n": decimal.Decimal("-1234.567"),
        "day": datetime.date(2026, 2, 28),
        "time": datetime.time(23, 59, 59),
        "at": datetime.datetime(2026, 2, 28, 12, 0, 0, 123_000, UTC),
    }
    with Sink(database, db_timezone="Europe/Berlin") as sink:
        sink.put(value, schema=schema)
    with Source(database, mode="bulk", db_timezone="Europe/Berlin", poll_interval_ms="100000") as source:
        (record,) = source.records()
    found = {name: record.value[name] for name in record.value}
    if database.kind == "sqlite":
        assert found.pop("n") == pytest.approx(decimal.Decimal("-1234.567"))
        value.pop("n")
    if database.kind == "mariadb":
        assert found.pop("flag") == 1
        value.pop("flag")
    assert found == value


def test_a_sink_whose_database_is_away_tries_again() -> None:
    config = {
        "connection.url": "jdbc:postgresql://127.0.0.1:9/x",
        "max.retries": "1",
        "retry.backoff.ms": "1",
    }
    task = JdbcSinkTask()
    task.context = NotedSink()
    task.start(config)
    record = SinkRecord("o", 0, None, None, VALUE, Struct(VALUE, {"id": 1}), original_topic="o")
    with pytest.raises(RetriableError):
        task.put([record])
    with pytest.raises(ConnectError, match="did not take the records"):
        task.put([record])
    task.stop()


@pytest.mark.parametrize(
    ("kind", "config", "option", "text"),
    [
        (JdbcSource, {"mode": "timestamp"}, "timestamp.column.name", "must be set for the mode"),
        (JdbcSource, {"query": "SELECT 1", "table.whitelist": "a"}, "query", "may not be combined"),
        (JdbcSource, {"dialect.name": "x"}, "dialect.name", "is not supported"),
        (JdbcSource, {"mode": "all"}, "mode", "must be one of"),
        (JdbcSource, {"db.timezone": "Mars"}, "db.timezone", "Invalid time zone"),
        (JdbcSink, {"delete.enabled": "true"}, "delete.enabled", "must use 'record_key'"),
        (JdbcSink, {"insert.mode": "upsert"}, "pk.mode", "needs a primary key"),
        (JdbcSink, {"pk.mode": "kafka", "pk.fields": "a"}, "pk.fields", "three names"),
        (JdbcSink, {"quote.sql.identifiers": "never"}, "quote.sql.identifiers", "must be one of"),
    ],
)
def test_options_that_do_not_fit(kind: Any, config: dict[str, str], option: str, text: str) -> None:
    (found,) = [one for one in kind.validate(config) if one.name == option]
    assert any(text in error for error in found.errors), found.errors


# Both, with a worker


def test_a_table_is_copied_through_a_topic_over_killed_tasks(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE o (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))")
    database.run(*(f"INSERT INTO o VALUES ({number}, 'n{number}')" for number in range(50)))
    source = {
        "connector.class": "jdbc-source",
        **database.options,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": "o",
        "topic.prefix": "t-",
        "poll.interval.ms": "50",
        "batch.max.rows": "7",
    }
    sink = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        **database.options,
        "topics": "t-o",
        "table.name.format": "copy",
        "insert.mode": "upsert",
        "pk.mode": "record_value",
        "pk.fields": "id",
        "auto.create": "true",
        "consumer.override.session.timeout.ms": "6000",
    }
    more = {"value_converter": JSON, "offset_flush_interval_ms": "100"}
    with felice_broker() as broker, running_worker(broker.bootstrap, tmp_path, **more) as worker:
        broker.create_topic("t-o", partitions=1)
        for name, config in (("source", source), ("sink", sink)):
            status, answer = worker.ask("POST", "/connectors", {"name": name, "config": config})
            assert status == 201, answer
            worker.wait_states(name, "RUNNING", "RUNNING")
        for task in ("source-0", "sink-0"):
            worker.jobs.kill(task)
        database.run(*(f"INSERT INTO o VALUES ({number}, 'n{number}')" for number in range(50, 100)))

        def copied() -> bool:
            try:
                return database.rows("SELECT COUNT(*) FROM copy") == [(100,)]
            except Exception:
                return False

        wait_until(copied, describe=lambda: str(worker.ask("GET", "/connectors?expand=status")))
    assert database.rows("SELECT id, name FROM copy ORDER BY id") == [(one, f"n{one}") for one in range(100)]


JSON_SCHEMA = "io.confluent.connect.json.JsonSchemaConverter"
PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"


def test_tables_go_through_topics_with_a_registry(tmp_path: Path) -> None:
    converters = {"avro": AVRO, "json": JSON_SCHEMA, "proto": PROTOBUF}
    with (
        running_database("sqlite", tmp_path) as database,
        felice_broker(topics=[f"{name}-o" for name in converters]) as broker,
        RegistryProcess(broker.bootstrap, tmp_path / "registry.log") as registry,
    ):
        database.run("CREATE TABLE o (id INTEGER NOT NULL, name TEXT, price DECIMAL(10, 2))")
        database.run("INSERT INTO o VALUES (1, 'a', 1.5), (2, NULL, NULL)")
        with running_worker(broker.bootstrap, tmp_path) as worker:
            for name, converter in converters.items():
                shared = {
                    **database.options,
                    "value.converter": converter,
                    "value.converter.schema.registry.url": registry.url,
                }
                if name == "proto":
                    shared["value.converter.optional.for.nullables"] = "true"
                source = {"connector.class": "jdbc-source", "mode": "bulk", "poll.interval.ms": "1000000"}
                source |= {"topic.prefix": f"{name}-", "table.whitelist": "o"}
                sink = {"connector.class": "jdbc-sink", "topics": f"{name}-o", "auto.create": "true"}
                sink["table.name.format"] = f"copy_{name}"
                for way, config in (("source", source), ("sink", sink)):
                    body = {"name": f"{name}-{way}", "config": {**config, **shared}}
                    status, answer = worker.ask("POST", "/connectors", body)
                    assert status == 201, answer
            for name in converters:
                wait_until(
                    lambda name=name: (f"copy_{name}",) in database.rows("SELECT name FROM sqlite_master"),
                    describe=lambda: str(worker.ask("GET", "/connectors?expand=status")),
                )
                query = f"SELECT id, name, price FROM copy_{name} ORDER BY id"
                wait_until(lambda query=query: len(database.rows(query)) == 2)
                assert [
                    (one, text, price and float(str(price))) for one, text, price in database.rows(query)
                ] == [
                    (1, "a", 1.5),
                    (2, None, None),
                ]
        _read_with_confluents_clients(registry, broker)


def _read_with_confluents_clients(registry: RegistryProcess, broker: Broker) -> None:
    with SchemaRegistryClient({"url": registry.url}) as client:
        context = SerializationContext("avro-o", MessageField.VALUE)
        read = AvroDeserializer(client)
        assert [read(record.value, context) for record in broker.records("avro-o")] == [
            {"id": 1, "name": "a", "price": decimal.Decimal("1.50")},
            {"id": 2, "name": None, "price": None},
        ]
        context = SerializationContext("json-o", MessageField.VALUE)
        # Confluent's form of a decimal in BASE64 does not match its own schema, which it does not check.
        json_read = JSONDeserializer(None, schema_registry_client=client, conf={"validate": False})
        found = [json_read(record.value, context) for record in broker.records("json-o")]
        assert [(one["id"], one["name"]) for one in found] == [(1, "a"), (2, None)]
    # The registry returns the file as a text that people read; small numbers and scales stand in its options.
    text = registry.call("GET", "/subjects/proto-o-value/versions/latest")["schema"]
    assert "message o {" in text and "optional string name" in text
    assert "connect.decimal.scale" in text and ".confluent.type.Decimal price" in text
