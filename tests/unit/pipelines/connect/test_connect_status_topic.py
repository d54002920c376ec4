"""The status topic as Kafka's workers write it: states with generations, and the topics of connectors."""

from __future__ import annotations

import pytest

from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.storage.statuses import (
    Status,
    StatusState,
    TopicUse,
    allows,
    connector_record,
    task_record,
    topic_record,
)

RUNNING = Status(TaskState.RUNNING, "127.0.0.1:8083", 4, None, "1")
FAILED = Status(TaskState.FAILED, "127.0.0.1:8083", 4, "boom\n\tat", None)
USE = TopicUse("t.1", "a-b", 2, 1_700_000_000_000)


def test_records_are_those_of_kafka() -> None:
    value = b'{"state":"RUNNING","trace":null,"worker_id":"127.0.0.1:8083","generation":4,"version":"1"}'
    assert connector_record("c", RUNNING) == (b"status-connector-c", value)
    assert task_record(TaskId("c", 1), RUNNING) == (b"status-task-c-1", value)
    assert topic_record(USE) == (
        b"status-topic-t.1:connector-a-b",
        b'{"topic":{"name":"t.1","connector":"a-b","task":2,"discoverTimestamp":1700000000000}}',
    )
    assert topic_record(USE, forgotten=True) == (b"status-topic-t.1:connector-a-b", None)


def test_states_and_topics_are_read() -> None:
    state = StatusState()
    records = [
        connector_record("a-b", RUNNING),
        task_record(TaskId("a-b", 10), FAILED),
        task_record(TaskId("a-b", 2), RUNNING),
        topic_record(USE),
    ]
    for offset, (key, value) in enumerate(records):
        state.apply(key, value, offset)
    assert state.connectors == {"a-b": RUNNING}
    assert list(state.tasks("a-b").items()) == [(2, RUNNING), (10, FAILED)]
    assert state.task(TaskId("a-b", 10)) == FAILED
    assert state.topics == {"a-b": {"t.1": USE}}
    for key, _ in records:
        state.apply(key, None, 9)
        state.apply(key, None, 9)
    assert (state.connectors, state.tasks("a-b"), state.topics) == ({}, {}, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"status-task-c", b"{}"),
        (b"status-connector-c", b'{"state":"RUNNING"}'),
        (b"status-connector-c", b'{"state":"FLYING","worker_id":"w","generation":1}'),
        (b"status-task-c-1", b"nothing"),
        (b"status-topic-t:connector-c", b'{"topic":{"task":"1"}}'),
    ],
)
def test_a_record_that_is_not_understood_is_named(
    key: bytes | None, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    state = StatusState()
    state.apply(key, value, 17)
    assert (state.connectors, state.tasks("c")) == ({}, {})
    assert caplog.messages[0].startswith("record 17 of the status topic, ")


def test_an_older_generation_of_another_worker_is_not_allowed() -> None:
    assert allows(None, "b", 1)
    assert allows(RUNNING, "b", 4)
    assert allows(RUNNING, "127.0.0.1:8083", 3)
    assert not allows(RUNNING, "b", 3)
