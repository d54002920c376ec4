"""The config topic as Kafka's workers write it: connectors, tasks that change together, target states, fencing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.storage.configs import (
    ConfigState,
    Listener,
    Record,
    RestartRequest,
    TargetState,
    connector_record,
    fencing_record,
    logger_record,
    restart_record,
    target_state_record,
    task_records,
)


class Log:
    """Records in a topic, read by a state."""

    def __init__(self) -> None:
        self.told: list[object] = []
        listener = Listener(
            lambda name: self.told.append(f"connector {name}"),
            lambda name: self.told.append(f"removed {name}"),
            lambda name: self.told.append(f"tasks {name}"),
            lambda name: self.told.append(f"target {name}"),
            self.told.append,
            lambda name, level: self.told.append(f"{name}={level}"),
        )
        self.state = ConfigState(listener)
        self.records: list[Record] = []

    def write(self, *records: Record) -> None:
        for key, value in records:
            self.records.append((key, value))
            self.state.apply(key, value, len(self.records) - 1)


def test_records_are_those_of_kafka() -> None:
    assert connector_record("c", {"a": "1"}) == (b"connector-c", b'{"properties":{"a":"1"}}')
    assert connector_record("c", None) == (b"connector-c", None)
    assert task_records("c", [{"a": "1"}, {}]) == [
        (b"task-c-0", b'{"properties":{"a":"1"}}'),
        (b"task-c-1", b'{"properties":{}}'),
        (b"commit-c", b'{"tasks":2}'),
    ]
    assert target_state_record("c", TargetState.STOPPED) == (
        b"target-state-c",
        b'{"state":"PAUSED","state.v2":"STOPPED"}',
    )
    assert fencing_record("c", 3) == (b"tasks-fencing-c", b'{"task-count":3}')
    assert restart_record(RestartRequest("c", only_failed=True, include_tasks=False)) == (
        b"restart-connector-c",
        b'{"include-tasks":false,"only-failed":true}',
    )
    assert logger_record("org.x", "INFO") == (b"logger-cluster-org.x", b'{"level":"INFO"}')


def test_a_connector_with_its_tasks() -> None:
    log = Log()
    log.write(connector_record("a-b-1", {"k": "v"}), *task_records("a-b-1", [{"t": "0"}, {"t": "1"}]))
    state = log.state
    assert state.connectors == {"a-b-1": {"k": "v"}}
    assert state.tasks("a-b-1") == [TaskId("a-b-1", 0), TaskId("a-b-1", 1)]
    assert state.task_config(TaskId("a-b-1", 1)) == {"t": "1"}
    assert state.target_state("a-b-1") is TargetState.STARTED
    assert log.told == ["connector a-b-1", "tasks a-b-1"]
    log.write(*task_records("a-b-1", [{"t": "new"}]))
    assert state.tasks("a-b-1") == [TaskId("a-b-1", 0)]
    assert state.task_config(TaskId("a-b-1", 1)) is None
    log.write(target_state_record("a-b-1", None), connector_record("a-b-1", None))
    assert (state.connectors, state.tasks("a-b-1"), state.target_state("a-b-1")) == ({}, [], None)
    assert log.told[-1] == "removed a-b-1"


def test_tasks_change_only_with_their_commit() -> None:
    log = Log()
    log.write(connector_record("c", {}), *task_records("c", [{"n": "1"}]))
    log.write(task_records("c", [{"n": "2"}])[0])
    assert log.state.task_config(TaskId("c", 0)) == {"n": "1"}
    log.write(task_records("c", [{"n": "2"}])[1])
    assert log.state.task_config(TaskId("c", 0)) == {"n": "2"}


def test_a_commit_without_all_its_tasks_waits_for_the_next_one() -> None:
    log = Log()
    log.write(connector_record("c", {}), *task_records("c", [{"n": "1"}, {"n": "2"}])[1:])
    assert log.state.inconsistent == {"c"}
    assert log.state.tasks("c") == []
    log.write(*task_records("c", [{"n": "3"}]))
    assert log.state.inconsistent == set()
    assert log.state.tasks("c") == [TaskId("c", 0)]


@given(st.lists(st.lists(st.sampled_from("xyz"), max_size=3), min_size=1, max_size=5))
def test_compaction_leaves_the_last_whole_set_of_tasks(generations: list[list[str]]) -> None:
    log = Log()
    log.write(connector_record("c", {}))
    for generation in generations:
        log.write(*task_records("c", [{"n": one} for one in generation]))
    newest = {key: number for number, (key, _) in enumerate(log.records)}
    compacted = ConfigState()
    for number, (key, value) in enumerate(log.records):
        if newest[key] == number:
            compacted.apply(key, value, number)
    assert compacted.tasks("c") == log.state.tasks("c")
    assert [compacted.task_config(one) for one in compacted.tasks("c")] == [{"n": n} for n in generations[-1]]


def test_target_states() -> None:
    log = Log()
    log.write(target_state_record("c", TargetState.PAUSED), connector_record("c", {}))
    assert log.state.target_state("c") is TargetState.PAUSED
    log.write(target_state_record("c", TargetState.STOPPED), target_state_record("c", TargetState.STOPPED))
    assert log.state.target_state("c") is TargetState.STOPPED
    log.write((b"target-state-c", b'{"state":"STARTED"}'))  # of an older worker
    assert log.state.target_state("c") is TargetState.STARTED
    assert log.told == ["connector c", "target c", "target c"]


def test_a_change_of_tasks_needs_a_round_of_fencing() -> None:
    log = Log()
    log.write(connector_record("c", {}), *task_records("c", [{}, {}]))
    assert log.state.needs_fencing == {"c"}
    log.write(fencing_record("c", 2))
    assert (log.state.needs_fencing, log.state.fenced_counts) == (set(), {"c": 2})
    log.write(*task_records("c", [{}]))
    assert log.state.needs_fencing == {"c"}


def test_restarts_levels_and_the_session_key() -> None:
    log = Log()
    request = RestartRequest("c", only_failed=False, include_tasks=True)
    key = {"key": "AAAA", "algorithm": "HmacSHA256", "creation-timestamp": 5}
    log.write(
        restart_record(request), logger_record("a.b", "DEBUG"), (b"session-key", json.dumps(key).encode())
    )
    assert log.told == [request, "a.b=DEBUG"]
    assert log.state.session_key == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff", b"{}"),
        (b"other", b"{}"),
        (b"task-c-x", b'{"properties":{}}'),
        (b"connector-c", b"{"),
        (b"connector-c", b"[]"),
        (b"connector-c", b"{}"),
        (b"connector-c", b'{"properties":{"secret":17}}'),
        (b"commit-c", b'{"tasks":"2"}'),
        (b"commit-c", b'{"tasks":-1}'),
        (b"commit-c", b'{"tasks":true}'),
        (b"target-state-c", b'{"state":"FLYING"}'),
        (b"tasks-fencing-c", b"{}"),
        (b"restart-connector-c", b'{"only-failed":1,"include-tasks":false}'),
    ],
)
def test_a_record_that_is_not_understood_is_named_and_changes_nothing(
    key: bytes | None, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()
    log.write(connector_record("c", {"k": "v"}), *task_records("c", [{"t": "0"}]))
    told = list(log.told)
    log.state.apply(key, value, 17)
    assert log.told == told
    assert (log.state.connectors, log.state.tasks("c")) == ({"c": {"k": "v"}}, [TaskId("c", 0)])
    assert log.state.offset == 17
    (line,) = caplog.messages
    assert line.startswith("record 17 of the config topic, ") and "17}" not in line
