"""One broker: starts and stops its components in order.

Keeps true: clients are answered only when the broker is ready; earlier connections wait. A start that fails reports the
            reason in one line (`StartupError`) and leaves nothing running. A stop finishes the requests in progress,
            flushes all logs and marks the directories clean.
How:        `start` follows the dependencies: metadata store, log directories, image, components, listeners,
            registration. `lifecycle` has the states between these steps.
Leaves:     creating the components to `composition`; new metadata images to `image_follower`; identity, registration
            and sessions to `membership`; the controller's duties to `controller`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping

from felice.config import BrokerConfig
from felice.config.monitoring import ENDPOINT
from felice.controller import features
from felice.controller.controller import Controller
from felice.env import Environment
from felice.env.key_stores import TlsError
from felice.metadata import ClusterImage
from felice.metadata.store import MetadataStore, StoreError
from felice.metadata.watcher import Watcher
from felice.server.composition import Basis, Parts, compose
from felice.server.configs.settings import Settings
from felice.server.disks.cleaning import Cleaner
from felice.server.disks.log_directories import LogDirectories
from felice.server.handlers.table import GuardedHandlers, Handle, Handlers
from felice.server.lifecycle import Lifecycle, State
from felice.server.membership.identity import broker_id_of, other_cluster, prepare_store
from felice.server.membership.membership import Membership
from felice.server.membership.store_sources import StoreSource, source_of
from felice.server.metrics.remote_offsets import RemoteOffsets
from felice.server.monitoring.endpoint import Monitoring
from felice.server.monitoring.sources import Sources
from felice.server.net.listener import Listener, check_free
from felice.server.net.session import Session
from felice.server.security.inter_broker import InterBrokerSecurity
from felice.server.security.tls import TlsListeners
from felice.server.services import Services
from felice.server.startup import StartupError

_log = logging.getLogger("felice.server")

_DRAIN_TIMEOUT_S = 3.0
_CONTROLLER_TIMEOUT_S = 3.0


class Broker:
    """One broker. Call `start`, let it serve, and call `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        handlers: Mapping[int, Handle] | None = None,
        store_source: StoreSource | None = None,
    ) -> None:
        self.env = env
        self.settings = Settings(config)
        self.lifecycle = Lifecycle()
        # -1 until `start` has generated an id, if the configuration requires a generated one.
        self.broker_id = config.node_id
        # Tests can replace the table of handlers. The replacement costs nothing at run time.
        given = Handlers() if handlers is None else handlers
        self.handlers = GuardedHandlers(given) if config.has_authorizer else given
        self.directories = LogDirectories()
        self.listeners: list[Listener] = []
        self._tls = TlsListeners()
        self._store_source = source_of(config, env) if store_source is None else store_source
        self._basis = Basis(
            env,
            self.settings,
            self.lifecycle,
            self.directories,
            self._tls,
            InterBrokerSecurity(self.settings, self._tls, env.random, env.clock.now_ms),
            self._store_source,
            self.handlers,
            self.listeners,
        )
        self.monitoring = Monitoring(env, self._basis.config, self.lifecycle)
        self._store: MetadataStore | None = None
        self._watcher: Watcher | None = None
        self._parts: Parts | None = None
        self._starting: asyncio.Future[None] | None = None
        self._start_ended = asyncio.Event()
        self._is_interrupted = False
        self._is_killed = False

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force at this moment."""
        return self.settings.config

    @property
    def is_composed(self) -> bool:
        """Whether `services` and the components exist. They are created after the logs were recovered."""
        return self._parts is not None

    @property
    def services(self) -> Services:
        """The dependencies of request handlers."""
        return self._made.services

    @property
    def image(self) -> ClusterImage:
        """The current metadata image."""
        return self.services.image

    @property
    def controller(self) -> Controller:
        """The part of this broker that acts when it is elected controller. Exists from JOINING on."""
        return self._made.controller

    @property
    def cleaner(self) -> Cleaner:
        """The periodic compaction of logs. Exists from JOINING on."""
        return self._made.cleaner

    @property
    def membership(self) -> Membership:
        """The registration of this broker in the metadata store. Exists from JOINING on."""
        return self._made.membership

    @property
    def _made(self) -> Parts:
        assert self._parts is not None, "the broker has been started"
        return self._parts

    @property
    def sessions(self) -> list[Session]:
        """The open connections of all listeners."""
        return self._basis.sessions()

    def port(self, listener: str | None = None) -> int:
        """Returns the port to which a listener (by default the first) is bound."""
        return next(found.port for found in self.listeners if listener in (None, found.name))

    # Starting

    async def start(self) -> None:
        """Starts the broker, and returns when it is ready to serve.

        Raises `StartupError`, also when `stop` or `kill` is called meanwhile.
        """
        self._starting = asyncio.ensure_future(self._start())
        try:
            await self._starting
        except asyncio.CancelledError:
            await self._abandon(ends_session=not self._is_killed)
            if self._is_interrupted:
                raise StartupError("the broker was stopped before it was ready") from None
            raise
        except StoreError as error:
            await self._abandon()
            raise StartupError(f"the metadata store cannot be used: {error}") from error
        except BaseException:
            await self._abandon()
            raise
        finally:
            self._start_ended.set()

    async def _start(self) -> None:
        self.lifecycle.enter(State.LOADING)
        await check_free(self.env.network, self.config.parsed_listeners)
        is_monitored = self._may_monitor_early()
        if is_monitored:
            await self.monitoring.start(self._tls)
        parts = await self._compose()
        if not is_monitored:
            await self.monitoring.start(self._tls)
        self.lifecycle.enter(State.JOINING)
        await parts.services.security.logins.start()
        for listener in self.listeners:
            await listener.start()
        await parts.membership.join()
        parts.controller.start()
        await parts.services.watcher.wait_until(lambda image: image.controller_id >= 0, _CONTROLLER_TIMEOUT_S)
        await parts.services.image_follower.lead_again()
        if self.lifecycle.failure is not None:
            # The last usable disk failed while the logs of the image were created, or the store has another cluster.
            raise StartupError(self.lifecycle.failure)
        self._serve(parts)
        _log.info(
            "broker ready",
            extra={
                "broker": self.broker_id,
                "cluster": parts.membership.cluster_id,
                "partitions": len(parts.services.partitions),
                "port": self.port(),
            },
        )

    def _may_monitor_early(self) -> bool:
        """Whether metrics can be served before the logs are recovered.

        With TLS the endpoint then uses the keys that the configuration file names. The metadata store may name newer
        keys, and the keys of the file may be deleted: then the broker serves metrics when the store is open.
        """
        if not self.config.serves_metrics_by_tls:
            return True
        try:
            self._tls.load_one(self.config, ENDPOINT)
        except TlsError as error:
            _log.warning("metrics are served after the logs are recovered", extra={"reason": str(error)})
            return False
        return True

    async def _compose(self) -> Parts:
        """Opens the metadata store, recovers the logs, and creates the components. Nothing runs yet."""
        store, watcher, cluster_id = await self._open_store()
        await self.directories.load(lambda topic: self.settings.topic_config(watcher.image, topic))
        self._parts = compose(self._basis, self.broker_id, cluster_id, store, watcher)
        return self._parts

    async def _open_store(self) -> tuple[MetadataStore, Watcher, str]:
        """Opens the store, locks the log directories and determines this broker's id.

        Returns the store, the watcher of its image, and the cluster id.
        """
        env, source = self.env, self._store_source
        store = self._store = await source.open()
        log_dirs = self.config.log_directories
        cluster_id = await prepare_store(store, self._new_uuid, env.disk, log_dirs, source.where)
        self.broker_id = await broker_id_of(self.config, env.disk, store, stands_alone=source.stands_alone)
        self.directories.acquire(env, self.config, self.broker_id, cluster_id, self._new_uuid)
        watcher = self._watcher = Watcher(
            store,
            self._on_image,
            self._prepare,
            cluster_id=cluster_id,
            on_other_cluster=self._on_other_cluster,
        )
        await watcher.start()
        if watcher.image.cluster_id is None:
            raise StartupError(f"the metadata store lost cluster {cluster_id} while this broker started")
        if reason := features.unsupported_level(watcher.image.features):
            raise StartupError(reason)
        self.settings.follow(watcher.image, self.broker_id)
        self._load_tls()
        self.directories.reconfigure(self.config)
        return store, watcher, cluster_id

    def _load_tls(self) -> None:
        try:
            self._tls.load(self.config)
        except TlsError as error:
            raise StartupError(str(error)) from None

    def _serve(self, parts: Parts) -> None:
        self.lifecycle.enter(State.RUNNING)
        services = parts.services
        parts.maintenance.start()
        parts.cleaner.start()
        services.disks.replica_moves.start()
        for listener in self.listeners:
            listener.open()
        remote_offsets = RemoteOffsets(services.watcher, parts.replication.peers)
        self.monitoring.follow(
            Sources(services, parts.cleaner, self.listeners, self.monitoring.watch, remote_offsets)
        )
        parts.membership.check_own_addresses()
        # The event loop calls this before it reads the first request.
        asyncio.get_running_loop().call_soon(self._start_coordinators)

    def _start_coordinators(self) -> None:
        if not self.lifecycle.is_stopping:
            self.services.coordinators.start()

    def _new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.env.random.getrandbits(128), version=4)

    async def _prepare(self, new: ClusterImage) -> None:
        if self._parts is not None:
            await self._parts.services.image_follower.prepare(new)

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        if self._parts is not None:
            self._parts.services.quotas.follow(new)
            self._parts.services.image_follower.on_image(old, new)
            self._parts.services.flow.request_log.follow(self.config)

    def _on_other_cluster(self, found: str) -> None:
        """The store has another cluster: it was emptied and used again, or replaced. Its topics are not those here."""
        if self._parts is None or self.lifecycle.has_stop_begun:
            return
        self._parts.services.image_follower.stop_leading()
        if self.lifecycle.failure is None:
            self.lifecycle.fail(other_cluster(self._parts.membership.cluster_id, found))

    # Stopping

    async def retire(self) -> None:
        """Resigns as controller and stops fetching. Call it on every broker before all brokers stop together."""
        await self._made.controller.stop()
        await self._made.replication.fetchers.stop()

    async def _interrupt_start(self) -> None:
        """Cancels a start in progress. `start` then releases everything and raises `StartupError`."""
        if self._starting is not None and not self._start_ended.is_set():
            self._is_interrupted = True
            self._starting.cancel()
            await self._start_ended.wait()

    async def stop(self, *, hand_over: bool = True) -> None:
        """Hands leaderships over, finishes the requests in progress, and flushes all logs. Interrupts a start."""
        await self._interrupt_start()
        if self.lifecycle.has_stop_begun:
            return
        parts = self._parts
        if parts is None:
            # No log was recovered yet, so no directory may be marked clean.
            await self._abandon()
            return
        self.lifecycle.enter(State.LEAVING)
        if (
            hand_over
            and parts.services.image_follower.is_following
            and self.config.controlled_shutdown_enable
        ):
            # The leaders would add a follower that goes on fetching back to the ISRs that it is leaving.
            await parts.replication.fetchers.stop()
            await parts.membership.hand_over()
        self.lifecycle.enter(State.STOPPING)
        await self._finish_requests(parts)
        await self.monitoring.leave()
        await self._stop_components(parts)
        await self._close_directories(parts)
        await self._close_store()
        _log.info("broker stopped", extra={"broker": self.broker_id})

    async def _finish_requests(self, parts: Parts) -> None:
        for listener in self.listeners:
            await listener.stop_accepting()
        parts.services.coordinators.stop()
        for partition in parts.services.partitions:
            partition.wake_readers()
        for listener in self.listeners:
            await listener.drain(_DRAIN_TIMEOUT_S)

    async def _stop_components(self, parts: Parts) -> None:
        await parts.replication.stop()
        await parts.cleaner.stop()
        await parts.services.disks.replica_moves.stop()
        await parts.maintenance.stop()
        await parts.services.topics.auto.finish()

    async def _close_directories(self, parts: Parts) -> None:
        parts.services.image_follower.stop()
        await parts.services.image_follower.wait_until_logs_are_made()
        for partition in parts.services.partitions:
            await partition.flusher.finish()
        await self.directories.close(parts.services.partitions.high_watermarks)

    async def kill(self) -> None:
        """Ends like a killed process: sends no further response and marks no directory clean."""
        self._is_killed = True
        await self._interrupt_start()
        if self.lifecycle.has_stop_begun:
            return
        self.lifecycle.enter(State.STOPPING)
        await self.monitoring.leave()
        for listener in self.listeners:
            await listener.stop_accepting()
            listener.abort("the broker was killed")
        if (parts := self._parts) is not None:
            parts.services.image_follower.stop()
            parts.services.coordinators.stop()
            await parts.replication.stop()
            for partition in parts.services.partitions:
                await partition.flusher.finish()  # its thread must not meet a closed file
            await parts.services.topics.auto.finish()
        await self._abandon(ends_session=False)

    async def _abandon(self, *, ends_session: bool = True) -> None:
        """Releases all resources without marking a directory clean: after a failed start, and to simulate a crash."""
        self.lifecycle.enter(State.STOPPING)
        await self.monitoring.leave()
        for listener in self.listeners:
            await listener.stop_accepting()
            await listener.drain(0)
        if self._parts is not None:
            await self._stop_components(self._parts)
        self.directories.abandon()
        await self._close_store(ends_session=ends_session)

    async def _close_store(self, *, ends_session: bool = True) -> None:
        if self._parts is not None:
            self._parts.services.security.logins.stop()
            await self._parts.membership.stop()
            await self._parts.controller.stop()
        if self._watcher is not None:
            await self._watcher.stop()
        if self._store is not None:
            await (self._store.close() if ends_session else self._store.abandon())
            self._store = None
        self._store_source.release()
        await self.monitoring.stop()
