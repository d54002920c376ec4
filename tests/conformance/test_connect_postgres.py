"""The source of changes, against PostgreSQL: rows, changes, types, and what is left after kills."""

from __future__ import annotations

import decimal
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connect_contexts import StoredOffsets
from connect_worker import running_group
from felice.client import Consumer
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.connectors.postgres.source import PostgresSource
from felice.pipelines.connect.connectors.postgres.source_task import PostgresSourceTask
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.model.schema import Struct
from felice.pipelines.connect.storage.offset_records import key_text
from felice.testing import felice_broker
from peers.databases import Database, missing, running_database
from waiting import wait_until

pytestmark = pytest.mark.timeout(180)
JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    why = missing("postgresql")
    if why is not None:
        pytest.skip(why)
    with running_database("postgresql", tmp_path_factory.mktemp("database")) as started:
        yield started


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    yield server
    for (name,) in server.rows("SELECT slot_name FROM pg_replication_slots"):
        server.run(
            f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{name}' AND active"
        )
        wait_until(lambda name=name: _drops(server, name))  # type: ignore[misc]
    server.run("DROP PUBLICATION IF EXISTS dbz_publication")
    server.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")


def _drops(server: Database, slot: str) -> bool:
    if server.rows(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"):
        return False
    server.run(f"SELECT pg_drop_replication_slot('{slot}')")
    return True


class Source:
    """A task that the test polls."""

    def __init__(self, database: Database, offsets: dict[str, Place] | None = None, **more: str) -> None:
        self.offsets: dict[str, Place] = {} if offsets is None else offsets
        config = config_of(database, **more)
        errors = [error for one in PostgresSource.validate(config) for error in one.errors]
        assert not errors, errors
        self.task = PostgresSourceTask()
        self.task.context = StoredOffsets(self.offsets)
        self.task.start(config)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.task.stop()
        self.task.close()

    def commit(self, record: SourceRecord) -> None:
        self.offsets[key_text(record.source_partition)] = record.source_offset
        self.task.offsets_committed([(record.source_partition, record.source_offset)])

    def records(self, count: int, *, commits: bool = True) -> list[SourceRecord]:
        """The next records, at least so many."""
        found: list[SourceRecord] = []
        give_up_at = time.monotonic() + 30
        while len(found) < count:
            assert time.monotonic() < give_up_at, (len(found), [brief(one) for one in found][-5:])
            found += self.task.poll() or ()
        if commits:
            self.commit(found[-1])
        return found

    def briefly(self, count: int) -> list[Any]:
        return [brief(one) for one in self.records(count)]

    def rest(self) -> list[SourceRecord]:
        """What comes in two polls."""
        return [*(self.task.poll() or ()), *(self.task.poll() or ())]


def config_of(database: Database, **more: str) -> dict[str, str]:
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "felice",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "poll.interval.ms": "100",
        "slot.name": "felice",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def plain(value: Any) -> Any:
    return {name: plain(one) for name, one in value.items()} if isinstance(value, Struct) else value


def brief(record: SourceRecord) -> Any:
    """The operation, the key, before and after."""
    if record.value is None:
        return ("tombstone", *plain(record.key).values())
    if "op" not in record.value:
        return record.topic
    value = plain(record.value)
    before, after = value["before"], value["after"]
    return value["op"], *(None if one is None else tuple(one.values()) for one in (before, after))


def test_rows_then_changes(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'a'), (2, 'b')"
    )
    with Source(database) as source:
        records = source.records(2)
        assert [brief(one) for one in records] == [("r", None, (1, "a")), ("r", None, (2, "b"))]
        assert [one.value["source"]["snapshot"] for one in records] == ["first", "last"]
        assert {one.topic for one in records} == {"shop.public.items"}
        assert records[0].key_schema is not None and records[0].key_schema.name == "shop.public.items.Key"
        assert plain(records[0].key) == {"id": 1}
        assert source.rest() == []
        database.run(
            "INSERT INTO items VALUES (3, 'c')",
            "UPDATE items SET name = 'B' WHERE id = 2",
            "DELETE FROM items WHERE id = 1",
            "UPDATE items SET id = 9 WHERE id = 3",
        )
        changes = source.records(7)
        assert [brief(one) for one in changes] == [
            ("c", None, (3, "c")),
            ("u", None, (2, "B")),
            ("d", (1, None), None),
            ("tombstone", 1),
            ("d", (3, None), None),
            ("tombstone", 3),
            ("c", None, (9, "c")),
        ]
        first = changes[0].value["source"]
        assert (first["schema"], first["table"], first["db"], first["name"]) == (
            "public",
            "items",
            "postgres",
            "shop",
        )
        assert first["snapshot"] == "false" and abs(first["ts_ms"] - time.time() * 1000) < 60_000
        assert [(one.name, plain(one.value)) for one in changes[6].headers] == [
            ("__debezium.oldkey", {"id": 3})
        ]
        assert [(one.name, plain(one.value)) for one in changes[4].headers] == [
            ("__debezium.newkey", {"id": 9})
        ]


