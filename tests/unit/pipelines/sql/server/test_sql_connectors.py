"""Statements about connectors, beside a Connect worker that answers what the test says, on a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.server.connect_worker import MAX_ANSWER_BYTES, WorkerAddress, shown_options
from felice.pipelines.sql.server.failures import StatementFailed
from felice.pipelines.sql.server.selects import Selects
from felice.pipelines.sql.server.service import LONGEST_TEXT, Deployment, SqlService, parsed
from sql_server import served

INFO = {
    "name": "files",
    "config": {"connector.class": "x.Files", "name": "files"},
    "tasks": [],
    "type": "source",
}
STATUS = {
    "name": "files",
    "connector": {"state": "RUNNING", "worker_id": "w:1"},
    "tasks": [
        {"id": 0, "state": "RUNNING", "worker_id": "w:1"},
        {"id": 1, "state": "FAILED", "worker_id": "w:1"},
    ],
    "type": "source",
}
LISTED = "/connectors?expand=info&expand=status"


class Fake:
    """Answers a method and path with a status and a body; what it does not know with 404."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {"GET /connectors": (200, ["files", "other"])}
        self.asked: list[tuple[str, Any]] = []
        self.logins: list[str | None] = []
        self.ends = threading.Event()
        self.url = ""

    @property
    def address(self) -> WorkerAddress:
        return WorkerAddress(self.url, timeout_s=60)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving() as found:
        yield found


@contextmanager
def serving() -> Iterator[Fake]:
    fake = Fake()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            fake.asked.append((f"{self.command} {self.path}", body))
            fake.logins.append(self.headers["Authorization"])
            missing = (404, {"error_code": 404, "message": f"{self.path} not found"})
            status, found = fake.answers.get(f"{self.command} {self.path}", missing)
            if found is None:
                fake.ends.wait()
            content = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", "0" if status == 204 else str(len(content)))
            self.end_headers()
            with suppress(ConnectionError):  # of a client that has had enough
                if status != 204:
                    self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_PUT = answer

    with served(Handler) as fake.url:
        try:
            yield fake
        finally:
            fake.ends.set()


def run(worker: WorkerAddress, text: str, program: str | None = None) -> list[dict[str, Any]]:
    """The answers of a server without brokers."""

    async def ran() -> list[dict[str, Any]]:
        client = {"bootstrap.servers": "127.0.0.1:1"}
        deployment = Deployment(
            "a", client, built_in(), {}, None, Path("unused"), program=program, worker=worker
        )
        service = SqlService(deployment, SimpleNamespace(states=dict))  # type: ignore[arg-type]
        try:
            return await service.execute(text, {}, {})
        finally:
            await service._connectors.close()

    return asyncio.run(ran())


def refused(worker: WorkerAddress, text: str) -> StatementFailed:
    with pytest.raises(StatementFailed) as caught:
        run(worker, text)
    assert "\n" not in caught.value.message
    return caught.value


def test_a_connector_is_created_and_its_passwords_are_not_shown(fake: Fake) -> None:
    fake.answers["POST /connectors"] = (201, INFO)
    text = """CREATE SOURCE CONNECTOR `new` WITH ("connector.class"='x.Files', 'tasks.max'=2, 'on'=true, 'a'=1.50,
        'password'='se''cret');"""
    (found,) = run(fake.address, text)
    assert found["@type"] == "connector_info"
    assert found["info"] == INFO
    assert found["warnings"] == []
    assert found["statementText"] == (
        "CREATE SOURCE CONNECTOR `new` WITH ('connector.class'='x.Files', 'tasks.max'='[string]', 'on'='[string]', "
        "'a'='[string]', 'password'='[string]');"
    )
    config = {
        "connector.class": "x.Files",
        "tasks.max": "2",
        "on": "true",
        "a": "1.50",
        "password": "se'cret",
    }
    assert fake.asked[-1] == ("POST /connectors", {"name": "new", "config": {**config, "name": "new"}})


