"""The sink of HDFS, against HDFS, and with a task that ends at each of its steps."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from connect_contexts import NotedSink
from connect_worker import running_worker
from felice.client import Producer
from felice.pipelines.connect.connectors.hdfs.options import JSON, PARQUET, STRING
from felice.pipelines.connect.connectors.hdfs.sink import HdfsSink
from felice.pipelines.connect.connectors.hdfs.sink_task import HdfsSinkTask
from felice.pipelines.connect.connectors.hdfs.storage import Storage
from felice.pipelines.connect.connectors.objects.files_task import FilesSinkTask
from felice.pipelines.connect.connectors.objects.options import FIELD
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import INT32, Struct, simple, struct
from felice.pipelines.connect.model.schema import STRING as TEXT
from felice.testing import felice_broker
from peers.hdfs import running_hdfs
from waiting import wait_until

pytestmark = pytest.mark.timeout(180)
VALUE = struct({"id": simple(INT32), "kind": simple(TEXT)}, name="v")
TOPIC = "orders"


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as started:
        yield started.url


_sinks: list[Sink] = []


@pytest.fixture(autouse=True)
def closed_at_end() -> Iterator[None]:
    yield
    while _sinks:
        FilesSinkTask.close(_sinks.pop().task, [(TOPIC, 0)])


class Sink:
    """A task that the test feeds. It reads at the offset that the task sought, as the framework does."""

    def __init__(self, url: str, **more: str) -> None:
        self.config = {
            "store.url": url,
            "flush.size": "4",
            "format.class": JSON,
            "partitioner.class": FIELD,
            "partition.field.name": "kind",
            "retry.backoff.ms": "1",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        errors = [error for one in HdfsSink.validate(self.config) for error in one.errors]
        assert not errors, errors
        self.task = HdfsSinkTask()
        self.context = self.task.context = NotedSink()
        self.task.start(self.config)
        _sinks.append(self)

    def open(self) -> int:
        self.task.open([(TOPIC, 0)])
        return self.context.sought.get((TOPIC, 0), 0)

    def put(self, *offsets: int) -> None:
        self.task.put([record(one) for one in offsets])

    @property
    def storage(self) -> Storage:
        return self.task._storage

    def files(self) -> dict[str, list[int]]:
        """The ids of all files with names, by their paths."""
        found = {}
        for folder in self.storage.names(f"topics/{TOPIC}"):
            for name in self.storage.names(f"topics/{TOPIC}/{folder}"):
                data = self.storage.read(f"topics/{TOPIC}/{folder}/{name}")
                found[f"{folder}/{name}"] = [json.loads(line)["id"] for line in data.splitlines()]
        return found


def record(offset: int) -> SinkRecord:
    value = Struct(VALUE, {"id": offset, "kind": "even" if offset % 2 == 0 else "odd"})
    return SinkRecord(TOPIC, 0, None, None, VALUE, value, 0, offset=offset, original_topic=TOPIC)


EXPECTED = {
    "kind=even/orders+0+0000000000+0000000002.json": [0, 2],
    "kind=odd/orders+0+0000000001+0000000003.json": [1, 3],
    "kind=even/orders+0+0000000004+0000000006.json": [4, 6],
    "kind=odd/orders+0+0000000005+0000000007.json": [5, 7],
}


def test_names_and_where_the_next_task_reads_on(hdfs: str) -> None:
    first = Sink(f"{hdfs}/a")
    assert first.open() == 0
    first.put(*range(10))
    assert first.files() == EXPECTED
    assert first.task.pre_commit({(TOPIC, 0): 10}) == {(TOPIC, 0): 8}
    second = Sink(f"{hdfs}/a")
    assert second.open() == 8
    # The first one is a task that was thought lost: it commits no more.
    with pytest.raises(ConnectError, match="another task"):
        first.put(10, 11)
    assert second.files() == EXPECTED
    assert HdfsSink.alter_offsets(second.config, {(TOPIC, 0): 4})
    assert Sink(f"{hdfs}/a").open() == 4
    assert HdfsSink.alter_offsets(second.config, {(TOPIC, 0): None})
    assert Sink(f"{hdfs}/a").open() == 0


def test_files_of_another_sink_are_continued(hdfs: str) -> None:
    sink = Sink(f"{hdfs}/b")
    for name in (
        "orders+0+0000000000+0000000041.avro",
        "orders+1+0000000000+0000000099.avro",
        "other+0+7+8.avro",
    ):
        sink.storage.write(f"topics/{TOPIC}/year=2026/{name}", b"")
    assert sink.open() == 42


@pytest.mark.parametrize("kind", ["avro", "parquet", "text"])
def test_formats(hdfs: str, kind: str) -> None:
    more = {"parquet": {"format_class": PARQUET}, "text": {"format_class": STRING}, "avro": {}}[kind]
    sink = Sink(f"{hdfs}/{kind}", flush_size="2")
    config = {name: value for name, value in sink.config.items() if name != "format.class"}
    sink.task.start({**config, **{name.replace("_", "."): value for name, value in more.items()}})
    sink.open()
    sink.put(0, 1)
    [name] = sink.storage.names(f"topics/{TOPIC}/kind=even")
    data = sink.storage.read(f"topics/{TOPIC}/kind=even/{name}")
    if kind == "avro":
        assert name.endswith(".avro") and list(fastavro.reader(io.BytesIO(data))) == [
            {"id": 0, "kind": "even"}
        ]
    elif kind == "text":
        assert (name[-4:], data) == (".txt", b"Struct{id=0,kind=even}\n")
    else:
        assert name.endswith(".snappy.parquet") and data[:4] == b"PAR1"


class Crash(BaseException):
    """The process ends here."""


def test_a_task_that_ends_at_any_step_leaves_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends before and after each change of the file system, and half way through each write."""
    steps = 0
    end_at = -1

    def step(half: Any = None) -> None:
        nonlocal steps
        steps += 1
        if steps == end_at:
            if half is not None:
                half()
            raise Crash

    originals = {name: getattr(Storage, name) for name in ("write", "rename", "delete")}

    def write(self: Storage, path: str, content: Any) -> None:
        data = content if isinstance(content, bytes) else (content.seek(0), content.read())[1]
        step(lambda: originals["write"](self, path, data[: len(data) // 2]))
        originals["write"](self, path, data)
        step()

    def rename(self: Storage, path: str, to: str) -> None:
        step()
        originals["rename"](self, path, to)
        step()

    def delete(self: Storage, path: str) -> None:
        step()
        originals["delete"](self, path)
        step()

    for name, changed in (("write", write), ("rename", rename), ("delete", delete)):
        monkeypatch.setattr(Storage, name, changed)
    crashes = 0
    while True:
        steps, end_at = 0, crashes + 1
        url = f"file://{tmp_path}/{crashes}"
        try:
            run(url)
            break
        except Crash:
            crashes += 1
        end_at = -1
        assert run(url).files() == EXPECTED, f"after the end at step {crashes}"
    assert crashes > 30


def run(url: str) -> Sink:
    sink = Sink(url)
    start = sink.open()
    for offset in range(start, 8):
        sink.put(offset)
    return sink


def test_a_system_that_is_away_gets_the_same_files_later(hdfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink(f"{hdfs}/away")
    sink.open()
    original = Storage.rename
    failures = iter(range(6))

    def fails(self: Storage, path: str, to: str) -> None:
        if next(failures, None) is not None:
            raise RetriableError("away")
        original(self, path, to)

    monkeypatch.setattr(Storage, "rename", fails)
    for _ in range(6):
        with pytest.raises(RetriableError):
            sink.put(*range(8))
    sink.put(*range(8))
    assert sink.files() == EXPECTED
    with pytest.raises(RetriableError, match="cannot be"):
        Sink("webhdfs://127.0.0.1:9").open()


def test_a_log_that_cannot_be_read_stops_the_task(tmp_path: Path) -> None:
    sink = run(f"file://{tmp_path}")
    [name] = [one for one in sink.storage.names(f"logs/{TOPIC}/0") if one.startswith("log")]
    log = tmp_path / "logs" / TOPIC / "0" / name
    content = json.loads(log.read_text())
    log.write_text("{")
    with pytest.raises(ConnectError, match="cannot be read"):
        Sink(f"file://{tmp_path}").open()
    content["renames"] = [["nowhere", "topics/nothing"]]
    log.write_text(json.dumps(content))
    with pytest.raises(ConnectError, match="not there"):
        Sink(f"file://{tmp_path}").open()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"store.url": "hdfs://h:8020"}, "expected webhdfs"),
        ({}, "store.url is missing"),
        ({"store.url": "file:///x", "hive.integration": "true"}, "hive.integration"),
    ],
)
def test_options_that_do_not_fit(more: dict[str, str], text: str) -> None:
    errors = " ".join(error for one in HdfsSink.validate({"flush.size": "1", **more}) for error in one.errors)
    assert text in errors


