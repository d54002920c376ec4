"""What the status topic says: the states of connectors and tasks, and the topics that a connector uses. Pure.

Keeps true:  a state of an older generation does not replace that of a newer one (`allows`): a task that was cut off
             cannot call its successor failed.
Source:      keys and members are those of Kafka Connect's `KafkaStatusBackingStore`; KIP-558 for topics.
"""

from __future__ import annotations

import re
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.storage.json_records import Record, encoded, member, read_record

_CONNECTOR, _TOPIC = "status-connector-", "status-topic-"
_TASK_KEY = re.compile(r"status-task-(.+)-([0-9]+)", re.DOTALL)
_TOPIC_KEY = re.compile(r"status-topic-([^:]+):connector-(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a connector or a task. `generation` grows with each rebalance of the workers.

    `version` is that of the connector.
    """

    state: TaskState
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class TopicUse:
    """A topic that a connector reads or writes, and the task that used it first, `discovered_ms` after 1970."""

    topic: str
    connector: str
    task: int
    discovered_ms: int


def connector_record(name: str, status: Status | None) -> Record:
    """The state of a connector; None forgets it."""
    return (_CONNECTOR + name).encode(), None if status is None else _value(status)


def task_record(task: TaskId, status: Status | None) -> Record:
    """The state of a task; None forgets it."""
    return f"status-task-{task}".encode(), None if status is None else _value(status)


def topic_record(use: TopicUse, *, forgotten: bool = False) -> Record:
    """A topic of a connector."""
    value = {
        "topic": {
            "name": use.topic,
            "connector": use.connector,
            "task": use.task,
            "discoverTimestamp": use.discovered_ms,
        }
    }
    return f"{_TOPIC}{use.topic}:connector-{use.connector}".encode(), None if forgotten else encoded(value)


def _value(status: Status) -> bytes:
    return encoded(
        {
            "state": status.state.value,
            "trace": status.trace,
            "worker_id": status.worker_id,
            "generation": status.generation,
            "version": status.version,
        }
    )


def allows(last: Status | None, worker_id: str, generation: int) -> bool:
    """Whether a worker may replace the last state: its own, or one that is not of a newer generation."""
    return last is None or last.worker_id == worker_id or last.generation <= generation


class StatusState:
    """The status topic, record by record."""

    def __init__(self) -> None:
        self.connectors: dict[str, Status] = {}
        self.topics: dict[str, dict[str, TopicUse]] = {}
        """The topics of each connector, by their names."""
        self._tasks: dict[str, dict[int, Status]] = {}

    def tasks(self, connector: str) -> dict[int, Status]:
        """The states of a connector's tasks, by their numbers."""
        return dict(sorted(self._tasks.get(connector, {}).items()))

    def task(self, task: TaskId) -> Status | None:
        """The state of a task."""
        return self._tasks.get(task.connector, {}).get(task.number)

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Reads a record."""
        read_record("status", self._apply, key, value, offset)

    def _apply(self, key: str, value: dict[str, Any] | None) -> None:
        if key.startswith(_CONNECTOR):
            name = key.removeprefix(_CONNECTOR)
            if value is None:
                self.connectors.pop(name, None)
            else:
                self.connectors[name] = _status(value)
        elif found := _TOPIC_KEY.fullmatch(key):
            self._apply_topic(found[1], found[2], value)
        elif found := _TASK_KEY.fullmatch(key):
            tasks = self._tasks.setdefault(found[1], {})
            if value is None:
                tasks.pop(int(found[2]), None)
                if not tasks:
                    del self._tasks[found[1]]
            else:
                tasks[int(found[2])] = _status(value)
        else:
            raise DataError("the key is of no known kind")

    def _apply_topic(self, topic: str, connector: str, value: dict[str, Any] | None) -> None:
        topics = self.topics.setdefault(connector, {})
        if value is None:
            topics.pop(topic, None)
            if not topics:
                del self.topics[connector]
            return
        about = member(value, "topic", dict)
        topics[topic] = TopicUse(
            topic, connector, member(about, "task", int), member(about, "discoverTimestamp", int)
        )


def _status(value: dict[str, Any]) -> Status:
    text = value.get("state")
    try:
        state = TaskState(text)
    except ValueError:
        raise DataError(f"an unknown state: {text!r:.40}") from None
    return Status(
        state,
        member(value, "worker_id", str),
        member(value, "generation", int),
        *(found if isinstance(found := value.get(name), str) else None for name in ("trace", "version")),
    )