def test_a_connector_that_exists(fake: Fake) -> None:
    """ksqlDB compares names without their case: a plain name is in capitals, and Connect's seldom are."""
    error = refused(fake.address, "CREATE SINK CONNECTOR files WITH ('password'='secret');")
    assert (error.status, error.code, error.message) == (409, 40900, "Connector files already exists")
    assert "secret" not in json.dumps(error.document())
    (found,) = run(fake.address, "CREATE SINK CONNECTOR IF NOT EXISTS FILES WITH ('a'='b');")
    assert (found["@type"], found["message"]) == ("warning_entity", "Connector files already exists")
    assert not [asked for asked, _ in fake.asked if asked.startswith("POST")]


def test_a_connector_of_the_other_kind_is_told(fake: Fake) -> None:
    fake.answers["POST /connectors"] = (201, INFO)
    (found,) = run(fake.address, "CREATE SINK CONNECTOR c WITH ('connector.class'='x.Files');")
    assert found["warnings"] == [{"message": "C is a source connector"}]


def test_what_the_worker_refuses_is_told_in_its_words(fake: Fake) -> None:
    fake.answers["POST /connectors"] = (
        400,
        {"error_code": 400, "message": "Connector configuration is invalid"},
    )
    error = refused(fake.address, "SHOW TYPES; CREATE SINK CONNECTOR c WITH ('a'='b');")
    assert (error.status, error.message) == (400, "Connector configuration is invalid")
    assert [one["@type"] for one in error.done] == ["type_list"]


def test_connectors_are_listed_by_kind(fake: Fake) -> None:
    failed = {**STATUS, "connector": {"state": "FAILED"}, "tasks": []}
    fake.answers[f"GET {LISTED}"] = (
        200,
        {
            "sink": {"info": {**INFO, "type": "sink"}, "status": failed},
            "files": {"info": INFO, "status": STATUS},
            "odd": {},
        },
    )
    files = {
        "name": "files",
        "type": "source",
        "className": "x.Files",
        "state": "RUNNING (1/2 tasks RUNNING)",
    }
    sink = {"name": "sink", "type": "sink", "className": "x.Files", "state": "FAILED"}
    odd = {"name": "odd", "type": "unknown", "className": None, "state": None}
    for text, shown in (
        ("SHOW CONNECTORS;", [files, odd, sink]),
        ("LIST SOURCE CONNECTORS;", [files]),
        ("SHOW SINK CONNECTORS;", [sink]),
    ):
        (found,) = run(fake.address, text)
        assert (found["@type"], found["connectors"]) == ("connector_list", shown)
    without = {**STATUS, "tasks": [{"id": 0, "state": "FAILED"}]}
    fake.answers[f"GET {LISTED}"] = (200, {"files": {"info": INFO, "status": without}})
    (found,) = run(fake.address, "SHOW CONNECTORS;")
    assert found["connectors"][0]["state"] == "WARNING (0/1 tasks RUNNING)"


def test_plugins_are_listed(fake: Fake) -> None:
    fake.answers["GET /connector-plugins"] = (200, [{"class": "x.Files", "type": "source", "version": "1"}])
    (found,) = run(fake.address, "SHOW CONNECTOR PLUGINS;")
    assert found["@type"] == "connector_plugins_list"
    assert found["connectorPlugins"] == [{"className": "x.Files", "type": "source", "version": "1"}]


def test_a_connector_is_described_with_its_topics(fake: Fake) -> None:
    fake.answers["GET /connectors/my%20files"] = (200, INFO)
    fake.answers["GET /connectors/my%20files/status"] = (200, STATUS)
    fake.answers["GET /connectors/my%20files/topics"] = (200, {"my files": {"topics": ["lines"]}})
    (found,) = run(fake.address, "DESCRIBE CONNECTOR `my files`;")
    assert found["@type"] == "connector_description"
    shown = {name: found[name] for name in ("connectorClass", "status", "topics", "sources", "warnings")}
    assert shown == {
        "connectorClass": "x.Files",
        "status": STATUS,
        "topics": ["lines"],
        "sources": [],
        "warnings": [],
    }
    del fake.answers["GET /connectors/my%20files/topics"]
    (found,) = run(fake.address, "DESCRIBE CONNECTOR `my files`;")
    assert "not found" in found["warnings"][0]["message"]


