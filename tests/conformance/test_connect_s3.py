"""The sink of objects, against a store with S3's API."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyarrow import parquet

from connect_contexts import NotedSink
from connect_worker import running_worker
from felice.pipelines.connect.connectors.objects.options import (
    AVRO,
    BYTES,
    DAILY,
    FIELD,
    HOURLY,
    PARQUET,
    TIME,
)
from felice.pipelines.connect.connectors.objects.sink import S3Sink
from felice.pipelines.connect.connectors.objects.sink_task import S3SinkTask
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import (
    BYTES as BYTES_TYPE,
)
from felice.pipelines.connect.model.schema import (
    INT32,
    STRING,
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
from peers.objects import Bucket, running_store
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)
VALUE = struct({"id": simple(INT32), "name": simple(STRING, optional=True)}, name="v")
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def store() -> Iterator[Bucket]:
    with running_store() as started:
        yield started


_sinks: list[Sink] = []


@pytest.fixture(autouse=True)
def closed_at_end() -> Iterator[None]:
    yield
    while _sinks:
        sink = _sinks.pop()
        sink.task.close([(sink.topic, 0)])


class Sink:
    """A task that the test feeds."""

    def __init__(self, store: Bucket, topic: str, **more: str) -> None:
        config = {
            **store.options,
            "s3.region": "us-east-1",
            "flush.size": "3",
            "retry.backoff.ms": "1",
            "s3.part.retries": "0",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        errors = [error for one in S3Sink.validate(config) for error in one.errors]
        assert not errors, errors
        self.topic = topic
        self.task = S3SinkTask()
        self.context = self.task.context = NotedSink()
        self.task.start(config)
        self.task.open([(topic, 0)])
        _sinks.append(self)

    def record(self, offset: int, value: Any = None, schema: Schema = VALUE, ms: int = 0) -> SinkRecord:
        given = {"id": offset, "name": f"n{offset}"} if value is None else value
        made = Struct(schema, given) if schema.type == "struct" else given
        return SinkRecord(
            self.topic, 0, None, None, schema, made, ms, offset=offset, original_topic=self.topic
        )

    def put(self, *offsets: int, ms: int = 0) -> None:
        self.task.put([self.record(one, ms=ms) for one in offsets])

    def safe(self, offset: int) -> int | None:
        return self.task.pre_commit({(self.topic, 0): offset}).get((self.topic, 0))


def objects(store: Bucket, topic: str) -> dict[str, bytes]:
    return {name: data for name, data in store.objects().items() if f"/{topic}/" in name}


def ids(data: bytes) -> list[int]:
    return [json.loads(line)["id"] for line in data.splitlines()]


def test_names_cuts_and_offsets(store: Bucket) -> None:
    sink = Sink(store, "plain")
    sink.put(5, 6)
    assert objects(store, "plain") == {} and sink.safe(7) == 5
    sink.put(7, 8)
    assert sink.safe(9) == 8 and sink.context.commits == 1
    sink.put(9, 10)
    assert sink.safe(11) == 11
    found = {name: ids(data) for name, data in objects(store, "plain").items()}
    assert found == {
        "topics/plain/partition=0/plain+0+0000000005.json": [5, 6, 7],
        "topics/plain/partition=0/plain+0+0000000008.json": [8, 9, 10],
    }


@pytest.mark.parametrize("kind", ["json", "avro", "parquet"])
def test_a_repetition_writes_the_same_bytes(store: Bucket, kind: str) -> None:
    formats = {"avro": {"format_class": AVRO, "avro_codec": "deflate"}, "parquet": {"format_class": PARQUET}}
    more = formats.get(kind, {"s3_compression_type": "gzip"})
    topic, found = f"again-{kind}", []
    for _ in range(2):
        sink = Sink(store, topic, **more)
        sink.put(0, 1, 2, 3)
        sink.task.close([(topic, 0)])
        found.append(objects(store, topic))
    assert found[0] == found[1] and len(found[0]) == 1


def test_a_store_that_is_away(store: Bucket) -> None:
    away = Bucket("http://127.0.0.1:9")
    sink = Sink(away, "away")
    with pytest.raises(RetriableError):
        sink.put(0, 1, 2, 3)
    with pytest.raises(RetriableError):
        sink.put(0, 1, 2, 3)
    sink.task._store = Sink(store, "away").task._store  # it is back
    sink.put(0, 1, 2, 3)
    sink.put(4, 5)
    found = {name[-15:-5]: ids(data) for name, data in objects(store, "away").items()}
    assert found == {"0000000000": [0, 1, 2], "0000000003": [3, 4, 5]}


def test_folders_by_members(store: Bucket) -> None:
    sink = Sink(store, "fields", partitioner_class=FIELD, partition_field_name="name,id")
    sink.task.put([sink.record(one, {"id": one % 2, "name": "a/b"}) for one in range(3)])
    assert {name: len(ids(data)) for name, data in objects(store, "fields").items()} == {
        "topics/fields/name=a_b/id=0/fields+0+0000000000.json": 2,
        "topics/fields/name=a_b/id=1/fields+0+0000000001.json": 1,
    }


@pytest.mark.parametrize(
    ("partitioner", "more", "folder"),
    [
        (DAILY, {}, "year=2026/month=02/day=28"),
        (HOURLY, {"timezone": "Asia/Tokyo"}, "year=2026/month=03/day=01/hour=08"),
        (TIME, {"path_format": "YYYY-MM-dd'T'HH", "partition_duration_ms": "7200000"}, "2026-02-28T22"),
    ],
)
def test_folders_by_time(store: Bucket, partitioner: str, more: dict[str, str], folder: str) -> None:
    at = datetime.datetime(2026, 2, 28, 23, 30, tzinfo=datetime.UTC)
    topic = f"time-{partitioner.rpartition('.')[2]}"
    sink = Sink(store, topic, partitioner_class=partitioner, timestamp_extractor="Record", **more)
    sink.put(0, 1, 2, ms=int(at.timestamp() * 1000))
    assert list(objects(store, topic)) == [f"topics/{topic}/{folder}/{topic}+0+0000000000.json"]


def test_rotation_by_the_times_of_records(store: Bucket) -> None:
    sink = Sink(
        store,
        "rotate",
        partitioner_class=HOURLY,
        timestamp_extractor="Record",
        rotate_interval_ms=str(HOUR_MS),
        flush_size="100",
    )
    sink.put(0, 1, ms=0)
    sink.put(2, ms=HOUR_MS - 1)
    sink.put(3, ms=HOUR_MS)
    assert [ids(data) for data in objects(store, "rotate").values()] == [[0, 1, 2]]
    assert sink.safe(4) == 3


def test_rotation_by_the_clock(store: Bucket) -> None:
    sink = Sink(store, "clock", rotate_schedule_interval_ms="50", flush_size="100")
    sink.put(0, 1)
    wait_until(lambda: sink.safe(2) == 2)
    assert [ids(data) for data in objects(store, "clock").values()] == [[0, 1]]


def test_another_schema_begins_a_file(store: Bucket) -> None:
    other = struct({"id": simple(INT32)})
    sink = Sink(store, "schemas")
    sink.task.put([sink.record(0), sink.record(1, {"id": 1}, other), sink.record(2, {"id": 2}, other)])
    assert [ids(data) for data in objects(store, "schemas").values()] == [[0]]
    assert sink.safe(3) == 1


def test_types_in_avro_and_parquet(store: Bucket) -> None:
    schema = struct(
        {
            "id": simple(INT32),
            "n": decimal_of(2),
            "at": logical(TIMESTAMP),
            "tags": array(simple(STRING)),
            "by": mapping(simple(STRING), simple(INT32)),
            "in": struct({"x": simple(STRING, optional=True)}, name="inner"),
        },
        name="all",
    )
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, datetime.UTC)
    inner = schema.field("in")
    assert inner is not None
    value = {
        "id": 1,
        "n": decimal.Decimal("1.50"),
        "at": at,
        "tags": ["a"],
        "by": {"k": 1},
        "in": Struct(inner.schema, {"x": None}),
    }
    expected = {**value, "in": {"x": None}}
    for name in ("avro", "parquet"):
        sink = Sink(store, f"types-{name}", flush_size="1", format_class=AVRO if name == "avro" else PARQUET)
        sink.task.put([sink.record(0, value, schema)])
    ((avro_name, avro),) = objects(store, "types-avro").items()
    plain = next(iter(fastavro.reader(io.BytesIO(avro))))
    assert avro_name.endswith(".avro") and (plain["id"], plain["tags"], plain["by"]) == (1, ["a"], {"k": 1})
    ((parquet_name, data),) = objects(store, "types-parquet").items()
    assert parquet_name.endswith(".snappy.parquet")
    (row,) = parquet.read_table(io.BytesIO(data)).to_pylist()
    assert {**row, "by": dict(row["by"])} == expected


def test_bytes_and_values_that_do_not_fit(store: Bucket) -> None:
    sink = Sink(store, "raw", format_class=BYTES, flush_size="2", s3_compression_type="gzip")
    sink.context.tolerates = True
    sink.task.put(
        [sink.record(0, b"a", simple(BYTES_TYPE)), sink.record(1), sink.record(2, b"b", simple(BYTES_TYPE))]
    )
    # A value of another schema is reported, and ends the file before it.
    assert [offset for offset, _ in sink.context.reported] == [1]
    assert b"".join(gzip.decompress(one) for one in objects(store, "raw").values()) == b"a\n"
    strict = Sink(store, "strict", format_class=PARQUET)
    with pytest.raises(ConnectError, match="ParquetFormat needs"):
        strict.task.put([strict.record(0, "x", simple(STRING))])
    with pytest.raises(ConnectError, match="has no value"):
        strict.task.put([SinkRecord("strict", 0, None, None, None, None, original_topic="strict")])


@pytest.mark.parametrize(
    ("config", "option", "text"),
    [
        ({"partitioner.class": FIELD}, "partition.field.name", "needs partition.field.name"),
        ({"partitioner.class": TIME}, "path.format", "needs path.format"),
        ({"rotate.interval.ms": "5"}, "rotate.interval.ms", "needs a partitioner by time"),
        ({"rotate.interval.ms": " 5 "}, "rotate.interval.ms", "needs a partitioner by time"),
        ({"rotate.interval.ms": "--5"}, "rotate.interval.ms", "Not a number"),
        ({"store.kafka.keys": "true"}, "store.kafka.keys", "is not supported"),
        ({"schema.compatibility": "FULL"}, "schema.compatibility", "must be one of"),
        ({"flush.size": "0"}, "flush.size", "at least 1"),
    ],
)
def test_options_that_do_not_fit(config: dict[str, str], option: str, text: str) -> None:
    (found,) = [one for one in S3Sink.validate(config) if one.name == option]
    assert any(text in error for error in found.errors), found.errors


def test_each_record_is_there_once_over_killed_tasks(store: Bucket, tmp_path: Path) -> None:
    config = {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        **store.options,
        "s3.region": "us-east-1",
        "topics": "lines",
        "flush.size": "10",
        "format.class": BYTES,
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "consumer.override.session.timeout.ms": "6000",
    }
    more = {"offset_flush_interval_ms": "200"}
    with felice_broker() as broker, running_worker(broker.bootstrap, tmp_path, **more) as worker:
        broker.create_topic("lines", partitions=1)
        assert worker.ask("POST", "/connectors", {"name": "s3", "config": config})[0] == 201
        worker.wait_states("s3", "RUNNING", "RUNNING")
        for number in range(100):
            broker.produce("lines", str(number))
            if number in (33, 66):
                wait_until(lambda: objects(store, "lines"))
                worker.jobs.kill("s3-0")
                wait_until(lambda: worker.states("s3") != ["RUNNING", "RUNNING"])
                worker.wait_states("s3", "RUNNING", "RUNNING")
        wait_until(
            lambda: len(objects(store, "lines")) == 10,
            describe=lambda: str((worker.states("s3"), list(objects(store, "lines")))),
        )
    lines = [line for data in objects(store, "lines").values() for line in data.decode().splitlines()]
    assert lines == [str(number) for number in range(100)]
