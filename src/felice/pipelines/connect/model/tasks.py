"""Tasks of connectors: their names and states."""

from __future__ import annotations

from enum import Enum

from felice.dataclass import dataclass


class TaskState(Enum):
    """What a connector or a task is doing, by the names of Kafka's REST API."""

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
