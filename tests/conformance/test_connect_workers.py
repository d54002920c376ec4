"""Workers beside connectors that hang, fail, ask and keep secrets, and beside requests that make no sense."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect_plugins import Odd
from connect_worker import ServedWorker, running_group, running_worker
from felice.pipelines.connect.rest import loggers, routes
from felice.pipelines.connect.runtime import connectors, tasks
from felice.testing import Broker, felice_broker
from waiting import wait_until

PROVIDER = "org.apache.kafka.common.config.provider."
TIMEOUT_S = 120
pytestmark = pytest.mark.timeout(TIMEOUT_S)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        yield started


@pytest.fixture(autouse=True)
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connectors that hang do so until the end of the test; nothing waits long for them."""
    Odd.released.clear()
    monkeypatch.setattr(connectors, "END_S", 0.5)
    yield
    Odd.released.set()


@pytest.fixture
def worker(broker: Broker, tmp_path: Path) -> Iterator[ServedWorker]:
    secrets = tmp_path / "secrets"
    secrets.write_text("password=hunter2\n")
    more = {"config_providers": "file", "config_providers_file_class": PROVIDER + "FileConfigProvider"}
    with running_worker(
        broker.bootstrap, tmp_path, task_shutdown_graceful_timeout_ms="500", **more
    ) as started:
        yield started


