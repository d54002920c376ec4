"""Puts a worker together: what it stores, what it runs, and the herder that users talk to."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from felice.client.admin.core import Admin
from felice.client.error import KafkaException
from felice.client.java_keys import convert_java_keys
from felice.pipelines.connect.configuration.definitions import Type
from felice.pipelines.connect.configuration.secrets import Secrets
from felice.pipelines.connect.configuration.validation import Configurations
from felice.pipelines.connect.configuration.worker_options import (
    ADVERTISED_HOST,
    ADVERTISED_PORT,
    GRACE_MS,
    LISTENERS,
    OFFSETS_FILE,
    RESTARTS,
    TOPIC_TRACKING,
    WorkerConfig,
)
from felice.pipelines.connect.herder.group import Alone, Group, Others
from felice.pipelines.connect.herder.herder import Herder
from felice.pipelines.connect.herder.keeper import Keeper
from felice.pipelines.connect.herder.loggers import follow_level
from felice.pipelines.connect.herder.offset_stores import FileStores, OffsetStores
from felice.pipelines.connect.herder.publishing import OwnPublisher, Publisher
from felice.pipelines.connect.herder.starting import WorkerStarter
from felice.pipelines.connect.herder.states import States
from felice.pipelines.connect.model.errors import ConfigError, ConnectError
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.runtime.tasks import Jobs, Tasks
from felice.pipelines.connect.runtime.worker_links import WorkerLinks
from felice.pipelines.connect.storage.configs import ConfigState, Listener
from felice.pipelines.connect.storage.journals import Journal, MemoryJournal
from felice.pipelines.connect.storage.offset_file import OffsetFile
from felice.pipelines.connect.storage.statuses import StatusState

_log = logging.getLogger("felice.connect.herder")

START_S = 60.0
_EVERYWHERE = ("", "0.0.0.0", "::")
_HIDDEN = "[hidden]"
_SHORTEST_SECRET = 4
"""Shorter values are not searched in traces: they would be found in many words."""


class Address:
    """Where a worker listens, and where others reach it."""

    def __init__(self, config: WorkerConfig) -> None:
        listener = urlsplit(config.values[LISTENERS][0])
        self.scheme = listener.scheme.lower()
        self.host = listener.hostname or "0.0.0.0"
        self.port = listener.port or 0
        self._advertised_host: str | None = config.values[ADVERTISED_HOST]
        self._advertised_port: int | None = config.values[ADVERTISED_PORT]

    @property
    def advertised_host(self) -> str:
        """The host at which other workers reach this one."""
        host = self._advertised_host or self.host
        return socket.gethostname() if host in _EVERYWHERE else host

    @property
    def worker_id(self) -> str:
        """The worker's name in states: its host and port."""
        return f"{self.advertised_host}:{self._advertised_port or self.port}"

    @property
    def url(self) -> str:
        """Where other workers send requests."""
        host = f"[{self.advertised_host}]" if ":" in self.advertised_host else self.advertised_host
        return f"{self.scheme}://{host}:{self._advertised_port or self.port}/"


