"""The sink of HTTP, against a server that answers as it is told."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from connect_contexts import NotedSink
from connect_worker import running_worker
from felice.pipelines.connect.connectors.http import HttpSink, HttpSinkTask
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import INT32, Struct, simple, struct
from felice.testing import felice_broker
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)


class Server:
    """Keeps requests. `statuses` are those of the next answers; then it answers 200."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str, dict[str, str]]] = []
        self.statuses: list[int] = []
        self.is_endless = False
        """Whether answers have no end."""
        kept = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                kept.requests.append((self.command, self.path, body, dict(self.headers)))
                status = kept.statuses.pop(0) if kept.statuses else 200
                text = b"why not" if status >= 300 else b""
                self.send_response(status)
                self.send_header("Content-Length", str(1 << 40 if kept.is_endless else len(text)))
                self.end_headers()
                self.wfile.write(text)
                while kept.is_endless:
                    try:
                        self.wfile.write(b" " * 65_536)
                    except OSError:
                        break

            do_POST = do_PUT = do_DELETE = do_PATCH = answer

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def bodies(self) -> list[str]:
        return [body for _, _, body, _ in self.requests]


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()


@pytest.fixture
def make(server: Server) -> Iterator[Any]:
    tasks: list[HttpSinkTask] = []

    def made(**more: str) -> HttpSinkTask:
        config = {"http.api.url": server.url + "/in", "retry.backoff.ms": "10"}
        config.update((name.replace("_", "."), value) for name, value in more.items())
        errors = [error for one in HttpSink.validate(config) for error in one.errors]
        assert not errors, errors
        task = HttpSinkTask()
        task.context = NotedSink(tolerates=True)
        task.start(config)
        tasks.append(task)
        return task

    yield made
    for task in tasks:
        task.stop()


def record(offset: int, value: Any = "v", key: Any = None, schema: Any = None) -> SinkRecord:
    return SinkRecord("t/1", 0, None, key, schema, value, offset=offset, original_topic="t/1")


def test_each_record_is_a_request(server: Server, make: Any) -> None:
    task = make(headers="X-A: 1|X-B:2", auth_type="BASIC", connection_user="u", connection_password="p")
    task.put([record(0, "a"), record(1, "b")])
    assert server.bodies == ["a", "b"]
    method, path, _, headers = server.requests[0]
    assert (method, path, headers["X-A"], headers["X-B"]) == ("POST", "/in", "1", "2")
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"u:p").decode()


def test_batches_and_json(server: Server, make: Any) -> None:
    schema = struct({"id": simple(INT32)})
    make(batch_max_size="2", batch_json_as_array="true").put(
        [record(one, Struct(schema, {"id": one}), None, schema) for one in range(3)]
    )
    assert [json.loads(body) for body in server.bodies] == [[{"id": 0}, {"id": 1}], [{"id": 2}]]
    server.requests.clear()
    make(batch_max_size="9", batch_prefix="<", batch_suffix=">", batch_separator=";").put(
        [record(0), record(1)]
    )
    assert server.bodies == ["<v;v>"]


def test_addresses_of_records_and_deletions(server: Server, make: Any) -> None:
    task = make(
        http_api_url=f"{server.url}/${{topic}}/${{key}}",
        behavior_on_null_values="delete",
        request_method="put",
    )
    task.put([record(0, "a", "k/1"), record(1, None, "k/1"), record(2, "b", "k 2")])
    assert [(method, path) for method, path, _, _ in server.requests] == [
        ("PUT", "/t%2F1/k%2F1"),
        ("DELETE", "/t%2F1/k%2F1"),
        ("PUT", "/t%2F1/k%202"),
    ]


def test_a_busy_server_is_asked_again(server: Server, make: Any) -> None:
    task = make(max_retries="2")
    server.statuses = [503, 429]
    for _ in range(2):
        with pytest.raises(RetriableError, match="why not"):
            task.put([record(0)])
    task.put([record(0)])
    assert len(task.context.timeouts) == 2
    server.statuses = [500] * 3
    for _ in range(2):
        with pytest.raises(RetriableError):
            task.put([record(1)])
    with pytest.raises(ConnectError, match="it was tried 3 times"):
        task.put([record(1)])


def test_what_was_taken_is_not_sent_again(server: Server, make: Any) -> None:
    task, records = make(), [record(one, str(one)) for one in range(3)]
    server.statuses = [200, 503]
    with pytest.raises(RetriableError):
        task.put(records)
    task.put(records)
    assert server.bodies == ["0", "1", "1", "2"]
    task.open([("t/1", 0)])
    task.put(records[:1])
    assert server.bodies[-1] == "0"


def test_a_server_that_is_away(make: Any) -> None:
    task = make(http_api_url="http://127.0.0.1:9", max_retries="1")
    with pytest.raises(RetriableError, match="does not answer"):
        task.put([record(0)])
    with pytest.raises(ConnectError):
        task.put([record(0)])


def test_refused_records_are_reported_alone(server: Server, make: Any) -> None:
    task = make(batch_max_size="3")
    server.statuses = [400, 200, 422, 200]
    task.put([record(0, "a"), record(1, "b"), record(2, "c")])
    assert server.bodies == ["a,b,c", "a", "b", "c"]
    assert [offset for offset, _ in task.context.reported] == [1]
    assert "answers 422" in task.context.reported[0][1]
    server.statuses = [400]
    quiet = make(behavior_on_error="ignore")
    quiet.put([record(0)])
    assert quiet.context.reported == []


def test_an_answer_without_an_end_is_not_read_to_its_end(server: Server, make: Any) -> None:
    server.is_endless = True
    task = make(batch_max_size="1")
    server.statuses = [200, 400]
    task.put([record(0), record(1)])
    assert [offset for offset, _ in task.context.reported] == [1]


def test_records_without_values(server: Server, make: Any) -> None:
    make().put([record(0, None)])
    failing = make(behavior_on_null_values="fail")
    failing.put([record(0, None)])
    assert server.requests == [] and failing.context.reported[0][0] == 0


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({"http.api.url": "ftp://x"}, "http.api.url"),
        ({"headers": "a b:c"}, "headers"),
        ({"regex.patterns": "x"}, "regex.patterns"),
        ({"request.method": "GET"}, "request.method"),
    ],
)
def test_options_that_do_not_fit(config: dict[str, str], option: str) -> None:
    (found,) = [one for one in HttpSink.validate(config) if one.name == option]
    assert found.errors


def test_no_record_is_lost_over_a_killed_task(server: Server, tmp_path: Path) -> None:
    config = {
        "connector.class": "http-sink",
        "topics": "lines",
        "http.api.url": server.url,
        "consumer.override.session.timeout.ms": "6000",
    }
    with felice_broker() as broker, running_worker(broker.bootstrap, tmp_path) as worker:
        broker.create_topic("lines", partitions=1)
        assert worker.ask("POST", "/connectors", {"name": "http", "config": config})[0] == 201
        worker.wait_states("http", "RUNNING", "RUNNING")
        for number in range(40):
            broker.produce("lines", str(number))
            if number == 20:
                worker.jobs.kill("http-0")
        wait_until(
            lambda: {str(number) for number in range(40)} <= set(server.bodies),
            describe=lambda: str(len(server.bodies)),
        )
