"""What the config topic says: connectors, their tasks, the states that they shall have. Pure.

Keeps true:  the configurations of a connector's tasks change all together, when their commit is read: a commit whose
             tasks are not all there (compaction removed some) makes the connector `inconsistent` until the next one.
             A record that is not understood is named in the log, and changes nothing.
             The values of options stand in no text and no error: they can be secrets.
Source:      keys, members and rules are those of Kafka Connect's `KafkaConfigBackingStore`; KIP-618 for fencing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.storage.json_records import Record, encoded, member, read_record, texts


class TargetState(Enum):
    """What a connector shall do."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


INITIAL_STATES = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
"""The states in which a connector can be created (KIP-980), by the names of the REST API."""


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """A user's wish to restart a connector."""

    connector: str
    only_failed: bool
    include_tasks: bool


_CONNECTOR, _TASK, _COMMIT, _TARGET = "connector-", "task-", "commit-", "target-state-"
_FENCING, _RESTART, _LOGGER, SESSION_KEY = (
    "tasks-fencing-",
    "restart-connector-",
    "logger-cluster-",
    "session-key",
)
_TASK_KEY = re.compile(r"task-(.+)-([0-9]+)", re.DOTALL)


# Records to write


def connector_record(name: str, config: Mapping[str, str] | None) -> Record:
    """A connector's configuration; None removes it."""
    return _CONNECTOR.encode() + name.encode(), None if config is None else encoded(
        {"properties": dict(config)}
    )


def task_records(name: str, tasks: list[Mapping[str, str]]) -> list[Record]:
    """The configurations of all tasks of a connector, and their commit."""
    records: list[Record] = [
        (f"{_TASK}{name}-{number}".encode(), encoded({"properties": dict(config)}))
        for number, config in enumerate(tasks)
    ]
    return [*records, (_COMMIT.encode() + name.encode(), encoded({"tasks": len(tasks)}))]


def target_state_record(name: str, state: TargetState | None) -> Record:
    """What a connector shall do. Workers older than `STOPPED` read it as paused."""
    key = _TARGET.encode() + name.encode()
    if state is None:
        return key, None
    older = TargetState.PAUSED if state is TargetState.STOPPED else state
    return key, encoded({"state": older.value, "state.v2": state.value})


def fencing_record(name: str, task_count: int) -> Record:
    """How many tasks were fenced before the tasks of a new generation may start."""
    return _FENCING.encode() + name.encode(), encoded({"task-count": task_count})