class Worker:
    """A worker of either kind. `start` and `stop` it on one event loop; the address's port must be known before."""

    def __init__(
        self,
        config: WorkerConfig,
        jobs: Jobs,
        address: Address,
        plugins: Plugins | None = None,
    ) -> None:
        """Raises `ConfigError`, `ConnectError`."""
        self.config = config
        self.address = address
        self.plugins = plugins or Plugins()
        self.secrets = Secrets(config.given)
        self.worker_config = _resolved(config, self.secrets)
        self.configurations = Configurations(self.plugins, self.worker_config.given)
        self.listener = Listener()
        self.configs = ConfigState(self.listener)
        self.statuses = StatusState()
        self.group: Group = self._make_group()
        self.config_journal: Journal = self._make_config_journal()
        self.status_journal: Journal = self._make_status_journal()
        self.offsets: OffsetStores = self._make_offsets()
        self.publisher: Publisher = self._make_publisher()
        self.links = WorkerLinks()
        self.states = States(
            self.statuses,
            self.status_journal,
            address.worker_id,
            lambda: self.group.generation,
            tracks_topics=config.values[TOPIC_TRACKING],
        )
        self.states.hide = self._without_secrets
        self.states.version = self._version
        self.tasks = Tasks(
            self.links, jobs, config.values[GRACE_MS] / 1000, self.states.task, self.states.topic
        )
        starter = WorkerStarter(
            self.worker_config,
            self.configurations,
            self.secrets,
            self.configs,
            self.states,
            self.tasks,
            self.offsets,
            self.publisher,
        )
        self.keeper = Keeper(
            self.configs, self.group, self.states, self.tasks, starter, config.values[RESTARTS]
        )
        starter.on_reconfiguration = self.keeper.divide
        self.herder = Herder(
            self.worker_config,
            self.plugins,
            self.configurations,
            self.secrets,
            self.configs,
            self.config_journal,
            self.states,
            self.keeper,
            self.group,
            self.offsets,
            waits=self.waits,
        )

    # What the kinds of workers differ in

    waits = True
    others: Others | None = None
    """The other workers of its group."""

    def _make_group(self) -> Group:
        return Alone()

    def _make_config_journal(self) -> Journal:
        return MemoryJournal(self.configs.apply)

    def _make_status_journal(self) -> Journal:
        return MemoryJournal(self.statuses.apply)

    def _make_offsets(self) -> OffsetStores:
        return FileStores(OffsetFile(Path(self.config.values[OFFSETS_FILE])))

    def _make_publisher(self) -> Publisher:
        return OwnPublisher(self.config_journal)

    # From start to stop

    async def start(self) -> None:
        """Reads what is stored, and begins to work. Raises `ConnectError`."""
        self.herder.cluster_id = await self._cluster_id()
        await self.links.start(self.address.advertised_host if self._is_on_cluster else "127.0.0.1")
        await self.config_journal.start(START_S)
        await self.status_journal.start(START_S)
        self.states.start()
        self._listen()

    async def stop(self) -> None:
        """Stops what runs, tells its states, and closes everything."""
        await self.keeper.close()
        await self.tasks.close()
        await self.states.stop()
        await self.links.close()
        await self.status_journal.stop()
        await self.config_journal.stop()

    def _listen(self) -> None:
        """From now on records of configurations are followed."""
        listener = self.listener
        listener.on_connector = listener.on_removed = self.keeper.look
        listener.on_tasks = listener.on_target_state = self.keeper.look
        listener.on_restart = self.herder.on_restart
        listener.on_logger = follow_level
        self.keeper.look_at_all()

    @property
    def _is_on_cluster(self) -> bool:
        return not self.config.spark.get("spark.master", "local").startswith("local")

    async def _cluster_id(self) -> str | None:
        """The id of the Kafka cluster. Raises `ConnectError` if it cannot be reached."""
        try:
            async with asyncio.timeout(START_S):
                async with Admin(self.client_settings()) as admin:
                    return (await admin.describe_cluster()).cluster_id
        except (KafkaException, TimeoutError) as error:
            why = error.error.str() if isinstance(error, KafkaException) else f"no answer in {START_S:g} s"
            raise ConnectError(f"the cluster cannot be reached: {why}") from error

    def client_settings(self) -> dict[str, object]:
        """The settings of the worker's own clients."""
        settings, _ = convert_java_keys(self.worker_config.client)
        return dict(settings)

    # Secrets

    def _without_secrets(self, connector: str, text: str) -> str:
        for secret in sorted(self._secrets_of(connector), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    def _secrets_of(self, connector: str) -> set[str]:
        """The values of references and of passwords."""
        config = self.configs.connectors.get(connector, {})
        try:
            resolved = self.secrets.resolved(config)
            definitions = self.configurations.connector(resolved)[1].definitions
        except ConfigError:
            return set()
        found = {resolved[name] for name in config if resolved[name] != config[name]}
        found |= {
            resolved[one.name] for one in definitions if one.type is Type.PASSWORD and one.name in resolved
        }
        # What clients need to log in stands in options that no connector defines.
        found |= {
            text for name, text in resolved.items() if re.search(r"password|secret|jaas|user\.info", name)
        }
        return {text for text in found if len(text) >= _SHORTEST_SECRET}

    def _version(self, connector: str) -> str | None:
        try:
            return self.configurations.connector(self.configs.connectors.get(connector, {}))[1].version
        except ConfigError:
            return None


def _resolved(config: WorkerConfig, secrets: Secrets) -> WorkerConfig:
    """The configuration of a worker with values in place of references."""
    given: Mapping[str, str] = secrets.resolved(config.given)
    return WorkerConfig(given, config.values, config.without_effect)