def test_rows_before_and_after_with_a_full_identity(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "ALTER TABLE items ALTER COLUMN name SET STORAGE EXTERNAL",
        f"INSERT INTO items VALUES (1, '{'x' * 9000}')",
    )
    with Source(database, tombstones_on_delete="false", snapshot_mode="no_data") as source:
        assert source.rest() == []
        database.run("ALTER TABLE items ADD extra int", "UPDATE items SET extra = 5", "DELETE FROM items")
        long = "x" * 9000
        assert source.briefly(2) == [
            ("u", (1, long, None), (1, long, 5)),
            ("d", (1, long, 5), None),
        ]


def test_a_large_value_that_did_not_change_is_named(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, name text, n int)",
        "ALTER TABLE items ALTER COLUMN name SET STORAGE EXTERNAL",
        f"INSERT INTO items VALUES (1, '{'x' * 9000}', 0)",
    )
    with Source(database, snapshot_mode="no_data") as source:
        source.rest()
        database.run("UPDATE items SET n = 1")
        assert source.briefly(1) == [("u", None, (1, "__debezium_unavailable_value", 1))]


def test_types(database: Database) -> None:
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE DOMAIN price AS numeric(6, 2)",
        "CREATE TABLE items (id int PRIMARY KEY, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric(8, 3), "
        "v numeric, p price, m money, t text, c char(3), y bytea, d date, ti time, ti3 time(3), tz timetz, "
        "ts timestamp, ts3 timestamp(3), tsz timestamptz, iv interval, u uuid, j jsonb, e mood, a int[], ta text[], "
        "b1 bit(1), b10 bit(10), ip inet, r int4range)",
    )
    row = (
        "(1, true, -2, 9000000000, 1.5, 'NaN', 12.340, 1234.5678, 9.90, '$-1,234.50', E'a\\n\"', 'ab', '\\x00ff', "
        "'2026-01-31', '10:00:00.123456', '10:00:00.123', '10:00:00+02', '2026-01-31 10:00:00.5', "
        "'2026-01-31 10:00:00.123', '2026-01-31 10:00:00+02', '1 mon 2 days 03:04:05.5', "
        "'00000000-0000-0000-0000-000000000001', '{\"k\": 1}', 'glad', '{1,NULL,3}', "
        '\'{"a,b","NULL",NULL,"q\\""}\', '
        "B'1', B'1000000001', '10.0.0.1', '[1,5)')"
    )
    day = 20_484
    expected = {
        "id": 1,
        "b": True,
        "i2": -2,
        "i8": 9_000_000_000,
        "f4": 1.5,
        "n": decimal.Decimal("12.340"),
        "v": {"scale": 4, "value": (12_345_678).to_bytes(4, "big")},
        "p": decimal.Decimal("9.90"),
        "m": decimal.Decimal("-1234.50"),
        "t": 'a\n"',
        "c": "ab ",
        "y": b"\0\xff",
        "d": day,
        "ti": 36_000_123_456,
        "ti3": 36_000_123,
        "tz": "10:00:00+02:00",
        "ts": day * 86_400_000_000 + 36_000_500_000,
        "ts3": day * 86_400_000 + 36_000_123,
        "tsz": "2026-01-31T08:00:00Z",
        "iv": int((365.25 / 12 + 2) * 86_400_000_000) + 11_045_500_000,
        "u": "00000000-0000-0000-0000-000000000001",
        "j": '{"k": 1}',
        "e": "glad",
        "a": [1, None, 3],
        "ta": ["a,b", "NULL", None, 'q"'],
        "b1": True,
        "b10": b"\x01\x02",
        "ip": "10.0.0.1",
        "r": "[1,5)",
    }
    database.run(f"INSERT INTO items VALUES {row}")
    with Source(database) as source:
        read = plain(source.records(1)[0].value["after"])
        database.run("DELETE FROM items", f"INSERT INTO items VALUES {row}")
        logged = plain(source.records(3)[-1].value["after"])
        for found in (read, logged):
            assert str(found.pop("f8")) == "nan"
            assert found == expected
    with Source(
        database,
        snapshot_mode="always",
        slot_name="other",
        time_precision_mode="connect",
        decimal_handling_mode="string",
    ) as source:
        found = plain(source.records(1)[0].value["after"])
        assert str(found["d"]) == "2026-01-31" and found["v"] == "1234.5678"
        assert (
            str(found["ts"]) == "2026-01-31 10:00:00.500000+00:00" and str(found["ti"]) == "10:00:00.123456"
        )


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("date", "0044-03-15 BC", None),
        ("date", "infinity", 2**31 - 1),
        ("date", "12026-01-01", None),
        ("date", "1600-02-29", None),
        ("timestamp", "-infinity", -9_223_372_036_832_400_000),
        ("timestamptz", "infinity", "infinity"),
        ("interval", "-1 year -2 hours", -int(12 * 365.25 / 12 * 86_400_000_000) - 7_200_000_000),
    ],
)
def test_odd_values(database: Database, kind: str, text: str, value: Any) -> None:
    if value is None:
        value = database.rows(f"SELECT date '{text}' - date '1970-01-01'")[0][0]
    database.run(
        f"CREATE TABLE items (id int PRIMARY KEY, v {kind})", f"INSERT INTO items VALUES (1, '{text}')"
    )
    with Source(database) as source:
        assert source.briefly(1) == [("r", None, (1, value))]


