"""Makes connectors and tasks of their configurations, for the keeper."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from felice.pipelines.connect.configuration.connector import TASKS_MAX, TOPICS, TOPICS_REGEX
from felice.pipelines.connect.configuration.definitions import Type, parse_value
from felice.pipelines.connect.configuration.secrets import Secrets, with_references
from felice.pipelines.connect.configuration.validation import Configurations
from felice.pipelines.connect.configuration.worker_options import WorkerConfig
from felice.pipelines.connect.connector.base import Connector, SinkConnector
from felice.pipelines.connect.herder.keeper import Config, Starter
from felice.pipelines.connect.herder.offset_stores import OffsetStores
from felice.pipelines.connect.herder.publishing import Publisher
from felice.pipelines.connect.herder.states import States
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.runtime.connectors import RunningConnector
from felice.pipelines.connect.runtime.messages import Ticket
from felice.pipelines.connect.runtime.task_process import TaskSpec
from felice.pipelines.connect.runtime.tasks import Tasks
from felice.pipelines.connect.storage.configs import ConfigState

TASK_CLASS = "task.class"
_NO_TICKET = Ticket("", 0, 0, b"")


class WorkerStarter(Starter):
    """Starts on this worker."""

    def __init__(
        self,
        worker: WorkerConfig,
        configurations: Configurations,
        secrets: Secrets,
        configs: ConfigState,
        states: States,
        tasks: Tasks,
        offsets: OffsetStores,
        publisher: Publisher,
    ) -> None:
        self._worker = worker
        self._configurations = configurations
        self._secrets = secrets
        self._configs = configs
        self._states = states
        self._tasks = tasks
        self._offsets = offsets
        self._publisher = publisher
        self.on_reconfiguration: Callable[[str], None] = lambda name: None
        """Called when a connector wants to divide its work again."""

    async def connector(self, name: str, config: Config) -> RunningConnector:
        """As `Starter.connector`."""
        resolved = self._secrets.resolved(config)
        _, kind = self._configurations.connector(resolved)
        return RunningConnector(
            name,
            kind,
            resolved,
            lambda state, trace: self._states.connector(name, state, trace),
            lambda: self.on_reconfiguration(name),
            lambda: self._offsets.of(name, resolved),
        )

    async def divide(self, name: str, config: Config, connector: RunningConnector) -> None:
        """As `Starter.divide`."""
        resolved = self._secrets.resolved(config)
        _, kind = self._configurations.connector(resolved)
        given = resolved.get(TASKS_MAX, "1")
        found = await connector.task_configs(int(parse_value(TASKS_MAX, given, Type.INT)))
        if found is None:
            return
        made = [with_references(_whole(one, kind, config), config, resolved) for one in found]
        if self._differ(name, made):
            await self._publisher.publish(name, made)

    async def leave(self, name: str) -> None:
        """As `Starter.leave`."""
        await self._publisher.publish(name, [])

    async def task(self, task: TaskId, connector: Config, config: Config, *, paused: bool) -> None:
        """As `Starter.task`."""
        resolved = self._secrets.resolved(connector)
        _, kind = self._configurations.connector(resolved)
        is_sink = issubclass(kind, SinkConnector)
        if self._worker.is_exactly_once and not is_sink:
            await self._publisher.fence(task.connector)
        spec = TaskSpec(
            task,
            _NO_TICKET,
            dict(self._worker.given),
            resolved,
            self._secrets.resolved(config),
            offsets_at_worker=self._offsets.at_worker,
            paused=paused,
        )
        here = self._offsets.of(task.connector, resolved) if self._offsets.at_worker and not is_sink else None
        await self._tasks.start(spec, here)

    def _differ(self, name: str, made: list[dict[str, str]]) -> bool:
        """Whether the tasks differ from those that workers know, or were made of another configuration."""
        known = [self._configs.task_config(task) for task in self._configs.tasks(name)]
        return (
            name in self._configs.inconsistent
            or name not in self._configs.task_counts
            or known != made
            or self._configs.applied_config(name) != self._configs.connectors.get(name)
        )


def _whole(task: Mapping[str, str], kind: type[Connector], config: Config) -> dict[str, str]:
    """The configuration of a task with what the framework adds, as Kafka's workers do."""
    if not all(isinstance(one, str) for pair in task.items() for one in pair):
        raise ConnectError("the configuration of a task has a name or value that is no text")
    found = {**task, TASK_CLASS: _task_class(kind)}
    if issubclass(kind, SinkConnector):
        for name in (TOPICS, TOPICS_REGEX):
            if name in config:
                found[name] = config[name]
    return found


def _task_class(kind: type[Connector]) -> str:
    """The name of the class of the tasks: by the name of Java's connector, if it has one."""
    if kind.java_class is not None:
        return kind.java_class.removesuffix("Connector") + "Task"
    task = kind.task_class()
    return f"{task.__module__}.{task.__qualname__}"