def restart_record(request: RestartRequest) -> Record:
    """A wish to restart."""
    value = {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
    return _RESTART.encode() + request.connector.encode(), encoded(value)


def session_key_record(key: bytes, created_s: float) -> Record:
    """The key with which workers sign what they ask of each other. `created_s` is in seconds since 1970."""
    value = {
        "key": base64.b64encode(key).decode(),
        "algorithm": "HmacSHA256",
        "creation-timestamp": int(created_s * 1000),
    }
    return SESSION_KEY.encode(), encoded(value)


def logger_record(name: str, level: str) -> Record:
    """The level of a logger of all workers."""
    return _LOGGER.encode() + name.encode(), encoded({"level": level})


@dataclass(slots=True)
class Listener:
    """The functions that `ConfigState` calls after a change. Those with a `str` get the name of the connector."""

    on_connector: Callable[[str], None] = lambda name: None
    on_removed: Callable[[str], None] = lambda name: None
    on_tasks: Callable[[str], None] = lambda name: None
    on_target_state: Callable[[str], None] = lambda name: None
    on_restart: Callable[[RestartRequest], None] = lambda request: None
    on_logger: Callable[[str, str], None] = lambda name, level: None


class ConfigState:
    """The config topic, record by record. `offset` is that of the last record."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener or Listener()
        self.offset = -1
        self.connectors: dict[str, dict[str, str]] = {}
        self.task_counts: dict[str, int] = {}
        self.inconsistent: set[str] = set()
        """Connectors whose last commit of tasks is not whole."""
        self.fenced_counts: dict[str, int] = {}
        self.needs_fencing: set[str] = set()
        """Connectors whose tasks changed since the last round of fencing."""
        self.session_key: dict[str, Any] | None = None
        self._tasks: dict[TaskId, dict[str, str]] = {}
        self._applied: dict[str, dict[str, str]] = {}
        self._deferred: dict[str, dict[TaskId, dict[str, str]]] = {}
        self._target_states: dict[str, TargetState] = {}

    # Questions

    def tasks(self, connector: str) -> list[TaskId]:
        """The tasks of a connector; none if they are inconsistent."""
        if connector in self.inconsistent:
            return []
        return [TaskId(connector, number) for number in range(self.task_counts.get(connector, 0))]

    def task_config(self, task: TaskId) -> dict[str, str] | None:
        """The configuration of a task."""
        return self._tasks.get(task)

    def applied_config(self, connector: str) -> dict[str, str] | None:
        """The configuration of a connector from which its tasks were made; its newest one if that is not known.

        None if there is no such connector.
        """
        newest = self.connectors.get(connector)
        return None if newest is None else self._applied.get(connector, newest)

    def target_state(self, connector: str) -> TargetState | None:
        """What a connector shall do; None if there is no such connector."""
        if connector not in self.connectors:
            return None
        return self._target_states.get(connector, TargetState.STARTED)

    # Records

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Reads a record."""
        self.offset = offset
        read_record("config", self._apply, key, value, offset)

    def _apply(self, key: str, value: dict[str, Any] | None) -> None:
        # Longer names first: none of them is the beginning of another one's.
        if key.startswith(_TARGET):
            self._apply_target_state(key.removeprefix(_TARGET), value)
        elif key.startswith(_CONNECTOR):
            self._apply_connector(key.removeprefix(_CONNECTOR), value)
        elif key.startswith(_FENCING):
            self._apply_fencing(key.removeprefix(_FENCING), value)
        elif key.startswith(_COMMIT):
            self._apply_commit(key.removeprefix(_COMMIT), value)
        elif key.startswith(_RESTART):
            self._apply_restart(key.removeprefix(_RESTART), value)
        elif key.startswith(_LOGGER):
            if value is not None:
                self._listener.on_logger(key.removeprefix(_LOGGER), member(value, "level", str))
        elif key == SESSION_KEY:
            self.session_key = value
        elif found := _TASK_KEY.fullmatch(key):
            self._apply_task(TaskId(found[1], int(found[2])), value)
        else:
            raise DataError("the key is of no known kind")

    def _apply_connector(self, name: str, value: dict[str, Any] | None) -> None:
        if value is not None:
            self.connectors[name] = texts(value, "properties")
            self._listener.on_connector(name)
            return
        is_known = self.connectors.pop(name, None) is not None
        for one in [task for task in self._tasks if task.connector == name]:
            del self._tasks[one]
        self.task_counts.pop(name, None)
        self._applied.pop(name, None)
        self._deferred.pop(name, None)
        self.inconsistent.discard(name)
        self.needs_fencing.discard(name)
        if is_known:
            self._listener.on_removed(name)

    def _apply_task(self, task: TaskId, value: dict[str, Any] | None) -> None:
        if value is None:
            return  # the commit counts
        self._deferred.setdefault(task.connector, {})[task] = texts(value, "properties")

    def _apply_commit(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            return
        count = member(value, "tasks", int)
        if count < 0:
            raise DataError(f"tasks is negative: {count}")
        deferred = self._deferred.pop(name, {})
        given = {task: config for task, config in deferred.items() if task.number < count}
        self.task_counts[name] = count
        if len(given) < count:
            # Compaction can leave the commit and remove tasks that a newer write replaced, whose commit follows.
            self.inconsistent.add(name)
            return
        self.inconsistent.discard(name)
        for one in [task for task in self._tasks if task.connector == name]:
            del self._tasks[one]
        self._tasks.update(given)
        # Compaction can leave the commit before the connector's record, which then counts when it is read.
        if (config := self.connectors.get(name)) is not None:
            self._applied[name] = config
        self.needs_fencing.add(name)
        self._listener.on_tasks(name)

    def _apply_target_state(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            self._target_states.pop(name, None)
            return
        text = value.get("state.v2", value.get("state"))
        try:
            state = TargetState(text)
        except ValueError:
            raise DataError(f"an unknown target state: {text!r:.40}") from None
        changed = self._target_states.get(name, TargetState.STARTED) is not state
        self._target_states[name] = state
        if changed and name in self.connectors:
            self._listener.on_target_state(name)

    def _apply_fencing(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            self.fenced_counts.pop(name, None)
            return
        self.fenced_counts[name] = member(value, "task-count", int)
        self.needs_fencing.discard(name)

    def _apply_restart(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            return
        request = RestartRequest(
            name,
            only_failed=member(value, "only-failed", bool),
            include_tasks=member(value, "include-tasks", bool),
        )
        self._listener.on_restart(request)
