"""Where tasks run, as the worker sees it: on Spark, or in threads of a test.

Keeps true:  of the generations of a task at most one writes. A runner starts the next generation only when the last one
             said that it ended, or is fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Protocol

from felice.dataclass import dataclass


class TaskState(Enum):
    """What a task is doing, by the names of Kafka's REST API."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task of a connector."""

    connector: str
    number: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.number}"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """All that a task needs to run elsewhere. Values of config providers are resolved where the task runs.

    `generation` grows with each start of the task. `connector_class` names the connector as `plugins` finds it.
    """

    id: TaskId
    generation: int
    kind: str
    connector_class: str
    connector_config: Mapping[str, str]
    task_config: Mapping[str, str] = field(repr=False)
    worker_config: Mapping[str, str] = field(repr=False)
    paused: bool = False


class Listener(Protocol):
    """The worker, told by a runner from any thread."""

    def on_state(self, task: TaskId, generation: int, state: TaskState, trace: str | None) -> None:
        """A generation of a task is in another state. After FAILED and STOPPED it runs no more."""


class Runner(Protocol):
    """Runs tasks. The methods return soon; what became of a task is told to the listener."""

    def start(self, spec: TaskSpec) -> None:
        """Runs a task. Raises `ConnectError` if the same task runs already."""

    def pause(self, task: TaskId) -> None:
        """Makes a running task wait. It keeps its partitions and its connections."""

    def resume(self, task: TaskId) -> None:
        """Makes a paused task go on."""

    def stop(self, tasks: list[TaskId], timeout_s: float) -> None:
        """Asks tasks to end and waits; afterwards those that did not end are cut off and can write nothing more."""

    def close(self) -> None:
        """Stops all tasks and gives up what the runner holds."""
