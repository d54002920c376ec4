"""The sink of documents, against OpenSearch, and against a fake server whose answers the test plans."""

from __future__ import annotations

import datetime
import decimal
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from connect_contexts import NotedSink
from connect_tasks import plain_json, run_sink, stopped_at_end
from connect_worker import running_worker
from felice.client import Consumer, Producer
from felice.pipelines.connect.connectors.search.sink import ElasticsearchSink
from felice.pipelines.connect.connectors.search.sink_task import ElasticsearchSinkTask
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import Header, SinkRecord
from felice.pipelines.connect.model.schema import (
    BYTES,
    DATE,
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
from felice.pipelines.connect.task.tolerance import ErrorPolicy
from felice.testing import felice_broker
from peers.databases import missing, running_database
from peers.search import Search, running_search
from waiting import wait_until

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Search]:
    with running_search(tmp_path_factory.mktemp("search")) as started:
        yield started


class FakeServer:
    """Answers bulk requests. `plans` are answers for the next ones: a status, or a list of statuses of items."""

    def __init__(self) -> None:
        self.bodies: list[list[dict[str, Any]]] = []
        self.plans: list[int | list[int]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.running = self.most_running = 0
        kept = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, content = 200, b"{}"
                if self.path == "/_bulk":
                    status, content = kept.bulk(body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_POST = do_PUT = do_GET = do_HEAD = answer

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def bulk(self, body: bytes) -> tuple[int, bytes]:
        lines = [json.loads(line) for line in body.splitlines()]
        self.bodies.append(lines)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        self.hold.wait(30)
        self.running -= 1
        actions = [one for one in lines if next(iter(one), None) in ("index", "create", "delete", "update")]
        plan = self.plans.pop(0) if self.plans else [200] * len(actions)
        if isinstance(plan, int):
            return plan, b"not now"
        items = [
            {"index": {"status": status} | ({"error": {"type": "t", "reason": "r"}} if status >= 300 else {})}
            for status in plan
        ]
        return 200, json.dumps({"errors": max(plan) >= 300, "items": items}).encode()

    def ids(self, number: int) -> list[str]:
        return [one["index"]["_id"] for one in self.bodies[number] if "index" in one]

    def close(self) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    started = FakeServer()
    yield started
    started.close()


Make = Callable[..., ElasticsearchSinkTask]


@pytest.fixture
def make() -> Iterator[Make]:
    tasks: list[ElasticsearchSinkTask] = []

    def made(server: Search | FakeServer, *, tolerates: bool = False, **more: str) -> ElasticsearchSinkTask:
        config = {"connection.url": server.url, "retry.backoff.ms": "1", "schema.ignore": "true"}
        config.update((name.replace("_", "."), value) for name, value in more.items())
        errors = [error for one in ElasticsearchSink.validate(config) for error in one.errors]
        assert not errors, errors
        task = ElasticsearchSinkTask()
        task.context = NotedSink(tolerates=tolerates)
        task.start({"read.timeout.ms": "60000", **config})
        tasks.append(task)
        return task

    yield made
    for task in tasks:
        task.stop()


def record(
    topic: str,
    offset: int,
    key: Any,
    value: Any,
    schema: Schema | None = None,
    *,
    headers: Any = (),
    ms: int = 0,
) -> SinkRecord:
    return SinkRecord(topic, 0, None, key, schema, value, ms, tuple(headers), offset, original_topic=topic)


def reported(task: ElasticsearchSinkTask) -> list[tuple[int, str]]:
    assert isinstance(task.context, NotedSink)
    return task.context.reported


# Against OpenSearch


def test_keys_are_ids_and_offsets_versions(search: Search, make: Make) -> None:
    task = make(search, behavior_on_null_values="delete")
    task.put(
        [
            record("Orders", 0, "a", {"n": 1}),
            record("Orders", 1, "b", {"n": 2}),
            record("Orders", 2, "a", {"n": 3}),
            record("Orders", 3, "b", None),
            record("Orders", 4, "never", None),
            record("Orders", 5, None, None),
        ]
    )
    task.flush({})
    # What a failure repeats changes nothing.
    task.put([record("Orders", 0, "a", {"n": 1}), record("Orders", 1, "b", {"n": 2})])
    task.flush({})
    assert search.documents("orders") == {"a": {"n": 3}} and not reported(task)


def test_types_of_members_come_from_the_schema(search: Search, make: Make) -> None:
    schema = struct(
        {
            "id": simple(INT32).with_default(7),
            "name": simple(STRING),
            "raw": simple(BYTES),
            "price": decimal_of(2),
            "day": logical(DATE),
            "time": logical(TIME),
            "at": logical(TIMESTAMP),
            "tags": array(simple(STRING)),
            "open": mapping(simple(STRING), simple(INT32)),
            "pairs": mapping(simple(INT32), simple(STRING)),
            "inner": struct({"x": simple(INT32)}),
        }
    )
    value = Struct(
        schema,
        {
            "name": "n",
            "raw": b"\0\1",
            "price": decimal.Decimal("1.25"),
            "day": datetime.date(2026, 1, 31),
            "time": datetime.time(1),
            "at": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC),
            "tags": ["a", "b"],
            "open": {"k": 1},
            "pairs": {1: "one"},
            "inner": Struct(struct({"x": simple(INT32)}), {"x": 1}),
        },
    )
    task = make(search, schema_ignore="false", key_ignore="true")
    task.put([record("typed", 3, None, value, schema)])
    task.flush({})
    assert search.documents("typed") == {
        "typed+0+3": {
            "id": 7,
            "name": "n",
            "raw": "AAE=",
            "price": 1.25,
            "day": "2026-01-31",
            "time": 3_600_000,
            "at": 1_769_817_600_000,
            "tags": ["a", "b"],
            "open": {"k": 1},
            "pairs": [{"key": 1, "value": "one"}],
            "inner": {"x": 1},
        }
    }
    types = search.ask("GET", "/typed/_mapping")["typed"]["mappings"]["properties"]
    assert {name: one.get("type") for name, one in types.items()} == {
        "id": "integer",
        "name": "text",
        "raw": "binary",
        "price": "double",
        "day": "date",
        "time": "date",
        "at": "date",
        "tags": "text",
        "open": None,  # an object, which has got its members by now
        "pairs": "nested",
        "inner": None,
    }
    assert types["id"]["null_value"] == 7
    found = search.ask("GET", "/typed/_search?q=day:%222026-01-31%22")
    assert found["hits"]["total"]["value"] == 1


def test_a_refused_document_is_reported_and_the_others_are_written(search: Search, make: Make) -> None:
    records = [record("refused", 0, "a", {"n": 1}), record("refused", 1, "b", {"n": "no number"})]
    records += [
        record("refused", 2, "c", "text"),
        record("refused", 3, 1.5, {}),
        record("refused", 4, "", {}),
    ]
    task = make(search, tolerates=True)
    task.put(records)
    task.flush({})
    assert search.documents("refused") == {"a": {"n": 1}}
    assert [offset for offset, _ in reported(task)] == [2, 3, 4, 1]
    assert "parse" in reported(task)[3][1] and "no number" in reported(task)[3][1]

    strict = make(search)
    strict.put(records[:2])
    # A commit that fails is only tried again by the framework: the next records must fail the task.
    for call in (lambda: strict.flush({}), lambda: strict.put(records[:1])):
        with pytest.raises(ConnectError, match="refuses a document"):
            call()
    lenient = make(search, behavior_on_malformed_documents="warn", drop_invalid_message="true")
    lenient.put(records)
    lenient.flush({})


def test_upserts_add_members(search: Search, make: Make) -> None:
    task = make(search, write_method="upsert", batch_size="1")
    task.put([record("merged", one, "k", {f"m{one % 3}": one}) for one in range(30)])
    task.flush({})
    assert search.documents("merged") == {"k": {"m0": 27, "m1": 28, "m2": 29}}


def test_versions_of_a_header(search: Search, make: Make) -> None:
    def versioned(offset: int, version: Any) -> SinkRecord:
        return record("versions", offset, "k", {"v": version}, headers=[Header("v", None, version)])

    task = make(search, external_version_header="v", tolerates=True)
    task.put([versioned(0, 20), versioned(1, "30"), versioned(2, 10), versioned(3, "x")])
    task.flush({})
    assert search.documents("versions") == {"k": {"v": "30"}}
    assert [offset for offset, _ in reported(task)] == [3]


def test_data_streams(search: Search, make: Make) -> None:
    template = {"index_patterns": ["logs-shop-*"], "data_stream": {}, "priority": 100}
    search.ask("PUT", "/_index_template/shop", template)
    more = {"data_stream_type": "logs", "data_stream_dataset": "shop", "key_ignore": "true"}
    task = make(search, **more)
    sent = [record("Web", one, None, {"n": one}, ms=1000 + one) for one in range(3)]
    for _ in range(2):
        task.put(sent)
        task.flush({})
    found = search.documents("logs-shop-web")
    assert sorted(one["n"] for one in found.values()) == [0, 1, 2]
    assert {one["@timestamp"] for one in found.values()} == {1000, 1001, 1002}
    timed = make(search, tolerates=True, data_stream_timestamp_field="at,then", **more)
    timed.put([record("Timed", 0, None, {"then": 5}), record("Timed", 1, None, {})])
    timed.flush({})
    assert [one["@timestamp"] for one in search.documents("logs-shop-timed").values()] == [5]
    assert [offset for offset, _ in reported(timed)] == [1]


def test_a_topic_becomes_an_index(search: Search, tmp_path: Path) -> None:
    with felice_broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(100):
            producer.produce("people", json.dumps({"n": number}), f"k{number % 10}")
        producer.flush()
        with running_worker(broker.bootstrap, tmp_path) as worker:
            config = {
                "connector.class": "elasticsearch-sink",
                "topics": "people",
                "connection.url": f"http://127.0.0.1:9,{search.url}",
                "read.timeout.ms": "60000",
                "schema.ignore": "true",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
            }
            status, body = worker.ask("PUT", "/connectors/people/config", config)
            assert status == 201, body
            expected = {f"k{number}": {"n": 90 + number} for number in range(10)}
            wait_until(lambda: _has(search, "people", expected))


def test_changes_of_a_database_become_documents(search: Search, tmp_path: Path) -> None:
    """The recipe of docs/connect.md."""
    why = missing("postgresql")
    if why is not None:
        pytest.skip(why)
    plain = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    with (
        felice_broker() as broker,
        running_database("postgresql", tmp_path) as database,
        running_worker(broker.bootstrap, tmp_path) as worker,
    ):
        database.run(
            "CREATE TABLE orders (id int PRIMARY KEY, name text)",
            "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
        )
        shop = {
            "connector.class": "postgres-cdc",
            "database.hostname": "127.0.0.1",
            "database.port": str(database.port),
            "database.dbname": "postgres",
            "database.user": "felice",
            "topic.prefix": "shop",
            "slot.name": "felice",
            "table.include.list": r"public\.orders",
            "publication.autocreate.mode": "filtered",
            "transforms": "row,id",
            "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.id.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
            "transforms.id.field": "id",
            **plain,
        }
        documents = {
            "connector.class": "elasticsearch-sink",
            "topics": "shop.public.orders",
            "connection.url": search.url,
            "read.timeout.ms": "60000",
            "behavior.on.null.values": "delete",
            "schema.ignore": "true",
            "consumer.override.topic.metadata.refresh.interval.ms": "500",
            **plain,
        }
        for name, config in (("shop", shop), ("search", documents)):
            status, body = worker.ask("PUT", f"/connectors/{name}/config", config)
            assert status == 201, body
        index = "shop.public.orders"
        wait_until(lambda: _has(search, index, {"1": {"id": 1, "name": "a"}, "2": {"id": 2, "name": "b"}}))
        database.run("UPDATE orders SET name = 'B' WHERE id = 2", "DELETE FROM orders WHERE id = 1")
        wait_until(lambda: _has(search, index, {"2": {"id": 2, "name": "B"}}))


def _has(search: Search, index: str, expected: dict[str, Any]) -> bool:
    try:
        return search.documents(index) == expected
    except OSError:  # it is not there yet
        return False


# Against the fake server


def test_only_what_was_not_taken_is_sent_again(fake: FakeServer, make: Make) -> None:
    task = make(fake)
    fake.plans = [503, [200, 429, 200, 503], [429, 200]]
    task.put([record("t", one, str(one), {}) for one in range(4)])
    task.flush({})
    assert [fake.ids(one) for one in range(4)] == [list("0123"), list("0123"), ["1", "3"], ["1"]]


def test_a_server_that_stays_busy_fails_the_task(fake: FakeServer, make: Make) -> None:
    task = make(fake, max_retries="2")
    fake.plans = [503] * 9
    task.put([record("t", 0, "k", {})])
    for call in (lambda: task.flush({}), lambda: task.put([record("t", 1, "k", {})])):
        with pytest.raises(ConnectError, match="it was tried 3 times"):
            call()
    assert len(fake.bodies) == 3


def test_a_request_that_is_too_large_is_divided(fake: FakeServer, make: Make) -> None:
    task = make(fake, tolerates=True)
    fake.plans = [413, 413, [200], 413, [200, 200]]
    task.put([record("t", one, str(one), {}) for one in range(4)])
    task.flush({})
    assert [fake.ids(one) for one in range(5)] == [list("0123"), ["0", "1"], ["0"], ["1"], ["2", "3"]]
    assert [offset for offset, _ in reported(task)] == [1]


def test_limits_of_a_request(fake: FakeServer, make: Make) -> None:
    task = make(fake, batch_size="3", max_in_flight_requests="1", linger_ms="10000")
    task.put([record("t", one, str(one), {}) for one in range(7)])
    task.flush({})
    assert [len(fake.ids(one)) for one in range(3)] == [3, 3, 1]
    fake.bodies.clear()
    small = make(fake, bulk_size_bytes="200", max_in_flight_requests="1", linger_ms="10000")
    small.put([record("t", one, str(one), {"text": "x" * 50}) for one in range(3)])
    small.flush({})
    assert [len(fake.ids(one)) for one in range(len(fake.bodies))] == [1, 1, 1]


def test_a_record_is_sent_after_its_linger(fake: FakeServer, make: Make) -> None:
    task = make(fake, linger_ms="50")
    task.put([record("t", 0, "k", {})])
    wait_until(lambda: len(fake.bodies) == 1)


def test_requests_at_a_time(fake: FakeServer, make: Make) -> None:
    fake.hold.clear()
    task = make(fake, batch_size="1", max_in_flight_requests="3", max_buffered_records="4")
    done = threading.Event()

    def put() -> None:
        task.put([record("t", one, str(one), {}) for one in range(6)])
        done.set()

    thread = threading.Thread(target=put)
    thread.start()
    wait_until(lambda: fake.running == 3)
    assert not done.wait(0.2), "more records wait than max.buffered.records"
    fake.hold.set()
    thread.join(30)
    task.flush({})
    assert fake.most_running == 3 and len(fake.bodies) == 6


def test_a_flush_has_a_limit(fake: FakeServer, make: Make) -> None:
    fake.hold.clear()
    task = make(fake, flush_timeout_ms="50")
    task.put([record("t", 0, "k", {})])
    with pytest.raises(ConnectError, match=r"flush\.timeout\.ms"):
        task.flush({})


def test_a_server_that_is_away(make: Make) -> None:
    away = FakeServer()
    away.close()
    task = make(away, max_retries="1")
    with pytest.raises(ConnectError, match="does not answer"):
        task.put([record("t", 0, "k", {})])


@pytest.mark.parametrize(
    "plan",
    [b"no JSON", b"[]", b'{"errors":true}', b'{"errors":true,"items":[{}]}', b'{"errors":true,"items":[]}'],
)
def test_an_answer_of_another_kind(fake: FakeServer, make: Make, plan: bytes) -> None:
    task = make(fake)
    fake.bulk = lambda body: (200, plan)  # type: ignore[method-assign]
    task.put([record("t", 0, "k", {})])
    with pytest.raises(ConnectError, match=r"JSON|unknown form"):
        task.flush({})


def test_a_refused_document_is_a_dead_letter(fake: FakeServer) -> None:
    with felice_broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(3):
            producer.produce("docs", json.dumps({"n": number}), b"key")
        producer.flush()
        fake.plans = [[200, 400, 200]]
        config = {"connection.url": fake.url, "schema.ignore": "true", "key.ignore": "true", "topics": "docs"}
        running = run_sink(
            broker,
            ElasticsearchSinkTask(),
            "docs",
            config=config,
            policy=ErrorPolicy(tolerates_all=True),
            dead_letter_topic="dead",
            value=plain_json(),
        )
        with stopped_at_end(running):
            consumer = Consumer(
                {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["dead"])
            found: list[Any] = []
            wait_until(lambda: found.extend(consumer.consume(1, 0.5)) or found)
            assert json.loads(found[0].value()) == {"n": 1}
            consumer.close()


def test_options_that_do_not_fit() -> None:
    def errors(**more: str) -> str:
        config = {"connection.url": "http://h", **{k.replace("_", "."): v for k, v in more.items()}}
        return " ".join(error for one in ElasticsearchSink.validate(config) for error in one.errors)

    assert "needs connection.password" in errors(connection_username="u")
    assert "need each other" in errors(data_stream_type="logs")
    stream = {"data_stream_type": "logs", "data_stream_dataset": "d"}
    assert "cannot be deleted" in errors(behavior_on_null_values="delete", **stream)
    assert "by upsert" in errors(write_method="upsert", **stream)
    assert "leaves no id" in errors(use_autogenerated_ids="true", write_method="upsert")
    assert "begins with http" in errors(connection_url="h:9200")
    assert "proxy.host" in errors(proxy_host="h")
