"""The composition root: one broker, made of everything below.

Keeps true: a port that clients can reach means a broker that is ready. A start that fails says
            why in one line (`StartupError`) and leaves nothing running. A stop finishes what is
            under way, brings everything to disk and marks the directories clean.
How:        the order of `start` is the order of dependence: metadata store, log directories,
            image, partitions, controller, listeners. Every new image goes through
            `_follow`: configuration first, then partitions, then coordinators. A broker that has
            lost its session follows an image in which nobody leads.
Leaves:     identity, registration and sessions to `membership`, the controller's duties to its role.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from felice.config import BrokerConfig, ConfigError, TopicConfig
from felice.controller import features
from felice.controller.cluster_admin import ClusterAdmin
from felice.controller.controller import Controller
from felice.controller.leaderships import Leaderships
from felice.env import Environment
from felice.log.directory import LogDirectory
from felice.log.errors import LogDirectoryError
from felice.log.log import Log
from felice.metadata import ClusterImage, layout
from felice.metadata.store import MetadataStore, SessionState, StoreError
from felice.metadata.watcher import Watcher
from felice.protocol.api import Api
from felice.protocol.errors import ApiError
from felice.protocol.frame_memory import FrameMemory
from felice.replication.fetcher import Fetchers
from felice.replication.isr import IsrWriter
from felice.replication.partitions import Partitions
from felice.replication.peers import Destination, Peers
from felice.replication.surroundings import Surroundings
from felice.replication.throttle import ReplicationThrottle
from felice.server.auto_topics import AutoTopics
from felice.server.cleaning import Cleaner
from felice.server.config_entries import BrokerLayers
from felice.server.fetch_sessions import FetchSessions
from felice.server.handlers.table import OFFERED, Handle, Handlers
from felice.server.identity import broker_id_of, prepare_store
from felice.server.listener import Listener, check_free
from felice.server.maintenance import Maintenance
from felice.server.membership import Membership
from felice.server.metrics import Metrics
from felice.server.producer_ids import ProducerIds
from felice.server.replica_moves import ReplicaMoves
from felice.server.startup import StartupError
from felice.server.store_sources import StoreSource, source_of
from felice.server.turns import Turns

if TYPE_CHECKING:
    from felice.coordinator.group.coordinator import GroupCoordinator
    from felice.coordinator.transaction.coordinator import TransactionCoordinator
    from felice.server.admission import Admission
    from felice.server.session import Session

_log = logging.getLogger("felice.server")

_DRAIN_TIMEOUT_S = 3.0
_CONTROLLER_TIMEOUT_S = 3.0
_IMAGE_TIMEOUT_S = 1.0
# Memory for large requests that is kept for the next: eight of a producer's usual batches of a megabyte.
_FRAME_POOL_BYTES = 8 * 1024 * 1024
_MAPPED_FRAME_BYTES = 1024 * 1024


class Broker:
    """One broker. `start`, serve, `stop`."""

    partitions: Partitions
    watcher: Watcher
    membership: Membership
    cluster_admin: ClusterAdmin
    leaderships: Leaderships
    controller: Controller
    isr_writer: IsrWriter
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        handlers: Mapping[int, Handle] | None = None,
        store_source: StoreSource | None = None,
    ) -> None:
        self.static_config = config
        self.config = config
        self.env = env
        self.broker_id = config.node_id  # -1 until `start` has generated one, if that is asked for
        self.apis: Mapping[int, Api] = OFFERED
        # Whoever wants to stand between sessions and handlers brings a table; nobody else pays for it.
        self.handlers: Mapping[int, Handle] = Handlers() if handlers is None else handlers
        # One for all connections: they share a thread.
        self.frame_memory = FrameMemory(pool_bytes=_FRAME_POOL_BYTES, map_from_bytes=_MAPPED_FRAME_BYTES)
        self.listeners: list[Listener] = []
        self.turns = Turns(env.clock, lambda: self.config, self._sessions)
        self.directories: list[LogDirectory] = []
        self.is_stopping = False
        # Why the broker cannot go on, and whom to tell.
        self.failure: str | None = None
        self.on_failure: Callable[[], None] | None = None
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._admission: Admission | None = None
        self._store: MetadataStore | None = None
        self._store_source = source_of(config, env) if store_source is None else store_source
        self.auto_topics = AutoTopics(self, stands_alone=self._store_source.stands_alone)
        self._maintenance = Maintenance(self)
        self.cleaner = Cleaner(self)
        self.replica_moves = ReplicaMoves(self)
        # The image that partitions and coordinators were told of last, and whether they are told of the next.
        self._followed = ClusterImage()
        self._is_following = False
        self._is_composed = False
        self._stop_began = False
        # Held while a thread makes files in the directories.
        self._making_logs = asyncio.Lock()
        self.replication_throttle = ReplicationThrottle()
        self.metrics = Metrics(self)

    @property
    def image(self) -> ClusterImage:
        return self.watcher.image

    @property
    def group_coordinator(self) -> GroupCoordinator:
        assert self._groups is not None, "made before the first request"
        return self._groups

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        assert self._transactions is not None, "made before the first request"
        return self._transactions

    @property
    def admission(self) -> Admission:
        assert self._admission is not None, "made before the first request"
        return self._admission

    @property
    def connection_count(self) -> int:
        return sum(len(listener.sessions) for listener in self.listeners)

    def _sessions(self) -> list[Session]:
        return [session for listener in self.listeners for session in listener.sessions]

    @property
    def config_layers(self) -> BrokerLayers:
        dynamic = self.image.broker_configs
        return BrokerLayers(
            dynamic.get(str(self.broker_id), {}),
            dynamic.get(layout.DEFAULT_ENTITY, {}),
            self.static_config.originals,
        )

    def port(self, listener: str | None = None) -> int:
        """The port that a listener (the first, if none is named) is bound to."""
        return next(found.port for found in self.listeners if listener in (None, found.name))

    # Starting

    async def start(self) -> None:
        """Ready to serve when it returns; raises `StartupError`."""
        try:
            await self._start()
        except StoreError as error:
            await self._abandon()
            raise StartupError(f"the metadata store cannot be used: {error}") from error
        except BaseException:
            await self._abandon()
            raise

    async def _start(self) -> None:
        await check_free(self.env.network, self.config.parsed_listeners)
        store = self._store = await self._store_source.open()
        cluster_id = await prepare_store(
            store, self._new_uuid, self.env.disk, self.config.log_directories, self._store_source.where
        )
        self.broker_id = await broker_id_of(
            self.config, self.env.disk, store, stands_alone=self._store_source.stands_alone
        )
        self._acquire_directories(cluster_id)
        self.watcher = Watcher(store, self._on_image, self._prepare)
        await self.watcher.start()
        if reason := features.unsupported_level(self.image.features):
            raise StartupError(reason)
        self._lay_config(self.image)
        await self._recover()
        self._compose(store)
        for address in self.config.parsed_listeners:
            listener = Listener(self, address)
            self.listeners.append(listener)
            await listener.start()
        await self.membership.join()
        self.controller.start()
        await self.watcher.wait_until(lambda image: image.controller_id >= 0, _CONTROLLER_TIMEOUT_S)
        await self.lead_again()
        if self.failure is not None:
            raise StartupError(self.failure)  # the last disk failed under what the image asked for
        self.partitions.set_strays_aside()
        self._maintenance.start()
        self.cleaner.start()
        self.replica_moves.start()
        for listener in self.listeners:
            listener.open()
        self.membership.look_for_itself()
        # The loop reads no request before it has called this.
        asyncio.get_running_loop().call_soon(self._begin_coordinators)
        _log.info(
            "broker ready",
            extra={
                "broker": self.broker_id,
                "cluster": cluster_id,
                "partitions": len(self.partitions),
                "port": self.port(),
            },
        )

    def _acquire_directories(self, cluster_id: str) -> None:
        reasons = []
        for path in self.config.log_directories:
            directory = LogDirectory(
                self.env.disk,
                self.env.clock,
                path,
                recovery_threads=self.config.num_recovery_threads_per_data_dir,
                producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            )
            try:
                directory.acquire(
                    node_id=self.broker_id, cluster_id=cluster_id, new_directory_id=self._new_uuid()
                )
            except LogDirectoryError as error:
                if directory.offline_reason is None:
                    raise StartupError(str(error)) from error
                reasons.append(str(error))
            self.directories.append(directory)
        if len(reasons) == len(self.directories):
            raise StartupError("; ".join(reasons))
        for reason in reasons:
            _log.error("a log directory is offline; the broker starts without it", extra={"reason": reason})

    async def _recover(self) -> None:
        """Whoever gives the start up waits for this: the directories are a thread's meanwhile."""
        loading = asyncio.get_running_loop().run_in_executor(None, self._load_directories)
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            await asyncio.wait((loading,))
            raise

    def _load_directories(self) -> None:
        """One whose disk is dead stays offline; the broker starts with the others."""
        for directory in self.directories:
            try:
                if directory.offline_reason is None:
                    directory.load(lambda topic: self.topic_config(self.image, topic))
            except OSError as error:
                directory.fail(error)
            except LogDirectoryError as error:
                raise StartupError(str(error)) from error
            except ApiError as error:
                raise StartupError(f"{directory.path}: {error}") from error
            directory.on_offline = self._on_directory_offline
            directory.on_log_offline = self._on_log_offline
        if all(directory.offline_reason is not None for directory in self.directories):
            reasons = (f"{directory.path}: {directory.offline_reason}" for directory in self.directories)
            raise StartupError("; ".join(reasons))

    def _compose(self, store: MetadataStore) -> None:
        env, config = self.env, self.config
        self.isr_writer = IsrWriter(store)
        surroundings = Surroundings(
            env.clock,
            lambda: self.config.replica_lag_time_max_ms,
            self._broker_epoch_of,
            self.isr_writer.propose,
        )
        self.partitions = Partitions(self.broker_id, self.directories, self.topic_config, surroundings)
        self.partitions.on_unservable = self._give_up
        self.peers = Peers(env.network, env.clock, self.broker_id, self._destination_of)
        self.fetchers = Fetchers(
            self.broker_id,
            self.peers,
            env.clock,
            lambda: self.config,
            lambda: self._broker_epoch_of(self.broker_id) or -1,
        )
        self.cluster_admin = ClusterAdmin(store, self.watcher, env, self.broker_id, lambda: self.config)
        self.leaderships = Leaderships(store, self.watcher)
        self.controller = Controller(
            store,
            self.watcher,
            env.clock,
            self.broker_id,
            lambda: self.config,
            self.cluster_admin.new_topic_id,
        )
        self.membership = Membership(self, store, self._store_source.session_timeout_ms)
        self.producer_ids = ProducerIds(self.cluster_admin.allocate_producer_ids)
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, env.random)
        self._is_composed = True

    def _broker_epoch_of(self, broker_id: int) -> int | None:
        known = self.image.brokers.get(broker_id)
        return known.epoch if known is not None else None

    def _destination_of(self, broker_id: int) -> Destination | None:
        known = self.image.brokers.get(broker_id)
        endpoint = known.endpoints.get(self.config.inter_broker_listener) if known is not None else None
        if known is None or endpoint is None:
            return None
        return Destination(endpoint.host, endpoint.port, known.epoch)

    def _give_up(self, topic: str, topic_id: uuid.UUID, partition: int, replicas: tuple[int, ...]) -> None:
        heirs: tuple[int, ...] = ()
        if self.topic_config(self.image, topic).unclean_leader_election_enable:
            others = [replica for replica in replicas if replica != self.broker_id]
            heirs = tuple(replica for replica in others if replica in self.image.brokers)
        self.isr_writer.resign(topic, topic_id, partition, self.broker_id, replicas, heirs)

    def _begin_coordinators(self) -> None:
        """Coordinates groups and transactions from now on.

        The imports are the largest; they wait until everything that a client may wait for is there.
        """
        from felice.coordinator.group.coordinator import GroupCoordinator
        from felice.coordinator.transaction.coordinator import TransactionCoordinator
        from felice.server.admission import Admission, CoordinatorsOfTransactions
        from felice.server.transactions import LeadersOfPartitions

        if self.is_stopping:
            return
        self._groups = GroupCoordinator(
            self.config, self.env, self.partitions, lambda: self.image, self.auto_topics.ensure
        )
        self._transactions = TransactionCoordinator(
            self.config,
            self.env,
            self.partitions,
            lambda: self.image,
            self.auto_topics.ensure,
            self.producer_ids.next_id,
            LeadersOfPartitions(self),
        )
        self._admission = Admission(CoordinatorsOfTransactions(self), self.env.clock, lambda: self.config)
        self._groups.start()
        self._transactions.start()

    def _new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.env.random.getrandbits(128), version=4)

    # Following the store

    async def _prepare(self, new: ClusterImage) -> None:
        if self._is_following:
            async with self._making_logs:
                await self.partitions.make_logs(new, lambda: self._is_following)

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        if self._is_following:
            self.metrics.on_image(old, new)
            self._follow(new)
            self.controller.on_image()

    async def lead_again(self) -> bool:
        """The broker is registered: what the image says of it holds. False if its session has ended again."""
        async with self._making_logs:
            await self.partitions.make_logs(self.image, lambda: not self._stop_began)
            if self._stop_began:
                return True
            if self._store is None or self._store.session_state is SessionState.EXPIRED:
                return False
            # While nothing makes files, and before anybody else can begin to.
            self._is_following = True
            self._follow(self.image)
            self.controller.on_image()
        return True

    def stop_leading(self) -> None:
        """The broker's session has ended: others may lead by now what it leads."""
        self.controller.resign()
        if self._is_following:
            self._is_following = False
            self._follow(self._followed.without_leaders())

    def check_session(self) -> None:
        """To be called before clients are answered: a process that stood still has not heard yet what it missed."""
        # The store looks at the clock, and tells `membership` if that ends the session.
        if self._store is not None and self._store.session_state is SessionState.EXPIRED:
            self.stop_leading()

    def _follow(self, new: ClusterImage) -> None:
        old, self._followed = self._followed, new
        if new.broker_configs is not old.broker_configs:
            self._lay_config(new)
        self.partitions.apply(old, new)
        self._follow_leaders(old, new)
        if new.broker_configs is not old.broker_configs:
            self.partitions.reconfigure(new)
        elif new.topic_configs is not old.topic_configs:
            names = new.topic_configs.keys() | old.topic_configs.keys()
            self.partitions.reconfigure(
                new, [name for name in names if new.topic_configs.get(name) != old.topic_configs.get(name)]
            )
        self._follow_roles()

    def _follow_what_is_open(self) -> None:
        """Partitions were closed, or are back, and no image tells of that."""
        # Who fetched on for one that is closed would be answered at once, in vain, and ask again.
        self.fetchers.follow(self.partitions, self._followed)
        self._follow_roles()

    def _follow_roles(self) -> None:
        """What coordinates, coordinates where this broker leads."""
        if self._groups is not None:
            self._groups.on_image()
        if self._transactions is not None:
            self._transactions.on_image()

    def _follow_leaders(self, old: ClusterImage, new: ClusterImage) -> None:
        if new.topics is old.topics and new.brokers is old.brokers:
            return
        if new.brokers is not old.brokers:
            self.peers.follow()
        self.fetchers.follow(self.partitions, new)

    def _lay_config(self, image: ClusterImage) -> None:
        """The configuration in force: the file's, under what was changed since."""
        dynamic = {
            **image.broker_configs.get(layout.DEFAULT_ENTITY, {}),
            **image.broker_configs.get(str(self.broker_id), {}),
        }
        try:
            self.config = self.static_config.changed(dynamic)
        except ConfigError as error:
            _log.error("dynamic configuration is ignored", extra={"reason": str(error)})
        for directory in self.directories:
            directory.update_producer_expiration(self.config.producer_id_expiration_ms)
        self.cleaner.reconfigure()

    def topic_config(self, image: ClusterImage, topic: str) -> TopicConfig:
        try:
            return TopicConfig.parse(image.topic_configs.get(topic, {}), self.config)
        except ConfigError as error:
            _log.error("topic configuration is ignored", extra={"topic": topic, "reason": str(error)})
            return TopicConfig.parse({}, self.config)

    def _on_directory_offline(self, failed: LogDirectory) -> None:
        """Partitions elsewhere go on; without any directory there is nothing left to serve."""
        if self._is_following:
            self.partitions.on_directory_offline(failed)
            self._follow_what_is_open()
        if all(directory.offline_reason is not None for directory in self.directories):
            self.fail(f"all log directories are offline: {failed.path}: {failed.offline_reason}")

    def _on_log_offline(self, log: Log) -> None:
        if self._is_following:
            self.partitions.on_log_offline(log)
            self._follow_what_is_open()

    async def retry_logs(self) -> None:
        """To be called now and then: what went offline for want of room comes back when there is some."""
        for key in self.partitions.without_room():
            # No image is shown meanwhile: nobody deletes what a thread reads. One waits for one log at the most.
            async with self._making_logs:
                if self._stop_began:
                    return
                came_back = await self.partitions.retry_log(key, self._is_untouched)
            # The image that waited tells what became of it: others may lead, or the topic be gone.
            if came_back and await self.watcher.catch_up(_IMAGE_TIMEOUT_S) and not self._stop_began:
                self.partitions.take_up(key)
                if self._is_following:
                    self._follow_what_is_open()

    def _is_untouched(self, log: Log) -> bool:
        return not self.cleaner.is_cleaning(log)

    def fail(self, reason: str) -> None:
        """The broker cannot go on; whoever runs it is told to stop it."""
        self.failure = reason
        _log.error("the broker cannot go on", extra={"broker": self.broker_id, "reason": reason})
        if self.on_failure is not None:
            self.on_failure()

    # Stopping

    async def retire(self) -> None:
        """Before all brokers stop at once: no duties any more, and nothing asked of the others."""
        await self.controller.stop()
        await self.fetchers.stop()

    async def stop(self, *, hand_over: bool = True) -> None:
        """Gives its leaderships to others, finishes what is under way, and brings everything to disk."""
        if self._stop_began:
            return
        if not self._is_composed:
            # Nothing was loaded yet, so nothing may be marked clean.
            await self._abandon()
            return
        self._stop_began = True
        if hand_over and self._is_following and self.config.controlled_shutdown_enable:
            # A follower that went on fetching would be taken back into the sets that it leaves.
            await self.fetchers.stop()
            await self.membership.hand_over()
        self.is_stopping = True
        for listener in self.listeners:
            await listener.stop_accepting()
        self._stop_coordinators()
        for partition in self.partitions:
            partition.wake_readers()
        for listener in self.listeners:
            await listener.drain(_DRAIN_TIMEOUT_S)
        await self._stop_replicating()
        await self.cleaner.stop()
        await self.replica_moves.stop()
        await self._maintenance.stop()
        await self.auto_topics.finish()
        await self._close_directories()
        await self._close_store()
        _log.info("broker stopped", extra={"broker": self.broker_id})

    async def kill(self) -> None:
        """Lets go of everything as a killed process would: no answer leaves, no directory is marked clean."""
        if self._stop_began:
            return
        self._stop_began = self.is_stopping = True
        for listener in self.listeners:
            await listener.stop_accepting()
            listener.abort("the broker was killed")
        self._is_following = False
        self._stop_coordinators()
        await self._stop_replicating()
        if self._is_composed:
            for partition in self.partitions:
                await partition.finish_flush()  # its thread must not meet a closed file
        await self.auto_topics.finish()
        await self._abandon(ends_session=False)

    def _stop_coordinators(self) -> None:
        if self._transactions is not None:
            self._transactions.stop()
        if self._groups is not None:
            self._groups.stop()

    async def _stop_replicating(self) -> None:
        if hasattr(self, "fetchers"):
            await self.fetchers.stop()
            await self.peers.close()
            self.isr_writer.stop()
            await self.isr_writer.finish()

    async def _close_directories(self) -> None:
        loop = asyncio.get_running_loop()
        self._is_following = False
        async with self._making_logs:
            pass  # what a thread is making is theirs before they are closed
        for partition in self.partitions:
            await partition.finish_flush()
        for directory in self.directories:
            offsets = self.partitions.high_watermarks(directory)
            await loop.run_in_executor(None, directory.close, offsets)
        self.directories.clear()

    async def _close_store(self, *, ends_session: bool = True) -> None:
        if hasattr(self, "membership"):
            await self.membership.stop()
            await self.controller.stop()
        if hasattr(self, "watcher"):
            await self.watcher.stop()
        if self._store is not None:
            await (self._store.close() if ends_session else self._store.abandon())
            self._store = None
        self._store_source.release()

    async def _abandon(self, *, ends_session: bool = True) -> None:
        """Gives everything back and marks nothing clean: after a start that failed, and as a crash would."""
        self._stop_began = self.is_stopping = True
        for listener in self.listeners:
            await listener.stop_accepting()
            await listener.drain(0)
        await self._stop_replicating()
        await self.cleaner.stop()
        await self.replica_moves.stop()
        await self._maintenance.stop()
        for directory in self.directories:
            directory.abandon()
        await self._close_store(ends_session=ends_session)
