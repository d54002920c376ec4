"""Which connectors and tasks are this worker's, and which worker decides. A standalone worker has and decides all."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from felice.pipelines.connect.model.tasks import TaskId


class Group(Protocol):
    """The place of this worker among the workers."""

    @property
    def generation(self) -> int:
        """Grows whenever connectors and tasks are divided again."""

    def has_connector(self, name: str) -> bool:
        """Whether the connector is this worker's."""

    def has_task(self, task: TaskId) -> bool:
        """Whether the task is this worker's."""

    def check_leads(self) -> None:
        """Raises `NotHere` unless this worker may change configurations."""

    def check_owns_connector(self, name: str) -> None:
        """Raises `NotHere` with the address of the worker that has the connector, unless it is this one."""

    def check_owns_task(self, task: TaskId) -> None:
        """Raises `NotHere` with the address of the worker that has the task, unless it is this one."""


class Others(Protocol):
    """The other workers of the group."""

    async def wait(self, url: str | None) -> None:
        """Waits a short time until another worker than that at `url` leads."""

    async def pass_on(self, request: Request, url: str) -> Response:
        """The answer of the worker at an address. Raises `LeaderAway`, `ForwardingFailed`."""


class Alone:
    """The group of a standalone worker."""

    generation = 0

    def has_connector(self, name: str) -> bool:
        """As `Group.has_connector`."""
        return True

    def has_task(self, task: TaskId) -> bool:
        """As `Group.has_task`."""
        return True

    def check_leads(self) -> None:
        """As `Group.check_leads`."""

    def check_owns_connector(self, name: str) -> None:
        """As `Group.check_owns_connector`."""

    def check_owns_task(self, task: TaskId) -> None:
        """As `Group.check_owns_task`."""