def test_a_connector_is_dropped(fake: Fake) -> None:
    fake.answers["DELETE /connectors/files"] = (204, "")
    (found,) = run(fake.address, "DROP CONNECTOR `files`;")
    assert (found["@type"], found["connectorName"]) == ("drop_connector", "files")
    (found,) = run(fake.address, "DROP CONNECTOR IF EXISTS nothing;")
    assert found["@type"] == "warning_entity"


@pytest.mark.parametrize("text", ["DROP CONNECTOR files;", "DESCRIBE CONNECTOR files;"])
def test_a_connector_that_does_not_exist(fake: Fake, text: str) -> None:
    error = refused(fake.address, text)
    assert (error.status, error.message) == (404, "there is no connector FILES; did you mean `files`?")


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, {"no": "list"}, "is not a Connect worker"),
        (200, [1], "is not a Connect worker"),
        (200, b"<html>", "is not a Connect worker"),
        (200, b"", "is not a Connect worker"),
        (200, b"[" * 100_000, "is not a Connect worker"),
        (200, b" " * (MAX_ANSWER_BYTES + 1), "has over 16,777,216 bytes"),
        (302, b"", "is not a Connect worker"),
        (404, b"nginx", "answered 404: is it a Connect worker?"),
        (401, b"", "refused this server's log in (401); ksql.connect.basic.auth.credentials.source"),
        (409, {"error_code": 409, "message": "a rebalance"}, "a rebalance"),
    ],
)
def test_a_wrong_worker_is_one_clear_error(fake: Fake, status: int, body: object, reason: str) -> None:
    fake.answers["GET /connectors"] = (status, body)
    assert reason in refused(fake.address, "CREATE SINK CONNECTOR c WITH ('a'='b');").message


def test_a_worker_that_is_away_is_an_entity_of_show_and_an_error_of_others() -> None:
    away = WorkerAddress("http://127.0.0.1:1")
    for text in ("SHOW CONNECTORS;", "SHOW CONNECTOR PLUGINS;"):
        (found,) = run(away, text)
        assert found["@type"] == "error_entity"
        assert "no Connect worker answers at http://127.0.0.1:1" in found["errorMessage"]
    error = refused(away, "DROP CONNECTOR c;")
    assert (error.status, error.code) == (500, 50000)
    assert "start one with `felice connect`" in error.message


def test_a_slow_worker_holds_nothing(fake: Fake) -> None:
    fake.answers["GET /connectors"] = (200, None)
    address = WorkerAddress(fake.url, timeout_s=0.2)

    async def turns() -> tuple[str, int]:
        client = {"bootstrap.servers": "127.0.0.1:1"}
        deployment = Deployment("a", client, built_in(), {}, None, Path("unused"), worker=address)
        service = SqlService(deployment, SimpleNamespace(states=dict))  # type: ignore[arg-type]
        asked = asyncio.create_task(service.execute("CREATE SINK CONNECTOR c WITH ('a'='b');", {}, {}))
        count = 0
        while not asked.done():
            await service.execute("SHOW TYPES;", {}, {})
            count += 1
        await service._connectors.close()
        error = asked.exception()
        assert isinstance(error, StatementFailed)
        return error.message, count

    message, count = asyncio.run(turns())
    assert "did not answer within 0.2 seconds (ksql.connect.request.timeout.ms)" in message
    assert count > 1


