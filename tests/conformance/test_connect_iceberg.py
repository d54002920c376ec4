"""The sink of Iceberg, with a catalog in SQLite and files of this machine."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from connect_contexts import NotedSink
from connect_worker import running_worker
from felice.client import Producer
from felice.pipelines.connect.connectors.iceberg.options import partition_fields
from felice.pipelines.connect.connectors.iceberg.sink import IcebergSink
from felice.pipelines.connect.connectors.iceberg.sink_task import IcebergSinkTask
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import (
    DATE,
    INT8,
    INT32,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    array,
    decimal_of,
    logical,
    mapping,
    simple,
    struct,
)
from felice.testing import felice_broker
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)
VALUE = struct({"id": simple(INT32), "name": simple(STRING, optional=True)}, name="v")


def catalog_options(directory: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"file://{directory}/lake",
    }


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return load_catalog("iceberg", **catalog_options(tmp_path))


Make = Callable[..., IcebergSinkTask]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(*, tolerates: bool = False, **more: str) -> IcebergSinkTask:
        config = config_of(tmp_path, **more)
        errors = [error for one in IcebergSink.validate(config) for error in one.errors]
        assert not errors, errors
        task = IcebergSinkTask()
        task.context = NotedSink(tolerates=tolerates)
        task.start(config)
        task.open([("t", 0)])
        return task

    return made


def config_of(directory: Path, **more: str) -> dict[str, str]:
    options = {f"iceberg.catalog.{name}": value for name, value in catalog_options(directory).items()}
    short = {
        "create": "auto-create-enabled",
        "evolve": "evolve-schema-enabled",
        "partition": "default-partition-by",
    }
    for name, value in more.items():
        options[f"iceberg.tables.{short[name]}" if name in short else name.replace("_", ".")] = value
    return {
        "name": "lake",
        "iceberg.tables": "db.items",
        "iceberg.control.commit.interval-ms": "0",
        "iceberg.tables.auto-create-enabled": "true",
        **options,
    }


def record(offset: int, value: Any = None, schema: Schema | None = VALUE, partition: int = 0) -> SinkRecord:
    if value is None:
        value = {"id": offset, "name": f"n{offset}"}
    made = Struct(schema, value) if schema is not None else value
    return SinkRecord(
        "t",
        partition,
        None,
        None,
        schema,
        made,
        0,
        offset=offset,
        original_topic="t",
        original_partition=partition,
    )


def rows(catalog: Catalog, name: str = "db.items") -> list[Mapping[str, Any]]:
    found = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda one: one.get("id") or 0)


def commit(task: IcebergSinkTask, offset: int) -> int | None:
    return task.pre_commit({("t", 0): offset}).get(("t", 0))


def test_rows_and_offsets_are_committed_together(catalog: Catalog, make: Make) -> None:
    task = make()
    task.put([record(one) for one in range(5)])
    assert commit(task, 5) == 5
    assert [one["id"] for one in rows(catalog)] == list(range(5))
    # What is read again after a failure is not added again.
    other = make()
    other.put([record(one) for one in range(3, 8)])
    commit(other, 8)
    assert [one["id"] for one in rows(catalog)] == list(range(8))
    # The first one is a task that was thought lost.
    task.put([record(one) for one in range(5, 8)])
    with pytest.raises(ConnectError, match="another task"):
        commit(task, 8)
    assert [one["id"] for one in rows(catalog)] == list(range(8))
    # Tasks of other partitions, and other connectors, do not stand in the way.
    task.put([record(0, partition=1)])
    other.put([record(8)])
    assert commit(other, 9) == 9
    task.pre_commit({("t", 1): 1})
    assert len(rows(catalog)) == 10
    named = make(name="other")
    named.put([record(0)])
    commit(named, 1)
    assert len(rows(catalog)) == 11


def test_offsets_wait_for_the_interval(catalog: Catalog, tmp_path: Path) -> None:
    task = IcebergSinkTask()
    context = task.context = NotedSink()
    task.start({**config_of(tmp_path), "iceberg.control.commit.interval-ms": "100000"})
    task.put([record(5), record(6)])
    assert commit(task, 7) == 5
    assert not catalog.namespace_exists("db") or not rows(catalog)
    task._committed_s = float("-inf")
    assert commit(task, 7) == 7 and len(rows(catalog)) == 2
    task.put([record(7), record(3, partition=1)])
    task.close([("t", 0)])
    # The rows of the partition that stays are read again.
    assert context.sought == {("t", 1): 3}


def test_types_and_partitions(catalog: Catalog, make: Make) -> None:
    inner = struct({"x": simple(INT8)})
    schema = struct(
        {
            "id": simple(INT32),
            "price": decimal_of(2),
            "day": logical(DATE),
            "time": logical(TIME),
            "at": logical(TIMESTAMP),
            "tags": array(simple(STRING, optional=True)),
            "counts": mapping(simple(STRING), simple(INT32)),
            "inner": inner,
        }
    )
    value = {
        "id": 1,
        "price": decimal.Decimal("1.25"),
        "day": datetime.date(2026, 1, 31),
        "time": datetime.time(1, 2, 3),
        "at": datetime.datetime(2026, 1, 31, 4, tzinfo=datetime.UTC),
        "tags": ["a", None],
        "counts": {"k": 1},
        "inner": Struct(inner, {"x": 7}),
    }
    task = make(partition="day(at), bucket(id, 4)")
    task.put([record(0, value, schema)])
    commit(task, 1)
    assert rows(catalog) == [{**value, "inner": {"x": 7}, "counts": [("k", 1)]}]
    table = catalog.load_table("db.items")
    assert [str(one.transform) for one in table.spec().fields] == ["day", "bucket[4]"]
    assert str(table.schema().find_type("price")) == "decimal(38, 2)"


def test_columns_follow_the_records_if_they_may(catalog: Catalog, make: Make) -> None:
    wide = struct({"id": simple(INT32), "more": simple(STRING)})
    make().put([record(0)])
    task = make(evolve="true")
    task.put([record(0), record(1, {"id": 1, "more": "m"}, wide), record(2)])
    commit(task, 3)
    assert rows(catalog) == [
        {"id": 0, "name": "n0", "more": None},
        {"id": 1, "name": None, "more": "m"},
        {"id": 2, "name": "n2", "more": None},
    ]
    fixed = make()
    fixed.put([record(3, {"id": 3, "else": 1}, struct({"id": simple(INT32), "else": simple(INT32)}))])
    commit(fixed, 4)
    assert rows(catalog)[3] == {"id": 3, "name": None, "more": None}


def test_values_without_a_schema_and_what_does_not_fit(catalog: Catalog, make: Make) -> None:
    task = make(tolerates=True)
    task.put(
        [
            record(0, {"id": 0, "tags": ["a"], "nothing": None}, None),
            record(1, {"id": "no number"}, None),
            record(2, "text", None),
            record(3, {"id": 3}, None),
        ]
    )
    assert commit(task, 4) == 4
    assert rows(catalog) == [{"id": 0, "tags": ["a"]}, {"id": 3, "tags": None}]
    assert isinstance(task.context, NotedSink)
    assert [offset for offset, _ in task.context.reported] == [2, 1]
    # Also where the table can hold none of the rows.
    task.put([record(4, {"id": "no number"}, None)])
    assert commit(task, 5) == 5 and len(rows(catalog)) == 2
    required = make(tolerates=True)
    catalog.drop_table("db.items")
    required.put([record(0)])
    required.put([record(1, {"name": "x"}, None)])
    commit(required, 2)
    assert [one["id"] for one in rows(catalog)] == [0]


def test_routes(catalog: Catalog, make: Make) -> None:
    schema = struct({"id": simple(INT32), "kind": simple(STRING)})
    sent = [
        record(one, {"id": one, "kind": kind}, schema) for one, kind in enumerate(("db.A", "db.b", "db.A"))
    ]
    task = make(**{"iceberg_tables_route-field": "kind", "iceberg_tables_dynamic-enabled": "true"})
    task.put(sent)
    commit(task, 3)
    assert [len(rows(catalog, one)) for one in ("db.a", "db.b")] == [2, 1]
    regex = make(
        **{
            "iceberg_tables_route-field": "kind",
            "iceberg_table_db_x_route-regex": r"db\.A",
            "iceberg_table_db_y_route-regex": r"db\..*",
        }
    )
    regex.put(sent)
    commit(regex, 3)
    assert [len(rows(catalog, one)) for one in ("db.x", "db.y")] == [2, 3]


def test_a_commit_that_meets_another_is_made_again(catalog: Catalog, make: Make) -> None:
    task = make()
    task.put([record(0)])
    commit(task, 1)
    catalog.load_table("db.items").append(catalog.load_table("db.items").scan().to_arrow())
    task.put([record(1)])
    commit(task, 2)
    assert [one["id"] for one in rows(catalog)] == [0, 0, 1]


def test_a_catalog_that_is_away(make: Make, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    away = make(iceberg_catalog_type="rest", iceberg_catalog_uri="http://127.0.0.1:9")
    with pytest.raises(RetriableError):
        away.put([record(0)])
    task = make()
    task.put([record(0)])
    from pyiceberg.table import Transaction

    original = Transaction.commit_transaction

    def lost(self: Any) -> Any:
        original(self)
        raise OSError("the answer was lost")

    monkeypatch.setattr(Transaction, "commit_transaction", lost)
    with pytest.raises(RetriableError, match="answer was lost"):
        commit(task, 1)
    monkeypatch.setattr(Transaction, "commit_transaction", original)
    # The framework reads the records again; the table has them.
    task.put([record(0), record(1)])
    assert commit(task, 2) == 2
    assert [one["id"] for one in rows(catalog)] == [0, 1]


def test_offsets_that_a_person_sets(catalog: Catalog, make: Make, tmp_path: Path) -> None:
    task = make()
    task.put([record(one) for one in range(3)])
    commit(task, 3)
    config = config_of(tmp_path)
    for offset, count in ((1, 5), (None, 8)):
        assert IcebergSink.alter_offsets(config, {("t", 0): offset, ("other", 1): None})
        again = make()
        again.put([record(one) for one in range(offset or 0, 3)])
        commit(again, 3)
        assert len(rows(catalog)) == count
    dynamic = {**config, "iceberg.tables.dynamic-enabled": "true"}
    with pytest.raises(ConnectError, match="change them there"):
        IcebergSink.alter_offsets(dynamic, {("t", 0): 1})


def test_a_missing_table(make: Make) -> None:
    with pytest.raises(ConnectError, match="auto-create-enabled is false"):
        make(create="false").put([record(0)])


def test_partitions() -> None:
    assert partition_fields("") == []
    assert partition_fields("days(at), bucket(id, 16) ,kind,Truncate(a.b,3)") == [
        ("at", "day", None),
        ("id", "bucket", 16),
        ("kind", "identity", None),
        ("a.b", "truncate", 3),
    ]
    for text in ("bucket(id)", "day(at, 3)", "nope(x)", "a b", "day(", ","):
        with pytest.raises(ValueError):
            partition_fields(text)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"iceberg.tables": ""}, "iceberg.tables is missing"),
        ({"iceberg.tables.dynamic-enabled": "true"}, "needs iceberg.tables.route-field"),
        ({"iceberg.table.db.a.route-regex": "("}, "cannot be read"),
        ({"iceberg.table.db.a.id-columns": "x"}, "is not there"),
        ({"iceberg.tables.default-partition-by": "nope(x)"}, "expected a column"),
        ({"iceberg.catalog.catalog-impl": "X"}, "class of Java"),
        ({"iceberg.tables.cdc-field": "x"}, "cdc-field"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, more: dict[str, str], text: str) -> None:
    checked = IcebergSink.validate({**config_of(tmp_path), **more})
    assert text in " ".join(error for one in checked for error in one.errors)


def test_each_record_is_there_once_whatever_is_killed(tmp_path: Path, catalog: Catalog) -> None:
    with felice_broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

        def produce(first: int, last: int) -> None:
            for number in range(first, last):
                producer.produce("t", json.dumps({"id": number}))
            producer.flush()

        produce(0, 50)
        with running_worker(broker.bootstrap, tmp_path, offset_flush_interval_ms="300") as worker:
            config = {
                "connector.class": "iceberg-sink",
                "topics": "t",
                **config_of(tmp_path),
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "consumer.override.session.timeout.ms": "6000",
                "consumer.override.heartbeat.interval.ms": "500",
            }
            status, body = worker.ask("PUT", "/connectors/lake/config", config)
            assert status == 201, body

            def ids() -> list[int]:
                return [one["id"] for one in rows(catalog)] if catalog.table_exists("db.items") else []

            wait_until(lambda: len(ids()) >= 50)
            produce(50, 100)
            worker.jobs.kill("lake-0")
            wait_until(lambda: len(ids()) >= 100)
            produce(100, 120)
            wait_until(lambda: len(ids()) >= 120)
            assert ids() == list(range(120))
