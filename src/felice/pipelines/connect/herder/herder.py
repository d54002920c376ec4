"""What users ask of a worker: to create, change, stop, restart and delete connectors, and to tell about them.

Keeps true:  a configuration is written only after it was checked, and one request after another changes configurations.
             Requests that another worker must carry out raise `NotHere`.
Source:      statuses and texts are those of Kafka Connect 4.3's distributed worker; where its standalone worker answers
             with an error of Java (500), this one gives the same 404 as the distributed one.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from felice.client.admin import AdminClient
from felice.client.error import KafkaException
from felice.dataclass import dataclass
from felice.pipelines.connect.configuration.connector import NAME
from felice.pipelines.connect.configuration.secrets import Secrets
from felice.pipelines.connect.configuration.validation import Configurations, Validation
from felice.pipelines.connect.configuration.worker import GROUP, Client, client_config
from felice.pipelines.connect.configuration.worker_options import TOPIC_RESET, TOPIC_TRACKING, WorkerConfig
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.herder.errors import bad_request, conflict, forbidden, not_found
from felice.pipelines.connect.herder.group import Group
from felice.pipelines.connect.herder.keeper import Keeper
from felice.pipelines.connect.herder.offset_stores import OffsetStores
from felice.pipelines.connect.herder.offsets import OffsetsOf
from felice.pipelines.connect.herder.states import States
from felice.pipelines.connect.model.errors import ConfigError, ConnectError
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.runtime.progress import Progress
from felice.pipelines.connect.storage.configs import (
    ConfigState,
    RestartRequest,
    TargetState,
    connector_record,
    fencing_record,
    logger_record,
    restart_record,
    session_key_record,
    target_state_record,
    task_records,
)
from felice.pipelines.connect.storage.journals import Journal
from felice.pipelines.connect.storage.json_records import Record
from felice.pipelines.connect.storage.statuses import Status

Config = Mapping[str, str]

_FENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Info:
    """What a connector is: `type` is `source`, `sink` or `unknown`."""

    name: str
    config: Config
    tasks: tuple[TaskId, ...]
    type: str


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """What a connector and its tasks do."""

    name: str
    connector: Status
    tasks: Mapping[int, Status]
    type: str


class Herder:
    """See the module. It is used on the event loop."""

    def __init__(
        self,
        worker: WorkerConfig,
        plugins: Plugins,
        configurations: Configurations,
        secrets: Secrets,
        configs: ConfigState,
        journal: Journal,
        states: States,
        keeper: Keeper,
        group: Group,
        offsets: OffsetStores,
        *,
        waits: bool,
    ) -> None:
        """With `waits` a request that changes a connector returns when the change is done on this worker."""
        self.worker = worker
        self.plugins = plugins
        self.configurations = configurations
        self.cluster_id: str | None = None
        self._secrets = secrets
        self._configs = configs
        self._journal = journal
        self._states = states
        self._keeper = keeper
        self._group = group
        self._offsets = offsets
        self._waits = waits
        self._writing = asyncio.Lock()

    # Questions

    def names(self) -> list[str]:
        """The names of all connectors."""
        return sorted(self._configs.connectors)

    def info(self, name: str) -> Info:
        """What a connector is. Raises `RequestError` (404)."""
        config = self.config(name)
        return Info(name, config, tuple(self._configs.tasks(name)), self._type(config))

    def config(self, name: str) -> Config:
        """The configuration of a connector, with its references. Raises `RequestError` (404)."""
        config = self._configs.connectors.get(name)
        if config is None:
            raise not_found(f"Connector {name} not found")
        return config

    def task_configs(self, name: str) -> list[tuple[TaskId, Config]]:
        """The configurations of a connector's tasks. Raises `RequestError` (404)."""
        self.config(name)
        found = ((task, self._configs.task_config(task)) for task in self._configs.tasks(name))
        return [(task, config) for task, config in found if config is not None]

    def status(self, name: str) -> ConnectorStatus:
        """What a connector and its tasks do. Raises `RequestError` (404)."""
        status = self._states.state.connectors.get(name)
        if status is None:
            raise not_found(f"No status found for connector {name}")
        config = self._configs.connectors.get(name, {})
        return ConnectorStatus(name, status, self._states.state.tasks(name), self._type(config))

    def task_status(self, task: TaskId) -> Status:
        """What a task does. Raises `RequestError` (404)."""
        status = self._states.state.task(task)
        if status is None:
            raise not_found(f"No status found for task {task}")
        return status

    def topics(self, name: str) -> list[str]:
        """The topics that a connector has used. Raises `RequestError` (403) if they are not noted."""
        if not self.worker.values[TOPIC_TRACKING]:
            raise forbidden("Topic tracking is disabled.")
        return sorted(self._states.state.topics.get(name, {}))

    def forget_topics(self, name: str) -> None:
        """Forgets the topics that a connector has used. Raises `RequestError` (403)."""
        if not self.worker.values[TOPIC_TRACKING]:
            raise forbidden("Topic tracking is disabled.")
        if not self.worker.values[TOPIC_RESET]:
            raise forbidden("Topic tracking reset is disabled.")
        self._states.forget_topics(name)

    async def validate(self, config: Config) -> Validation:
        """All that is wrong with a configuration. Raises `ConfigError` if it names no connector."""
        # A connector may ask its system whether the options are right.
        return await asyncio.to_thread(self._validate, config)

    def _validate(self, config: Config) -> Validation:
        resolved = self._secrets.resolved(config)
        found = self.configurations.validate(resolved)
        hidden = {name: config[name] for name in config if resolved[name] != config[name]}
        return found.with_values(hidden, {name: resolved[name] for name in hidden}) if hidden else found

    def _type(self, config: Config) -> str:
        try:
            plugin, _ = self.configurations.connector(config)
        except ConfigError:
            return "unknown"
        return plugin.kind.text

    # Changes

    async def create(
        self, name: str, config: Config, state: TargetState | None = None, *, waits: bool = True
    ) -> Info:
        """Creates a connector, which begins in a state. Raises `RequestError` (400, 409), `NotHere`.

        Without `waits` it returns when the configuration is written.
        """
        async with self._changing():
            if name in self._configs.connectors:
                raise conflict(f"Connector {name} already exists")
            await self._check(name, config)
            if name in self._configs.connectors:
                raise conflict(f"Connector {name} already exists")
            records = [] if state is None else [target_state_record(name, state)]
            await self._write([*records, connector_record(name, config)])
        if waits:
            await self._settled(name)
        return self.info(name)

    async def put_config(self, name: str, config: Config, *, waits: bool = True) -> tuple[Info, bool]:
        """Creates a connector, or replaces its configuration. Returns whether it is new. Raises as `create`.

        Without `waits` it returns when the configuration is written.
        """
        async with self._changing():
            await self._check(name, config)
            is_new = name not in self._configs.connectors
            await self._write([connector_record(name, config)])
        if waits:
            await self._settled(name)
        return self.info(name), is_new

    async def patch_config(self, name: str, changes: Mapping[str, str | None]) -> Info:
        """Changes options of a connector, and removes those that are None. Raises as `create`, and 404."""
        async with self._changing():
            merged: dict[str, str | None] = {**self.config(name), **changes}
            config = {option: text for option, text in merged.items() if text is not None}
            await self._check(name, config)
            await self._write([connector_record(name, config)])
        await self._settled(name)
        return self.info(name)

    async def delete(self, name: str) -> None:
        """Deletes a connector. Its offsets stay. Raises `RequestError` (404), `NotHere`."""
        async with self._changing():
            self.config(name)
            await self._write([connector_record(name, None), target_state_record(name, None)])
        await self._settled(name)

    async def set_target_state(self, name: str, state: TargetState) -> None:
        """Pauses, resumes or stops a connector. Raises `RequestError` (404), `NotHere`."""
        self._check_known(name, "Unknown connector {}")
        async with self._changing():
            self._check_known(name, "Unknown connector {}")
            await self._write([target_state_record(name, state)])
        await self._settled(name)

    async def restart_connector(self, name: str) -> None:
        """Starts a connector again, without its tasks. Raises `RequestError` (404), `NotHere`."""
        self._check_known(name, "Unknown connector: {}")
        self._group.check_owns_connector(name)
        self._states.connector(name, TaskState.RESTARTING)
        self._keeper.restart(name, connector=True)
        await self._settled(name)

    async def restart_task(self, task: TaskId) -> None:
        """Starts a task again. Raises `RequestError` (404), `NotHere`."""
        self._check_known(task.connector, "Unknown connector: {}")
        if task not in self._configs.tasks(task.connector):
            raise not_found(f"Unknown task: {task}")
        self._group.check_owns_task(task)
        self._states.task(task, TaskState.RESTARTING)
        self._keeper.restart(task.connector, tasks={task.number})
        await self._settled(task.connector)

    def task_progress(self, task: TaskId) -> Progress:
        """What a task of this worker tells of its work. Raises `RequestError` (404), `NotHere`."""
        self._check_known(task.connector, "Unknown connector: {}")
        if task not in self._configs.tasks(task.connector):
            raise not_found(f"Unknown task: {task}")
        self._group.check_owns_task(task)
        return self._keeper.progress(task)

    async def restart(self, request: RestartRequest) -> ConnectorStatus:
        """Starts a connector and its tasks again as asked. Returns the states with those that will be restarted.

        Raises `RequestError` (404), `NotHere`.
        """
        self._check_known(request.connector, "Unknown connector: {}")
        async with self._changing():
            found = self._restarting(request)
            await self._write([restart_record(request)])
        return found

    def on_restart(self, request: RestartRequest) -> None:
        """Does a restart that any worker wrote, as far as it is this worker's."""
        if request.connector not in self._states.state.connectors:
            return
        found = self._restarting(request)
        connector = found.connector.state is TaskState.RESTARTING
        numbers = {number for number, one in found.tasks.items() if one.state is TaskState.RESTARTING}
        if connector and self._group.has_connector(request.connector):
            self._states.connector(request.connector, TaskState.RESTARTING)
        for number in numbers:
            if self._group.has_task(task := TaskId(request.connector, number)):
                self._states.task(task, TaskState.RESTARTING)
        self._keeper.restart(request.connector, connector=connector, tasks=numbers)

    def _restarting(self, request: RestartRequest) -> ConnectorStatus:
        """The status with RESTARTING where the request restarts."""
        found = self.status(request.connector)

        def of(status: Status) -> Status:
            if request.only_failed and status.state is not TaskState.FAILED:
                return status
            return Status(
                TaskState.RESTARTING, status.worker_id, status.generation, status.trace, status.version
            )

        tasks = (
            {number: of(one) for number, one in found.tasks.items()} if request.include_tasks else found.tasks
        )
        return ConnectorStatus(found.name, of(found.connector), tasks, found.type)

    async def set_level_everywhere(self, logger: str, level: str) -> None:
        """Sets the level of a logger on all workers. Raises `NotHere`."""
        async with self._changing():
            await self._write([logger_record(logger, level)])

    # Offsets

    async def offsets(self, name: str) -> list[tuple[Place, Place]]:
        """The offsets of a connector. Raises `RequestError` (404), `ConnectError`."""
        return await self._offsets_of(name).read()

    async def change_offsets(self, name: str, changes: Sequence[tuple[Place, Place | None]] | None) -> str:
        """Sets offsets, or resets all for None. Returns what to tell the user.

        Raises `RequestError` (404, and 400 unless the connector is stopped), `NotHere`, `ConnectError`.
        """
        async with self._changing():
            await self._journal.catch_up()
            found = self._offsets_of(name)
            if self._configs.target_state(name) is not TargetState.STOPPED or self._configs.tasks(name):
                raise bad_request(
                    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done "
                    "for the specified connector by issuing a 'PUT' request to the "
                    f"'/connectors/{name}/stop' endpoint"
                )
            return await found.change(changes)

    def _offsets_of(self, name: str) -> OffsetsOf:
        config = self._secrets.resolved(self.config(name))
        _, kind = self.configurations.connector(config)
        task = TaskId(name, 0)
        consumer = client_config(self.worker.given, config, Client.CONSUMER, task)
        return OffsetsOf(
            name,
            kind,
            config,
            lambda: self._offsets.opened(name, config),
            lambda: AdminClient(client_config(self.worker.given, config, Client.ADMIN, task)),
            str(consumer.get("group.id") or f"connect-{name}"),
        )

    # What workers ask of their leader

    async def publish(self, name: str, tasks: Sequence[Config]) -> None:
        """Replaces the configurations of a connector's tasks. Raises `RequestError` (404), `NotHere`."""
        async with self._changing():
            self.config(name)
            await self._write(task_records(name, list(tasks)))

    async def fence(self, name: str) -> None:
        """Fences the tasks of older generations of a source (KIP-618). Raises `RequestError`, `NotHere`.

        Tasks of the same number share a transactional id, so that each fences its predecessor: only ids that no task
        has any more, or whose task is not started yet, need it.
        """
        async with self._changing():
            self.config(name)
            if name not in self._configs.needs_fencing and name in self._configs.fenced_counts:
                return
            before, now = self._configs.fenced_counts.get(name, 0), len(self._configs.tasks(name))
            if (before, now) != (1, 1) and before:
                ids = [self.transactional_id(TaskId(name, number)) for number in range(before)]
                await asyncio.to_thread(self._fence, name, ids)
            await self._write([fencing_record(name, now)])

    async def lead(self) -> None:
        """Begins to lead: from now on no other worker writes, and workers know the key of their requests."""
        async with self._changing():
            if self._configs.session_key is None:
                await self._write([session_key_record(secrets.token_bytes(32), time.time())])

    @property
    def session_key(self) -> bytes | None:
        """The key with which workers sign what they ask of each other."""
        found = self._configs.session_key
        return None if found is None else base64.b64decode(str(found.get("key", "")))

    def transactional_id(self, task: TaskId) -> str:
        """The transactional id of a source's task."""
        return f"connect-{self.worker.values[GROUP]}-{task}"

    def _fence(self, name: str, ids: Sequence[str]) -> None:
        config = self._secrets.resolved(self.config(name))
        admin = AdminClient(client_config(self.worker.given, config, Client.ADMIN, TaskId(name, 0)))
        try:
            for future in admin.fence_producers(ids, request_timeout=_FENCE_S).values():
                future.result()
        except KafkaException as error:
            raise ConnectError(
                f"the tasks of connector {name} cannot be fenced: {error.error.str()}"
            ) from error
        finally:
            admin.close()

    # Helpers

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """The right to change configurations, for one request at a time. Raises `NotHere`, `ConnectError`."""
        self._group.check_leads()
        async with self._writing:
            await self._journal.prepare()
            self._group.check_leads()
            yield

    async def _check(self, name: str, config: Config) -> None:
        """Raises `RequestError` (400) with all that is wrong with a configuration."""
        if config.get(NAME) != name:
            raise bad_request(
                f"Connector name configuration ({config.get(NAME)}) doesn't match connector name in the URL ({name})"
            )
        try:
            found = await self.validate(config)
        except ConfigError as error:
            raise bad_request(str(error)) from error
        errors = [error for _, value in found.configs for error in value.errors]
        if errors:
            listed = "\n".join(errors)
            raise bad_request(
                f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n{listed}\n"
                "You can also find the above list of errors at the endpoint "
                "`/connector-plugins/{connectorType}/config/validate`"
            )

    def _check_known(self, name: str, message: str) -> None:
        if name not in self._configs.connectors:
            raise not_found(message.format(name))

    async def _write(self, records: Sequence[Record]) -> None:
        await self._journal.write(records)

    async def _settled(self, name: str) -> None:
        if self._waits:
            await self._keeper.settled(name)
            await self._states.flush()