def test_a_value_without_a_form_fails_the_task_and_says_what_to_do(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY, n numeric)", "INSERT INTO items VALUES (1, 'NaN')")
    with (
        Source(database) as source,
        pytest.raises(ConnectError, match=r"column n of public\.items.*decimal\.handling\.mode"),
    ):
        source.task.poll()


def test_choice_of_tables_columns_and_operations(database: Database) -> None:
    database.run(
        "CREATE SCHEMA IF NOT EXISTS other",
        "CREATE TABLE a (id int PRIMARY KEY, secret text, name text)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "DROP TABLE IF EXISTS other.a",
        "CREATE TABLE other.a (id int)",
        "INSERT INTO a VALUES (1, 's', 'n')",
        "INSERT INTO b VALUES (1)",
        "INSERT INTO other.a VALUES (1)",
    )
    more = {
        "table_include_list": r"public\.a,other\..*",
        "column_exclude_list": r"public\.a\.secret",
        "message_key_columns": "public.a:name",
        "skipped_operations": "u",
        "publication_autocreate_mode": "filtered",
    }
    with Source(database, **more) as source:
        records = source.records(2)
        assert [(one.topic, brief(one)) for one in records] == [
            ("shop.other.a", ("r", None, (1,))),
            ("shop.public.a", ("r", None, (1, "n"))),
        ]
        assert records[0].key is None and plain(records[1].key) == {"name": "n"}
        source.rest()
        database.run(
            "UPDATE a SET name = 'm'",
            "INSERT INTO b VALUES (2)",
            "TRUNCATE a",
            "INSERT INTO a VALUES (2, '', 'k')",
        )
        assert source.briefly(2) == [("t", None, None), ("c", None, (2, "k"))]
        listed = database.rows("SELECT schemaname, tablename FROM pg_publication_tables ORDER BY 1, 2")
        assert listed == [("other", "a"), ("public", "a")]
    database.run("DROP SCHEMA other CASCADE")


