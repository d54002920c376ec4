"""Parts of the herder: secrets, signatures, restarts, states, loggers, options of workers, sinks' offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from felice.pipelines.connect.configuration.overrides import (
    ALLOWED_OVERRIDES,
    OVERRIDE_POLICY,
    refused_overrides,
)
from felice.pipelines.connect.configuration.secrets import Secrets, with_references
from felice.pipelines.connect.configuration.worker_options import worker_config
from felice.pipelines.connect.herder import restarts
from felice.pipelines.connect.herder.errors import RequestError
from felice.pipelines.connect.herder.loggers import follow_level, level_of, levels, set_level
from felice.pipelines.connect.herder.restarts import Restarts
from felice.pipelines.connect.herder.signatures import ALGORITHM, SIGNATURE, check, signed
from felice.pipelines.connect.herder.states import States
from felice.pipelines.connect.model.errors import ConfigError, ConnectError
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.storage.journals import MemoryJournal
from felice.pipelines.connect.storage.json_records import Record
from felice.pipelines.connect.storage.statuses import StatusState

TASK = TaskId("c", 0)
PROVIDER = "org.apache.kafka.common.config.provider."
KEY = bytes(32)


# Secrets


class Sources:
    def __init__(self, **variables: str) -> None:
        self._variables = variables

    def variable(self, name: str) -> str | None:
        return self._variables.get(name)

    def text_of(self, path: Path) -> str:
        raise FileNotFoundError(path)

    def exists(self, path: Path) -> bool:
        return False


def secrets(**variables: str) -> Secrets:
    options = {"config.providers": "env", "config.providers.env.class": PROVIDER + "EnvVarConfigProvider"}
    return Secrets(options, Sources(**variables))


def test_references_are_replaced_by_values() -> None:
    assert secrets(PASSWORD="hunter2").resolved({"a": "x${env:PASSWORD}y", "b": "plain"}) == {
        "a": "xhunter2y",
        "b": "plain",
    }


def test_a_reference_without_a_value_is_refused_without_other_values() -> None:
    with pytest.raises(ConfigError, match=r"option b has the value \$\{env:NO\}") as failed:
        secrets(PASSWORD="hunter2").resolved({"a": "${env:PASSWORD}", "b": "${env:NO}"})
    assert "hunter2" not in str(failed.value)


def test_a_wrong_provider_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="Felice has the providers"):
        Secrets({"config.providers": "vault", "config.providers.vault.class": "com.Vault"})


def test_configurations_of_tasks_get_their_references_back() -> None:
    raw = {"password": "${env:P}", "name": "c", "same": "hunter2"}
    resolved = {**raw, "password": "hunter2"}
    task = {"password": "hunter2", "name": "c", "same": "hunter2", "other": "hunter2"}
    assert with_references(task, raw, resolved) == {**task, "password": "${env:P}"}


# Signatures


def test_a_signed_request_is_accepted_and_any_other_refused() -> None:
    headers = signed(KEY, "POST", "/x", b"body")
    check(KEY, "POST", "/x", b"body", headers)
    for wrong in (
        (KEY, "PUT", "/x", b"body", headers),
        (KEY, "POST", "/y", b"body", headers),
        (KEY, "POST", "/x", b"other", headers),
        (b"k" * 32, "POST", "/x", b"body", headers),
        (KEY, "POST", "/x", b"body", {**headers, SIGNATURE: "\udc80é"}),
    ):
        with pytest.raises(RequestError) as failed:
            check(*wrong)
        assert failed.value.status == 403
    for unsigned in ({}, {**headers, ALGORITHM: "none"}):
        with pytest.raises(RequestError) as failed:
            check(KEY, "POST", "/x", b"body", unsigned)
        assert failed.value.status == 400
    with pytest.raises(RequestError) as failed:
        check(None, "POST", "/x", b"body", signed(KEY, "POST", "/x", b"body"))
    assert failed.value.status == 503


# Restarts


async def test_a_lost_task_is_always_started_again_and_a_failed_one_as_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restarts, "FIRST_S", 0.001)
    started: list[TaskId] = []
    never, twice = Restarts(0, started.append), Restarts(2, started.append)
    assert never.ended(TASK, lost=True) and not never.ended(TASK, lost=False)
    assert [twice.ended(TASK, lost=False) for _ in range(3)] == [True, True, False]
    assert twice.ended(TASK, lost=True)
    await asyncio.sleep(0.1)
    assert started == [TASK] * 4


async def test_a_stopped_task_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "FIRST_S", 0.001)
    started: list[TaskId] = []
    found = Restarts(5, started.append)
    found.ended(TASK, lost=True)
    found.forget(TASK)
    found.ended(TaskId("d", 0), lost=True)
    found.stop()
    await asyncio.sleep(0.05)
    assert started == []


# States


class Failing(MemoryJournal):
    """A journal whose first writes fail."""

    def __init__(self, state: StatusState, failures: int) -> None:
        super().__init__(state.apply)
        self.failures = failures

    async def write(self, records: Sequence[Record]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectError("no broker answers")
        await super().write(records)


async def test_states_are_written_in_order_and_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("felice.pipelines.connect.herder.states._RETRY_S", 0.001)
    state = StatusState()
    states = States(state, Failing(state, 2), "w:1", lambda: 3)
    states.start()
    states.task(TASK, TaskState.RUNNING)
    states.task(TASK, TaskState.FAILED, "Traceback\nValueError: hunter2\n")
    states.connector("c", TaskState.RUNNING)
    states.topic(TASK, "t")
    await states.flush()
    found = state.task(TASK)
    assert found is not None and (found.state, found.worker_id, found.generation) == (
        TaskState.FAILED,
        "w:1",
        3,
    )
    assert found.trace == "Traceback\nValueError: hunter2\n"
    assert list(state.topics["c"]) == ["t"]
    states.forget("c")
    await states.flush()
    assert not state.connectors and not state.tasks("c") and not state.topics
    await states.stop()


async def test_secrets_are_taken_out_of_traces_and_the_log(caplog: pytest.LogCaptureFixture) -> None:
    state = StatusState()
    states = States(state, MemoryJournal(state.apply), "w:1", lambda: 0)
    states.hide = lambda connector, text: text.replace("hunter2", "[hidden]")
    states.start()
    states.task(TASK, TaskState.FAILED, "ValueError: hunter2\n")
    await states.flush()
    found = state.task(TASK)
    assert found is not None and found.trace == "ValueError: [hidden]\n"
    assert "hunter2" not in caplog.text and "[hidden]" in caplog.text
    await states.stop()


async def test_an_older_generation_does_not_call_a_successor_failed() -> None:
    state = StatusState()
    journal = MemoryJournal(state.apply)
    old, new = (States(state, journal, f"w:{number}", lambda number=number: number) for number in (1, 2))
    for states in (old, new):
        states.start()
    new.task(TASK, TaskState.RUNNING)
    await new.flush()
    old.task(TASK, TaskState.FAILED, "lost")
    await old.flush()
    found = state.task(TASK)
    assert found is not None and found.state is TaskState.RUNNING
    for states in (old, new):
        await states.stop()


# Loggers


def test_levels_of_loggers() -> None:
    for name in ("felice.test.levels", "felice.test.levels.below"):
        logging.getLogger(name).setLevel(logging.INFO)
    assert set_level("felice.test.levels", "DEBUG") == ["felice.test.levels", "felice.test.levels.below"]
    assert level_of("felice.test.levels.below").level == "DEBUG"
    assert levels()["felice.test.levels"].last_modified_ms is not None
    follow_level("felice.test.levels", "NOPE")
    assert level_of("felice.test.levels").level == "DEBUG"
    follow_level("felice.test.levels", "OFF")
    assert not logging.getLogger("felice.test.levels").isEnabledFor(logging.CRITICAL)


# Options of workers

OPTIONS = {"key.converter": "k", "value.converter": "v", "offset.storage.file.filename": "f"}


def test_options_of_a_worker_and_of_its_clients() -> None:
    given = {
        **OPTIONS,
        "bootstrap.servers": "b:1",
        "sasl.mechanism": "PLAIN",
        "producer.acks": "1",
        "key.converter.schemas.enable": "false",
        "plugin.path": "/java",
        "spark.executor.memory": "1g",
    }
    found = worker_config(given, distributed=False)
    assert found.client == {"bootstrap.servers": "b:1", "sasl.mechanism": "PLAIN"}
    assert found.spark == {"spark.executor.memory": "1g"}
    assert found.without_effect == ("plugin.path",)
    assert not found.is_exactly_once
    assert found.given["header.converter"].endswith("SimpleHeaderConverter")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"key.converter": ""}, 'Missing required configuration "key.converter"'),
        ({"listeners": "ftp://x:1"}, "expected http://host:port"),
        ({"listeners": "http://x"}, "expected http://host:port"),
        ({"listeners": "http://x:1,http://y:2"}, "a worker has one listener"),
        ({"rest.extension.classes": "x"}, "cannot be followed"),
        ({"task.slots": "0"}, "at least 1"),
        ({"rest.advertised.port": "0"}, "expected a port"),
        ({"connector.client.config.override.policy": "Some"}, "must be one of"),
    ],
)
def test_wrong_options_of_a_worker_are_refused(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        worker_config({**OPTIONS, **changes}, distributed=False)


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        ({}, {"acks", "sasl.mechanism"}),
        ({OVERRIDE_POLICY: "All"}, {"acks", "sasl.mechanism"}),
        ({OVERRIDE_POLICY: "None"}, set()),
        ({OVERRIDE_POLICY: "Principal"}, {"sasl.mechanism"}),
        ({OVERRIDE_POLICY: "Allowlist", ALLOWED_OVERRIDES: "acks, linger.ms"}, {"acks"}),
    ],
)
def test_overrides_of_clients_follow_the_policy(policy: dict[str, str], allowed: set[str]) -> None:
    options = {
        f"{client}.override.{name}": "x"
        for client in ("producer", "admin")
        for name in ("acks", "sasl.mechanism")
    }
    refused = {one.name: one.errors for one in refused_overrides(policy, {**options, "producer.x": "y"})}
    assert set(refused) == {name for name in options if name.partition(".override.")[2] not in allowed}
    for name, (error,) in refused.items():
        option = name.partition(".override.")[2]
        assert error.endswith(
            f"policy does not allow '{option}' to be overridden in the connector configuration."
        )


def test_a_distributed_worker_needs_its_topics() -> None:
    with pytest.raises(ConfigError, match='Missing required configuration "group.id"'):
        worker_config(OPTIONS, distributed=True)
