"""When a task that ended is started again by itself: at once at first, then after longer and longer waits.

Keeps true:  a task whose process was lost is always started again: a machine can be lost, and the task did not fail.
             A task that failed is started again only with `task.restart.max.attempts`, at most so many times in a row.
             A task that has run for `CALM_S` begins anew with short waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import field

from felice.dataclass import dataclass
from felice.pipelines.connect.model.tasks import TaskId

_log = logging.getLogger("felice.connect.herder")

FIRST_S, LONGEST_S = 1.0, 60.0
CALM_S = 600.0


@dataclass(slots=True)
class _Tries:
    count: int = 0
    last_s: float = field(default=float("-inf"))
    timer: asyncio.TimerHandle | None = None


class Restarts:
    """See the module. `restart` starts a task again."""

    def __init__(self, most_failures: int, restart: Callable[[TaskId], None]) -> None:
        """`most_failures` is how many times in a row a task that failed is started again."""
        self._most_failures = most_failures
        self._restart = restart
        self._tries: dict[TaskId, _Tries] = {}

    def ended(self, task: TaskId, *, lost: bool) -> bool:
        """A task ended by itself: it failed, or its process was lost. Returns whether it is started again."""
        loop = asyncio.get_running_loop()
        tries = self._tries.setdefault(task, _Tries())
        if loop.time() - tries.last_s > CALM_S:
            tries.count = 0
        if not lost and tries.count >= self._most_failures:
            return False
        wait_s = min(LONGEST_S, FIRST_S * 2.0 ** min(tries.count, 10))
        tries.count += 1
        tries.last_s = loop.time() + wait_s
        _log.warning("task %s is started again in %g s", task, wait_s)
        tries.timer = loop.call_later(wait_s, self._restart, task)
        return True

    def forget(self, task: TaskId) -> None:
        """A task was stopped or started by a user or the group: what was planned for it is off."""
        tries = self._tries.pop(task, None)
        if tries is not None and tries.timer is not None:
            tries.timer.cancel()

    def stop(self) -> None:
        """Nothing is started any more."""
        for task in list(self._tries):
            self.forget(task)