def test_a_new_start_goes_on_within_a_transaction(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    offsets: dict[str, Place] = {}
    with Source(database, offsets, snapshot_mode="no_data") as source:
        source.rest()
        database.run("INSERT INTO items SELECT generate_series(1, 5)", "INSERT INTO items VALUES (6), (7)")
        database.run("INSERT INTO items VALUES (8)")
        ids = [one.value["after"]["id"] for one in source.records(8, commits=False)]
        assert ids == list(range(1, 9))
    # Each place between two records is a place to go on.
    with Source(database, {}, snapshot_mode="no_data", max_batch_size="1") as source:
        records = [*source.records(8, commits=False)]
    for number, record in enumerate(records):
        kept = {key_text(record.source_partition): record.source_offset}
        with Source(database, kept, snapshot_mode="no_data") as source:
            rest = len(records) - number - 1
            found = source.records(rest, commits=False) if rest else source.rest()
            assert [one.value["after"]["id"] for one in found] == list(range(number + 2, 9))


def test_rows_and_log_meet_without_a_gap_and_without_a_repetition(database: Database) -> None:
    """Transactions that are open while the rows are read, and changes between the slot and the rows."""
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (0)")
    offsets: dict[str, Place] = {}
    with Source(database, offsets, snapshot_mode="no_data") as source:
        source.rest()  # makes the slot
    database.run("INSERT INTO items VALUES (1)")  # in the log and in the rows
    open_one = database.engine.connect()
    transaction = open_one.begin()
    open_one.exec_driver_sql(
        "INSERT INTO items VALUES (2)"
    )  # in the log alone, with an older number than the next
    database.run("INSERT INTO items VALUES (3)")
    with Source(database, {}) as source:
        rows = source.records(3)
        transaction.commit()
        open_one.close()
        database.run("INSERT INTO items VALUES (4)")
        changes = source.records(2, commits=False)
        assert source.rest() == []
    assert sorted(one.value["after"]["id"] for one in rows) == [0, 1, 3]
    assert [one.value["after"]["id"] for one in changes] == [2, 4]
    # The same from the offset of the last row.
    kept = {key_text(rows[-1].source_partition): rows[-1].source_offset}
    with Source(database, kept) as source:
        assert [one.value["after"]["id"] for one in source.records(2)] == [2, 4]


def test_rows_that_were_not_read_to_their_end_are_read_again(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items SELECT generate_series(1, 9)")
    offsets: dict[str, Place] = {}
    with Source(database, offsets, max_batch_size="4") as source:
        source.records(4)
    database.run("DELETE FROM items WHERE id < 8", "INSERT INTO items VALUES (10)")
    with Source(database, offsets) as source:
        assert sorted(one.value["after"]["id"] for one in source.records(3)) == [8, 9, 10]
        assert source.rest() == []


def test_rows_alone(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    with Source(database, snapshot_mode="initial_only") as source:
        assert source.briefly(1) == [("r", None, (1,))]
        database.run("INSERT INTO items VALUES (2)")
        assert source.rest() == []
        assert database.rows("SELECT active FROM pg_replication_slots") == [(False,)]


def test_the_log_is_freed_only_up_to_a_committed_offset(database: Database) -> None:
    def confirmed() -> Any:
        return database.rows("SELECT confirmed_flush_lsn FROM pg_replication_slots")[0][0]

    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    with Source(database, snapshot_mode="no_data", heartbeat_interval_ms="200") as source:
        source.rest()
        before = confirmed()
        for number in (1, 2):
            database.run(f"INSERT INTO items VALUES ({number})")
        found = source.records(2, commits=False)
        time.sleep(0.3)
        source.rest()
        assert confirmed() == before
        source.commit(found[-1])
        wait_until(lambda: (source.rest(), confirmed() != before)[1])
        # Other tables fill the log; heartbeats let it go.
        between = confirmed()
        database.run("CREATE TABLE x ()")

        def beats() -> bool:
            for one in source.rest():
                assert brief(one) == "__debezium-heartbeat.shop"
                source.commit(one)
            return bool(confirmed() != between)

        wait_until(beats)


def test_lost_changes_are_reported(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    offsets: dict[str, Place] = {}
    with Source(database, offsets) as source:
        source.records(1)
    database.run("SELECT pg_drop_replication_slot('felice')")
    with Source(database, offsets) as source, pytest.raises(ConnectError, match="may be lost.*is missing"):
        source.task.poll()
    database.run("INSERT INTO items VALUES (2)")
    database.run("SELECT pg_create_logical_replication_slot('felice', 'pgoutput')")
    with Source(database, offsets) as source, pytest.raises(ConnectError, match="may be lost.*begins at"):
        source.task.poll()


def test_a_server_that_is_killed_comes_back(database: Database) -> None:
    assert database.server is not None
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    with Source(database, snapshot_mode="no_data") as source:
        source.rest()
        database.run("INSERT INTO items SELECT generate_series(1, 5)")
        assert len(source.records(5, commits=False)) == 5
        database.server.kill()
        with pytest.raises(RetriableError):
            for _ in range(20):
                source.task.poll()
        database.server.start()
        database.run("INSERT INTO items VALUES (6)")
        found: list[SourceRecord] = []
        give_up_at = time.monotonic() + 60
        while not found:
            assert time.monotonic() < give_up_at
            try:
                found += source.task.poll() or ()
            except RetriableError:
                time.sleep(0.1)
        assert [one.value["after"]["id"] for one in found] == [6]


def test_a_connection_that_breaks_within_a_batch_loses_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg2

    from felice.pipelines.connect.connectors.postgres.server import Stream

    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    original = Stream.read
    calls = 0

    def breaks(self: Stream, wait_s: float) -> Any:
        nonlocal calls
        calls += 1
        if calls % 5 == 0:
            raise psycopg2.OperationalError("broken")
        return original(self, wait_s)

    with Source(database, snapshot_mode="no_data") as source:
        source.rest()
        for number in range(6):
            database.run(f"INSERT INTO items VALUES ({2 * number}), ({2 * number + 1})")
        monkeypatch.setattr(Stream, "read", breaks)
        ids: list[int] = []
        give_up_at = time.monotonic() + 30
        while len(ids) < 12:
            assert time.monotonic() < give_up_at, ids
            try:
                ids += [one.value["after"]["id"] for one in source.task.poll() or ()]
            except RetriableError:
                monkeypatch.setattr(Stream, "read", original if calls > 20 else breaks)
    assert ids == list(range(12))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"database_user": "nobody"}, "nobody"),
        ({"database_dbname": "none"}, "none"),
        ({"publication_autocreate_mode": "disabled"}, r"publication\.autocreate\.mode"),
        ({"publication_autocreate_mode": "filtered", "table_include_list": "x"}, "no table fits"),
    ],
)
def test_what_cannot_work_fails_the_task(database: Database, more: dict[str, str], text: str) -> None:
    with Source(database, **more) as source, pytest.raises(ConnectError, match=text) as found:
        source.task.poll()
    assert not isinstance(found.value, RetriableError)