def test_a_topic_becomes_files_whatever_is_killed(hdfs: str, tmp_path: Path) -> None:
    with felice_broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        with running_worker(broker.bootstrap, tmp_path) as worker:
            config = {
                "connector.class": "hdfs-sink",
                "topics": TOPIC,
                "store.url": f"{hdfs}/whole",
                "flush.size": "5",
                "format.class": STRING,
                # What was killed does not leave the group before that.
                "consumer.override.session.timeout.ms": "6000",
                "consumer.override.heartbeat.interval.ms": "500",
            }
            producer.produce(TOPIC, "0")
            producer.flush()
            status, body = worker.ask("PUT", "/connectors/files/config", config)
            assert status == 201, body
            storage = Storage({"store.url": f"{hdfs}/whole"})

            def written() -> list[str]:
                names = storage.names(f"topics/{TOPIC}/partition=0")
                texts = [storage.read(f"topics/{TOPIC}/partition=0/{one}").decode() for one in names]
                return [line for text in texts for line in text.splitlines()]

            for turn in range(2):
                for number in range(turn * 50 + 1, min(turn * 50 + 51, 100)):
                    producer.produce(TOPIC, str(number))
                producer.flush()
                if turn:
                    worker.jobs.kill("files-0")
                wait_until(lambda turn=turn: len(written()) >= turn * 50 + 20)  # type: ignore[misc]
            wait_until(lambda: len(written()) == 100)
            assert written() == [str(number) for number in range(100)]
