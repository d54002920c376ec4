"""One Spark for several workers of a process."""

from __future__ import annotations

from collections.abc import Callable

from felice.pipelines.connect.runtime.task_process import TaskSpec
from felice.pipelines.connect.runtime.tasks import Jobs


class SharedJobs:
    """Jobs of several workers (`Jobs`): a worker that closes them leaves those of the others."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def start(self, spec: TaskSpec, on_end: Callable[[BaseException | None], None]) -> str:
        """As `Jobs.start`."""
        return await self._jobs.start(spec, on_end)

    def cancel(self, name: str) -> None:
        """As `Jobs.cancel`."""
        self._jobs.cancel(name)

    async def close(self) -> None:
        """Nothing: the worker has stopped its own tasks before."""

    async def end(self) -> None:
        """As `Jobs.close`, when all workers have ended."""
        await self._jobs.close()
