"""Keeps what runs on this worker equal to what shall run here: compares, and does what is missing.

Keeps true:  the work of one connector is done by one task of the event loop; that of different connectors side by side.
             A task runs with the configuration of its connector from which its own was made, and starts only after its
             predecessor on this worker has ended.
             What has failed is not started again before its configuration changes or somebody asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import field
from typing import Any, TypeVar

from felice.dataclass import dataclass
from felice.pipelines.connect.herder.division import Work
from felice.pipelines.connect.herder.group import Group
from felice.pipelines.connect.herder.restarts import Restarts
from felice.pipelines.connect.herder.states import States
from felice.pipelines.connect.model.errors import ConnectError, short_trace
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.runtime.connectors import RunningConnector
from felice.pipelines.connect.runtime.progress import Progress
from felice.pipelines.connect.runtime.tasks import Tasks
from felice.pipelines.connect.storage.configs import ConfigState, TargetState

_log = logging.getLogger("felice.connect.herder")

Config = Mapping[str, str]
T = TypeVar("T")


class Starter:
    """How connectors and tasks are made of their configurations. The methods raise `ConnectError`."""

    async def connector(self, name: str, config: Config) -> RunningConnector:
        """A connector that is not started yet."""
        raise NotImplementedError

    async def divide(self, name: str, config: Config, connector: RunningConnector) -> None:
        """Asks a connector for its tasks, and makes all workers know them if they changed."""
        raise NotImplementedError

    async def leave(self, name: str) -> None:
        """Makes all workers know that a connector has no tasks any more."""
        raise NotImplementedError

    async def task(self, task: TaskId, connector: Config, config: Config, *, paused: bool) -> None:
        """Starts a task."""
        raise NotImplementedError


class _Outdated(Exception):
    """What was wanted of a connector is not wanted any more."""


@dataclass(slots=True)
class _Kept:
    """What is known of one connector."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    worker: asyncio.Task[None] | None = None
    connector: RunningConnector | None = None
    config: Config | None = None
    """That of the connector, if it is this worker's."""
    state: TargetState | None = None
    tasks: dict[int, tuple[Config, Config]] = field(default_factory=dict)
    """The configurations of connector and task with which each task was started."""
    paused: set[int] = field(default_factory=set)
    restarts_connector: bool = False
    divides: bool = False
    restarts_tasks: set[int] = field(default_factory=set)


