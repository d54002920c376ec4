"""Makes the tasks of a connector known to all workers, by the worker that may write configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from felice.pipelines.connect.storage.configs import task_records
from felice.pipelines.connect.storage.journals import Journal


class Publisher(Protocol):
    """Where the worker of a connector hands over what it found out."""

    async def publish(self, name: str, tasks: Sequence[Mapping[str, str]]) -> None:
        """Replaces the configurations of all tasks of a connector. Raises `ConnectError`."""

    async def fence(self, name: str) -> None:
        """Returns when no task of an older generation of a source can write any more. Raises `ConnectError`."""


class OwnPublisher:
    """The publisher of a standalone worker, which writes itself."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def publish(self, name: str, tasks: Sequence[Mapping[str, str]]) -> None:
        """As `Publisher.publish`."""
        await self._journal.write(task_records(name, list(tasks)))

    async def fence(self, name: str) -> None:
        """As `Publisher.fence`: a standalone worker runs no tasks with transactions."""