def odd(does: str = "", **more: str) -> dict[str, str]:
    return {
        "connector.class": "odd",
        "does": does,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def create(worker: ServedWorker, name: str, config: dict[str, str]) -> tuple[int, object]:
    return worker.ask("POST", "/connectors", {"name": name, "config": config})


def test_a_connector_that_hangs_holds_up_no_other(
    worker: ServedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "REQUEST_S", 1.0)
    for name in ("start", "tasks"):
        assert create(worker, name, odd(f"hang at {name}")) == (
            500,
            {"error_code": 500, "message": "Request timed out"},
        )
    assert create(worker, "good", odd())[0] == 201
    worker.wait_states("good", "RUNNING", "RUNNING")
    # It can be changed and deleted all the same.
    assert worker.ask("PUT", "/connectors/start/config", odd())[0] in (200, 500)
    worker.wait_states("start", "RUNNING", "RUNNING")
    assert worker.ask("DELETE", "/connectors/tasks")[0] in (204, 500)
    wait_until(lambda: worker.ask("GET", "/connectors/tasks/status")[0] == 404)
    assert worker.ask("GET", "/connectors")[1] == ["good", "start"]


def test_a_worker_stops_beside_a_connector_that_hangs(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "REQUEST_S", 1.0)
    with running_worker(broker.bootstrap, tmp_path) as worker:
        assert create(worker, "start", odd("hang at start"))[0] == 500


def test_failures_of_connectors_are_told(worker: ServedWorker) -> None:
    create(worker, "start", odd("fail at start", password="${file:secrets:password}"))
    create(worker, "later", odd("fail later"))
    create(worker, "many", odd("too many tasks", tasks_max="3"))
    for name, text in (
        ("later", "the source is gone"),
        ("many", "The connector generated 4 tasks, which is greater than 3"),
    ):
        wait_until(lambda name=name: worker.states(name)[:1] == ["FAILED"])
        assert text in worker.ask("GET", f"/connectors/{name}/status")[1]["connector"]["trace"]
    # Nothing is tried again by itself, and a user can.
    assert worker.ask("PUT", "/connectors/many/config", odd())[0] == 200
    worker.wait_states("many", "RUNNING", "RUNNING")
    assert create(worker, "stop", odd("fail at stop"))[0] == 201
    assert worker.ask("DELETE", "/connectors/stop")[0] == 204


def test_secrets_are_shown_nowhere(
    worker: ServedWorker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reference = f"${{file:{tmp_path / 'secrets'}:password}}"
    for name, does in (("connector", "fail at start"), ("task", "task fails")):
        create(worker, name, odd(does, password=reference))
    create(worker, "plain", odd("task fails", password="hunter2"))
    create(worker, "good", odd("", password=reference, topic="good"))
    worker.wait_states("connector", "FAILED")
    for name in ("task", "plain"):
        worker.wait_states(name, "RUNNING", "FAILED")
    worker.wait_states("good", "RUNNING", "RUNNING")
    told = [
        worker.ask("GET", "/connectors?expand=status")[1],
        *(
            worker.ask("GET", f"/connectors/{name}{path}")[1]
            for name in ("task", "good")
            for path in ("", "/tasks")
        ),
        worker.ask("PUT", "/connector-plugins/odd/config/validate", odd(password=reference, name="x"))[1],
    ]
    assert "hunter2" not in json.dumps(told) and "[hidden]" in json.dumps(told)
    assert "hunter2" not in caplog.text
    # The task itself has the value.
    wrong = "/nonexistent/secrets"
    status, answer = create(worker, "wrong", odd("", password=f"${{file:{wrong}:password}}"))
    assert status == 400 and "cannot be read" in answer["message"]  # type: ignore[index]


def test_a_connector_asks_for_other_tasks(worker: ServedWorker) -> None:
    create(worker, "more", odd("more tasks", tasks_max="2"))
    worker.wait_states("more", "RUNNING", "RUNNING", "RUNNING")
    assert [task["config"]["number"] for task in worker.ask("GET", "/connectors/more/tasks")[1]] == ["0", "1"]
    worker.ask("PATCH", "/connectors/more/config", {"does": ""})
    worker.wait_states("more", "RUNNING", "RUNNING")


def test_a_connector_reads_its_offsets(broker: Broker) -> None:
    with running_group(broker.bootstrap, 1) as (worker,):
        create(worker, "it", odd("offset"))
        worker.wait_states("it", "RUNNING", "RUNNING")
        wait_until(lambda: worker.ask("GET", "/connectors/it/offsets")[1]["offsets"])
        worker.ask("POST", "/connectors/it/restart")
        wait_until(lambda: worker.ask("GET", "/connectors/it/tasks")[1][0]["config"]["offset"] == "{'at': 1}")


def test_a_task_that_does_not_stop_is_cancelled(
    worker: ServedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "CANCELLED_S", 5.0)
    create(worker, "hangs", odd("task hangs"))
    worker.wait_states("hangs", "RUNNING", "RUNNING")
    began = time.monotonic()
    assert worker.ask("DELETE", "/connectors/hangs")[0] == 204
    assert time.monotonic() - began < 60
    wait_until(lambda: worker.ask("GET", "/connectors/hangs/status")[0] == 404)


def test_a_killed_task_is_started_again(worker: ServedWorker) -> None:
    create(worker, "it", odd())
    worker.wait_states("it", "RUNNING", "RUNNING")
    worker.jobs.kill("it-0")
    wait_until(lambda: worker.states("it") != ["RUNNING", "RUNNING"])
    worker.wait_states("it", "RUNNING", "RUNNING")


def test_a_failed_task_is_started_again_if_the_worker_is_told_to(broker: Broker, tmp_path: Path) -> None:
    with running_worker(broker.bootstrap, tmp_path, task_restart_max_attempts="1") as worker:
        create(worker, "it", odd("task fails", password="x"))
        wait_until(lambda: len(worker.jobs.processes) == 2)
        worker.wait_states("it", "RUNNING", "FAILED")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("POST", "/connectors", [1], 400, "must be a JSON object, not a list"),
        ("POST", "/connectors", {"name": 1, "config": {}}, 400, "the name must be a text"),
        ("POST", "/connectors", {"name": "s"}, 400, "config must be a JSON object of options, not null"),
        (
            "POST",
            "/connectors",
            {"name": "s", "config": {"a": []}},
            400,
            "option a must be a text, not a list",
        ),
        ("POST", "/connectors", {"name": "s", "config": {}, "x": 1}, 400, "x is no member of a connector"),
        ("POST", "/connectors", {"name": "s", "config": odd(), "initial_state": "NO"}, 400, "must be one of"),
        ("POST", "/connectors", {"name": "s", "config": {"connector.class": "N"}}, 400, "could not be found"),
        ("PUT", "/connectors/s/config", "x", 400, "must be a JSON object, not a text"),
        ("PATCH", "/connectors/s/offsets", {"offsets": {"a": 1}}, 400, "must be a list"),
        ("PATCH", "/connectors/s/offsets", {"offsets": [{"partition": 1}]}, 400, "must be objects"),
        ("POST", "/connectors/s/tasks", [{}], 400, "missing required signature"),
        ("PUT", "/connectors/s/fence", None, 400, "missing required signature"),
        (
            "PUT",
            "/connector-plugins/odd/config/validate",
            {"connector.class": "file-sink"},
            400,
            "does not match",
        ),
        ("PUT", "/admin/loggers/felice", {"level": 5}, 404, "invalid log level"),
    ],
)
def test_requests_that_make_no_sense(
    worker: ServedWorker, method: str, path: str, body: object, status: int, text: str
) -> None:
    found, answer = worker.ask(method, path, body)
    assert found == status and text in answer["message"], answer


def test_unknown_loggers_are_limited(worker: ServedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "_MOST", 0)
    status, answer = worker.ask("PUT", "/admin/loggers/nobody.has.this.logger", {"level": "INFO"})
    assert (status, answer["error_code"]) == (400, 400)
    assert worker.ask("PUT", "/admin/loggers/felice", {"level": "WARN"})[0] == 200