class Keeper:
    """See the module. `look` whenever something about a connector may have changed."""

    def __init__(
        self,
        configs: ConfigState,
        group: Group,
        states: States,
        tasks: Tasks,
        starter: Starter,
        most_restarts: int = 0,
    ) -> None:
        """`most_restarts` is how many times in a row a task that failed is started again by itself."""
        tasks.on_end = lambda task, lost: self._restarts.ended(task, lost=lost)
        self._configs = configs
        self._group = group
        self._states = states
        self._tasks = tasks
        self._starter = starter
        self._restarts = Restarts(most_restarts, self._restart_by_itself)
        self._kept: dict[str, _Kept] = {}
        self._is_closing = False

    # Asking

    def progress(self, task: TaskId) -> Progress:
        """What a task tells of its work."""
        return self._tasks.progress(task)

    def look(self, name: str) -> None:
        """Compares what runs of a connector with what shall run."""
        if self._is_closing:
            return
        kept = self._kept.setdefault(name, _Kept())
        kept.idle.clear()
        kept.wake.set()
        if kept.worker is None:
            kept.worker = asyncio.get_running_loop().create_task(self._keep(name, kept))

    def look_at_all(self) -> None:
        """Compares everything."""
        for name in {*self._configs.connectors, *self._kept}:
            self.look(name)

    def restart(self, name: str, *, connector: bool = False, tasks: set[int] | None = None) -> None:
        """Starts a connector or some of its tasks again, if they are this worker's."""
        kept = self._kept.setdefault(name, _Kept())
        if connector and self._group.has_connector(name):
            kept.restarts_connector = True
        kept.restarts_tasks |= {one for one in tasks or () if self._group.has_task(TaskId(name, one))}
        self.look(name)

    def divide(self, name: str) -> None:
        """The connector wants to divide its work again."""
        kept = self._kept.get(name)
        if kept is not None:
            kept.divides = True
            self.look(name)

    async def settled(self, name: str) -> None:
        """Returns when nothing is left to do for a connector."""
        kept = self._kept.get(name)
        if kept is not None:
            await kept.idle.wait()

    def runs(self) -> Work:
        """The connectors and tasks that run here, or did not end yet."""
        return Work(
            frozenset(name for name, kept in self._kept.items() if kept.config is not None),
            frozenset(TaskId(name, number) for name, kept in self._kept.items() for number in kept.tasks),
        )

    async def close(self) -> None:
        """Stops everything, and tells it."""
        self._is_closing = True
        self._restarts.stop()
        await asyncio.gather(*(self._close(name, kept) for name, kept in self._kept.items()))

    async def _close(self, name: str, kept: _Kept) -> None:
        if kept.worker is not None:
            kept.worker.cancel()
            await asyncio.gather(kept.worker, return_exceptions=True)
        await self._stop_tasks(name, kept, set(kept.tasks))
        connector, kept.connector = kept.connector, None
        if connector is not None:
            await connector.end()
            self._states.connector(name, TaskState.UNASSIGNED)

    def _restart_by_itself(self, task: TaskId) -> None:
        kept = self._kept.get(task.connector)
        # A user may have started it meanwhile.
        if kept is not None and task.number in kept.tasks and task not in self._tasks:
            self._states.task(task, TaskState.RESTARTING)
            kept.restarts_tasks.add(task.number)
            self.look(task.connector)

    # Doing

    async def _keep(self, name: str, kept: _Kept) -> None:
        while True:
            kept.wake.clear()
            try:
                await self._bring(name, kept)
            except _Outdated:
                continue
            except Exception:
                _log.exception("the work for connector %s failed", name)
            if kept.wake.is_set():
                continue
            kept.idle.set()
            if kept.config is None and not kept.tasks and name not in self._configs.connectors:
                del self._kept[name]
                return
            await kept.wake.wait()

    async def _bring(self, name: str, kept: _Kept) -> None:
        await self._bring_connector(name, kept)
        await self._bring_tasks(name, kept)

    # The connector

    async def _bring_connector(self, name: str, kept: _Kept) -> None:
        config = self._wanted_config(name)
        state = self._configs.target_state(name)
        if kept.config is not None and (config != kept.config or kept.restarts_connector):
            await self._end_connector(name, kept)
        kept.restarts_connector = False
        if config is None or state is None:
            return
        is_new = kept.config is None
        if is_new:
            kept.config = config
            kept.connector = await self._told(name, self._starter.connector(name, config))
        connector = kept.connector
        if connector is None:
            return
        follows = not connector.has_failed
        if is_new or state is not kept.state:
            kept.state = state
            follows = await self._while_wanted(name, kept, connector.follow(state))
            kept.divides = state is TargetState.STARTED
        if state is TargetState.STOPPED and (
            self._configs.task_counts.get(name) or name in self._configs.inconsistent
        ):
            await self._told(name, self._starter.leave(name))
        elif kept.divides and state is TargetState.STARTED and follows:
            kept.divides = False
            dividing = self._starter.divide(name, config, connector)
            await self._told(name, self._while_wanted(name, kept, dividing))
        self._forget_old_tasks(name)

    def _wanted_config(self, name: str) -> Config | None:
        """The configuration of a connector that shall run here; None if it shall not."""
        return self._configs.connectors.get(name) if self._group.has_connector(name) else None

    async def _while_wanted(self, name: str, kept: _Kept, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call of a connector, which may take long.

        Raises `_Outdated` when its configuration has changed before: the call is left, and the connector ended.
        """
        work = asyncio.ensure_future(call)
        was_woken = False
        try:
            while not work.done():
                waking = asyncio.ensure_future(kept.wake.wait())
                await asyncio.wait({work, waking}, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if work.done():
                    break
                was_woken = True
                kept.wake.clear()
                if self._wanted_config(name) != kept.config or kept.restarts_connector:
                    raise _Outdated
        finally:
            work.cancel()
            if was_woken:
                kept.wake.set()
        return await work

    async def _told(self, name: str, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of work for a connector; None if it failed, which is told as the connector's state."""
        try:
            return await work
        except ConnectError as error:
            self._states.connector(name, TaskState.FAILED, short_trace(error))
            return None

    async def _end_connector(self, name: str, kept: _Kept) -> None:
        connector, kept.connector = kept.connector, None
        kept.config = kept.state = None
        if connector is not None:
            await connector.end()
        if name not in self._configs.connectors:
            self._states.forget(name)
        elif not self._group.has_connector(name):
            self._states.connector(name, TaskState.UNASSIGNED)

    def _forget_old_tasks(self, name: str) -> None:
        """Forgets the states of tasks that a connector has no more, also of those that ran elsewhere."""
        count = self._configs.task_counts.get(name)
        if count is not None and name not in self._configs.inconsistent:
            for number in self._states.state.tasks(name):
                if number >= count and TaskId(name, number) not in self._tasks:
                    self._states.task(TaskId(name, number), TaskState.DESTROYED)

    # Its tasks

    async def _bring_tasks(self, name: str, kept: _Kept) -> None:
        wanted = self._wanted_tasks(name)
        restarts, kept.restarts_tasks = kept.restarts_tasks, set()
        await self._stop_tasks(
            name,
            kept,
            {
                number
                for number, found in kept.tasks.items()
                if wanted.get(number) != found or number in restarts
            },
        )
        paused = self._configs.target_state(name) is TargetState.PAUSED
        for number, (connector, config) in wanted.items():
            task = TaskId(name, number)
            if number in kept.tasks:
                self._pause(kept, task, paused=paused)
                continue
            kept.tasks[number] = connector, config
            (kept.paused.add if paused else kept.paused.discard)(number)
            if number not in restarts:
                self._states.task(task, TaskState.UNASSIGNED)  # until it reports that it runs
            try:
                await self._starter.task(task, connector, config, paused=paused)
            except ConnectError as error:
                self._states.task(task, TaskState.FAILED, short_trace(error))

    def _wanted_tasks(self, name: str) -> dict[int, tuple[Config, Config]]:
        """The tasks that shall run here, with the configurations of connector and task."""
        connector = self._configs.applied_config(name)
        state = self._configs.target_state(name)
        if connector is None or state is None or state is TargetState.STOPPED:
            return {}
        found: dict[int, tuple[Config, Config]] = {}
        for task in self._configs.tasks(name):
            config = self._configs.task_config(task)
            if config is not None and self._group.has_task(task):
                found[task.number] = connector, config
        return found

    async def _stop_tasks(self, name: str, kept: _Kept, numbers: set[int]) -> None:
        await asyncio.gather(*(self._tasks.stop(TaskId(name, number)) for number in numbers))
        for number in numbers:
            del kept.tasks[number]
            task = TaskId(name, number)
            if self._configs.target_state(name) is None or not self._group.has_task(task):
                self._restarts.forget(task)
            if name not in self._configs.connectors or number >= self._configs.task_counts.get(name, 0):
                self._states.task(task, TaskState.DESTROYED)
            elif self._is_closing or not self._group.has_task(task):
                self._states.task(task, TaskState.UNASSIGNED)

    def _pause(self, kept: _Kept, task: TaskId, *, paused: bool) -> None:
        if paused is (task.number in kept.paused):
            return
        if paused:
            kept.paused.add(task.number)
            self._tasks.pause(task)
        else:
            kept.paused.discard(task.number)
            self._tasks.resume(task)