def test_options_that_do_not_fit(server: Database) -> None:
    def errors(**more: str) -> str:
        checked = PostgresSource.validate(config_of(server, **more))
        return " ".join(error for one in checked for error in one.errors)

    assert "small letters" in errors(slot_name="My-Slot")
    assert "regular expression" in errors(table_include_list="(")
    assert "exclude each other" in errors(table_include_list="a", table_exclude_list="b")
    assert "expected schema.table" in errors(message_key_columns="a")
    assert "signal.data.collection" in errors(signal_data_collection="a")


def test_each_change_is_there_once_whatever_is_killed(database: Database, tmp_path: Path) -> None:
    """Exactly once through kill -9 of the task and of the server, while rows are written."""
    assert database.server is not None
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items SELECT generate_series(1, 200)"
    )
    with (
        felice_broker() as broker,
        running_group(broker.bootstrap, 1, exactly_once_source_support="enabled") as [worker],
    ):
        config = {
            "connector.class": "postgres-cdc",
            **config_of(database),
            "max.batch.size": "20",
            "key.converter": JSON,
            "key.converter.schemas.enable": "false",
            "value.converter": JSON,
            "value.converter.schemas.enable": "false",
        }
        status, body = worker.ask("PUT", "/connectors/shop/config", config)
        assert status == 201, body
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(["shop.public.items"])
        ids: list[int] = []

        def has(count: int) -> Callable[[], bool]:
            def check() -> bool:
                for one in consumer.consume(1000, 0.2):
                    if one.error():  # the topic is not there yet
                        continue
                    ids.append(json.loads(one.value() or b"")["after"]["id"])
                return len(ids) >= count

            return check

        wait_until(has(100))
        last = 200
        for turn in range(4):
            for _ in range(5):
                database.run(f"INSERT INTO items SELECT generate_series({last + 1}, {last + 10})")
                last += 10
            has(last)()
            if turn == 1:
                database.server.kill()
                database.server.start()
            else:
                worker.jobs.kill("shop-0")
        wait_until(has(last))
        has(last + 1)()
        consumer.close()
    assert sorted(ids) == list(range(1, last + 1))