def test_the_server_logs_in_with_the_user_of_a_file(fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "user.properties"
    file.write_text("username: ann\npassword: se cret\n")
    options = {
        "ksql.connect.url": fake.url,
        "ksql.connect.basic.auth.credentials.source": "FILE",
        "ksql.connect.basic.auth.credentials.file": str(file),
    }
    fake.answers["GET /connector-plugins"] = (200, [])
    run(WorkerAddress.of(options), "SHOW CONNECTOR PLUGINS;")
    expected = base64.b64encode(b"ann:se cret").decode()
    assert fake.logins == [f"Basic {expected}"]
    again = WorkerAddress.of({**options, "ksql.connect.basic.auth.credentials.reload": "true"})
    file.write_text("username=bob\npassword=x\n")
    run(again, "SHOW CONNECTOR PLUGINS;")
    assert fake.logins[-1] == f"Basic {base64.b64encode(b'bob:x').decode()}"
    file.unlink()
    (found,) = run(again, "SHOW CONNECTOR PLUGINS;")
    assert f"{file} cannot be read" in found["errorMessage"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "localhost:8083"}, "must be an address such as http://localhost:8083"),
        ({"url": "http://ann:secret@localhost:8083"}, "user and password are in the file"),
        ({"url": "http://[::1"}, "must be an address"),
        ({"request.timeout.ms": "soon"}, "must be a number of milliseconds"),
        ({"request.timeout.ms": "0"}, "must be a number of milliseconds"),
        ({"basic.auth.credentials.source": "URL"}, "must be NONE or FILE"),
        ({"basic.auth.credentials.source": "FILE"}, "belong together"),
        ({"basic.auth.credentials.file": "x"}, "belong together"),
        ({"basic.auth.credentials.source": "FILE", "basic.auth.credentials.file": "/no"}, "cannot be read"),
        ({"basic.auth.credentials.reload": "often"}, "must be true or false"),
        ({"worker.config": "x.properties"}, "there is no option ksql.connect.worker.config"),
    ],
)
def test_options_that_are_not_right(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        WorkerAddress.of({f"ksql.connect.{name}": value for name, value in options.items()})
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_server_of_a_file_changes_no_connectors(fake: Fake) -> None:
    fake.answers["GET /connector-plugins"] = (200, [])
    with pytest.raises(StatementFailed, match="runs the queries of a file"):
        run(fake.address, "DROP CONNECTOR `files`;", program="SET 'a'='b';")
    assert run(fake.address, "SHOW CONNECTOR PLUGINS;", program="SET 'a'='b';")


BEGIN = "CREATE SINK CONNECTOR c WITH ('connector.class'='x', 'db.password'='hunter2'"
WRONG = (
    f"{BEGIN}); SELEC 1;",
    f"{BEGIN} 'a'='b');",
    f"{BEGIN}, 'user'='${{unknown}}');",
    f"{BEGIN}) hunter2;",
    BEGIN.replace("='hunter2'", " 'hunter2');"),
    BEGIN.replace("'hunter2'", "'hunter2);"),
    BEGIN.replace("'hunter2'", "hunter2);"),
    BEGIN.replace("'hunter2'", '"hunter2");'),
    BEGIN.replace("SINK CONNECTOR", "SINK CONECTOR") + ");",
    f"{BEGIN});" * 1_001,
    f"{BEGIN});".ljust(LONGEST_TEXT + 1),
    f"DEFINE pw = 'hunter2'; {BEGIN.replace('hunter2', '${pw}')} 'a'='b');",
)


def _beginning(text: str) -> str:
    return text[:80]


@pytest.mark.parametrize("text", WRONG, ids=_beginning)
def test_a_text_that_is_no_statement_is_told_without_passwords(text: str) -> None:
    with pytest.raises(StatementFailed) as refused:
        parsed(text, {})
    told = json.dumps(refused.value.document())
    assert "hunter2" not in told
    assert "'[string]'" in told


def test_another_text_that_is_no_statement_is_told_as_it_is() -> None:
    with pytest.raises(StatementFailed, match="and got 'SELEC'") as refused:
        parsed("SHOW TOPICS; SELEC 'x';", {})
    assert refused.value.statement == "SHOW TOPICS; SELEC 'x';"


@pytest.mark.parametrize("text", [f"{BEGIN});", f"PRINT s; {BEGIN});", *WRONG], ids=_beginning)
def test_a_query_endpoint_tells_no_passwords(text: str) -> None:
    service: Any = SimpleNamespace(check_lives=lambda: None)
    with pytest.raises(StatementFailed) as refused:
        asyncio.run(Selects(service).begin(text, {}, {}))
    assert "hunter2" not in json.dumps(refused.value.document())


def test_options_with_secrets_are_not_shown() -> None:
    """A private key was."""
    secrets = ("ssl.keystore.key", "ssl.key.pem", "ssl.key.password", "ssl.keystore.password", "ssl.unknown")
    options = {f"ksql.connect.{name}": "hunter2" for name in secrets}
    plain = {"ksql.connect.url": "http://w", "ksql.connect.ssl.truststore.location": "/t"}
    assert shown_options(options | plain) == plain
