"""`felice connect`: what it asks of a worker, and what it says when none answers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from connect_worker import ServedWorker, running_worker
from felice.cli import main
from felice.testing import felice_broker
from felice.web.users import PasswordHash, write_users
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedWorker]:
    with felice_broker() as broker:
        broker.create_topic("lines", partitions=1)
        with running_worker(broker.bootstrap, tmp_path_factory.mktemp("worker")) as started:
            yield started


def run(*words: str) -> tuple[int, str, str]:
    """The command in this process: Python's start would take most of its time."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = main.run(main.felice, ["connect", *words])
    return code, out.getvalue(), errors.getvalue()


def run_process(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "felice.cli.main", "connect", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def ask(worker: ServedWorker, *words: str) -> str:
    code, out, errors = run(*words, "--url", worker.url)
    assert code == 0, errors
    return out


def test_the_life_of_a_connector(worker: ServedWorker, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\nb\n")
    config = {
        "connector.class": "file-source",
        "file": str(tmp_path / "in"),
        "topic": "lines",
        "batch.size": 9,
    }
    file = tmp_path / "lines.json"
    file.write_text(json.dumps({"name": "lines", "config": config}))
    code, _, errors = run("validate", str(file), "--url", worker.url)
    assert (code, errors) == (0, "The configuration is right.\n")
    assert ask(worker, "create", str(file)) == "Connector lines was created.\n"
    code, _, errors = run("create", str(file), "--url", worker.url)
    assert (code, errors) == (1, "error: Connector lines already exists\n")
    assert "is configured" in ask(worker, "create", str(file), "--replace")
    worker.wait_states("lines", "RUNNING", "RUNNING")
    (row,) = json.loads(ask(worker, "list", "--json"))
    assert (row["name"], row["type"], row["state"], row["tasks"], row["failed"]) == (
        "lines",
        "source",
        "RUNNING",
        1,
        0,
    )
    assert "lines" in ask(worker, "list") and "RUNNING" in ask(worker, "status")
    assert json.loads(ask(worker, "status", "lines", "--json"))["tasks"][0]["state"] == "RUNNING"
    code, _, errors = run("trace", "lines", "--task", "0", "--url", worker.url)
    assert (code, errors) == (1, "error: it has not failed: its state is RUNNING\n")
    wait_until(lambda: json.loads(ask(worker, "topics", "lines", "--json")) == [{"topic": "lines"}])
    assert json.loads(ask(worker, "config", "lines", "--json"))["batch.size"] == "9"
    changed = ask(worker, "config", "lines", "--set", "batch.size=7", "--remove", "tasks.max", "--json")
    assert json.loads(changed)["batch.size"] == "7"
    assert "will pause" in ask(worker, "pause", "lines")
    worker.wait_states("lines", "PAUSED", "PAUSED")
    assert "will go on" in ask(worker, "resume", "lines")
    for words in (["--task", "0"], ["--with-tasks"], ["--only-failed"], []):
        assert "again" in ask(worker, "restart", "lines", *words)
    assert "will stop" in ask(worker, "stop", "lines")
    worker.wait_states("lines", "STOPPED")
    (offset,) = json.loads(ask(worker, "offsets", "lines", "--json"))
    assert offset["offset"]["position"] == 4
    assert "successfully" in ask(worker, "offsets", "lines", "--reset")
    assert "was deleted" in ask(worker, "delete", "lines")
    code, _, errors = run("status", "lines", "--url", worker.url)
    assert (code, errors) == (1, "error: No status found for connector lines\n")


def test_what_tasks_tell_of_their_work(worker: ServedWorker, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(f"{number}\n" for number in range(100)))
    source = {"connector.class": "file-source", "file": str(tmp_path / "in"), "topic": "numbers"}
    sink = {
        "connector.class": "file-sink",
        "file": str(tmp_path / "out"),
        "topics": "numbers",
        "transforms": "cast",
        "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.cast.spec": "int8",
        "errors.tolerance": "all",
        "errors.log.enable": "true",
    }
    for name, config in (("reads", source), ("writes", sink)):
        status, body = worker.ask("PUT", f"/connectors/{name}/config", config)
        assert status == 201, body

    def told(name: str) -> dict[str, object]:
        found = json.loads(ask(worker, "status", name, "--json"))
        return dict(found["tasks"][0]["progress"]) if found["tasks"] else {}

    wait_until(lambda: told("reads").get("records") == 100)
    assert told("reads")["lag"] is None
    wait_until(lambda: told("writes").get("records") == 100)
    assert (told("writes")["lag"], told("writes")["failed_records"]) == (0, 0)
    with (tmp_path / "in").open("a") as file:
        file.write("no number\n")
    wait_until(lambda: told("writes").get("failed_records") == 1)
    error = told("writes")["last_error"]
    assert (
        isinstance(error, dict) and error["record"] == "numbers-0@100" and "TRANSFORMATION" in error["text"]
    )
    table = ask(worker, "status", "writes")
    assert "records/s" in table and "numbers-0@100" in table
    wait_until(lambda: "Error encountered in stage" in ask(worker, "logs", "writes"))
    lines = [json.loads(one) for one in ask(worker, "logs", "writes", "--task", "0", "--json").splitlines()]
    assert {one["task"] for one in lines} == {0}
    assert (
        run("logs", "writes", "--task", "7", "--url", worker.url)[2]
        == "error: connector writes has no task 7\n"
    )
    for path in ("/connectors/writes/tasks/7/logs", "/connectors/none/tasks/0/progress"):
        assert worker.ask("GET", path)[0] == 404
    assert worker.ask("GET", "/connectors/writes/tasks/0/logs?after=x")[0] == 400
    for name in ("reads", "writes"):
        worker.ask("DELETE", f"/connectors/{name}")


def test_a_failure_is_shown(worker: ServedWorker, tmp_path: Path) -> None:
    file = tmp_path / "bad.properties"
    file.write_text("name=bad\nconnector.class=file-sink\nfile=/nonexistent/folder/file\ntopics=lines\n")
    ask(worker, "create", str(file))
    worker.wait_states("bad", "RUNNING", "FAILED")
    assert "Couldn't find or create file" in ask(worker, "status", "bad")
    assert ask(worker, "trace", "bad", "--task", "0").startswith("Traceback")
    ask(worker, "delete", "bad")


def test_wrong_configurations(worker: ServedWorker, tmp_path: Path) -> None:
    file = tmp_path / "wrong.json"
    file.write_text('{"name": "x", "connector.class": "file-source", "batch.size": "many"}')
    code, out, _ = run_process("validate", str(file), "--url", worker.url, "--json")
    assert code == 1 and json.loads(out)["error_count"] == 2
    for text, error in (
        ("{", "is not JSON"),
        ('{"a": []}', "the option a must be a text"),
        ('{"config": {}}', "names no connector"),
        ('{"name": "x", "config": {}, "initial_state": "NO"}', "initial_state must be one of"),
    ):
        file.write_text(text)
        code, _, errors = run("create", str(file), "--url", worker.url)
        assert code == 1 and error in errors and "Traceback" not in errors


def test_plugins_are_listed(worker: ServedWorker) -> None:
    found = json.loads(ask(worker, "plugins", "--json"))
    assert {"source", "sink"} == {one["type"] for one in found}
    assert len(json.loads(ask(worker, "plugins", "--all", "--json"))) > len(found)


def test_no_worker_answers() -> None:
    code, _, errors = run("list", "--url", "http://127.0.0.1:9")
    assert code == 1 and errors.startswith("error: no worker of Connect answers at http://127.0.0.1:9: ")
    assert errors.count("\n") == 1


def test_a_worker_that_cannot_start(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    for text, error in (
        ("", 'Missing required configuration "offset.storage.file.filename"'),
        ("offset.storage.file.filename=x\n", 'Missing required configuration "key.converter"'),
        ("offset.storage.file.filename=x\nrest.extension.classes=y\n", "cannot be followed"),
    ):
        file.write_text(text)
        code, _, errors = run_process("standalone", str(file))
        assert code == 1 and error in errors and errors.count("\n") == 1


def test_a_worker_with_users(tmp_path: Path) -> None:
    users = tmp_path / "users"
    write_users(users, {"alice": PasswordHash.of("secret")})
    with (
        felice_broker() as broker,
        running_worker(broker.bootstrap, tmp_path, rest_users_file=str(users)) as worker,
    ):
        code, _, errors = run("list", "--url", worker.url)
        assert (code, errors) == (1, "error: this server needs a user and a password\n")
        address = worker.url.replace("http://", "http://alice:secret@")
        code, out, _ = run("list", "--url", address, "--json")
        assert (code, json.loads(out)) == (0, [])
    code, _, errors = run("list", "--url", address)
    assert code == 1 and "secret" not in errors and "alice" not in errors


def test_a_file_of_users_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    file.write_text(
        "bootstrap.servers=localhost:1\nkey.converter=x\nvalue.converter=x\n"
        f"offset.storage.file.filename={tmp_path}/offsets\nrest.users.file={tmp_path}/nobody\n"
    )
    code, _, errors = run_process("standalone", str(file))
    assert code == 1 and errors.startswith("error: rest.users.file: ") and errors.count("\n") == 1, errors


@pytest.mark.parametrize(
    "url", ["http://x:bad", "ftp://x:8083", "http://", "nonsense", "http://[::1", "http://u:secret@h:x"]
)
def test_an_address_that_is_none(url: str) -> None:
    code, _, errors = run("list", "--url", url)
    assert (code, errors) == (1, "error: --url: expected an address such as http://127.0.0.1:8083\n")
