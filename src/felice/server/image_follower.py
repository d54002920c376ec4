"""Brings the components of a broker from one metadata image to the next.

Keeps true: R2 a broker whose session has ended follows an image without leaders, from the moment that it learns of
            the end until it is registered again.
            Configuration changes first, then partitions, then fetchers, then coordinators.
            No image is followed while a thread makes or retries log files.
How:        `prepare` and `on_image` are called by the watcher for each new image. Before `lead_again` and after
            `stop_leading` only the watcher stores new images.
"""

from __future__ import annotations

import asyncio
import uuid

from felice.controller.controller import Controller
from felice.log.directory import LogDirectory
from felice.log.log import Log
from felice.log.readable import ReadableLog
from felice.metadata import ClusterImage
from felice.metadata.store import MetadataStore, SessionState
from felice.metadata.watcher import Watcher
from felice.server.cleaning import Cleaner
from felice.server.coordinators import Coordinators
from felice.server.lifecycle import Lifecycle
from felice.server.log_directories import LogDirectories
from felice.server.metrics.mbeans import Metrics
from felice.server.replication_parts import ReplicationParts
from felice.server.settings import Settings
from felice.server.tls import TlsListeners

_IMAGE_TIMEOUT_S = 1.0


class ImageFollower:
    """Applies metadata images to the components of one broker."""

    def __init__(
        self,
        broker_id: int,
        settings: Settings,
        lifecycle: Lifecycle,
        store: MetadataStore,
        watcher: Watcher,
        directories: LogDirectories,
        replication: ReplicationParts,
        coordinators: Coordinators,
        controller: Controller,
        cleaner: Cleaner,
        metrics: Metrics,
        tls: TlsListeners,
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._tls = tls
        self._watcher = watcher
        self._settings = settings
        self._lifecycle = lifecycle
        self._directories = directories
        self._partitions = replication.partitions
        self._isr_writer = replication.isr_writer
        self._peers = replication.peers
        self._fetchers = replication.fetchers
        self._coordinators = coordinators
        self._controller = controller
        self._cleaner = cleaner
        self._metrics = metrics
        # The image that the components followed last.
        self._followed = ClusterImage()
        self._is_following = False
        # Held while a thread creates files in the log directories.
        self._making_logs = asyncio.Lock()
        self._partitions.on_unservable = self._give_up
        for directory in directories:
            directory.on_offline = self._on_directory_offline
            directory.on_log_offline = self._on_log_offline

    @property
    def is_following(self) -> bool:
        """Whether the components follow new images."""
        return self._is_following

    # New images

    async def prepare(self, new: ClusterImage) -> None:
        """Creates the log files of a new image, before the components follow it."""
        if self._is_following:
            async with self._making_logs:
                await self._partitions.make_logs(new, lambda: self._is_following)

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Brings the components to a new image."""
        if self._is_following:
            self._metrics.on_image(old, new)
            self._follow(new)
            self._controller.on_image()

    def _follow(self, new: ClusterImage) -> None:
        old, self._followed = self._followed, new
        if new.broker_configs is not old.broker_configs:
            self._reconfigure(new)
        self._partitions.apply(old, new)
        self._follow_leaders(old, new)
        self._reconfigure_partitions(old, new)
        self._coordinators.follow()

    def _reconfigure(self, image: ClusterImage) -> None:
        self._settings.follow(image, self._broker_id)
        self._tls.follow(self._settings.config)
        for directory in self._directories:
            directory.update_producer_expiration(self._settings.config.producer_id_expiration_ms)
            directory.recovery_threads = self._settings.config.num_recovery_threads_per_data_dir
        self._cleaner.reconfigure()

    def _reconfigure_partitions(self, old: ClusterImage, new: ClusterImage) -> None:
        if new.broker_configs is not old.broker_configs:
            self._partitions.reconfigure(new)
        elif new.topic_configs is not old.topic_configs:
            names = new.topic_configs.keys() | old.topic_configs.keys()
            changed = [name for name in names if new.topic_configs.get(name) != old.topic_configs.get(name)]
            self._partitions.reconfigure(new, changed)

    def _follow_leaders(self, old: ClusterImage, new: ClusterImage) -> None:
        if new.topics is old.topics and new.brokers is old.brokers:
            return
        if new.brokers is not old.brokers:
            self._peers.follow()
        self._fetchers.follow(self._partitions, new)

    # The session with the metadata store

    async def lead_again(self) -> bool:
        """Follows the current image; call it when the broker is registered.

        Returns False if the broker's session has ended in the meantime.
        """
        async with self._making_logs:
            await self._partitions.make_logs(self._watcher.image, lambda: not self._has_stop_begun)
            if self._has_stop_begun:
                return True
            if self._store.session_state is SessionState.EXPIRED:
                return False
            # Keep the lock: no thread may start to create files before the components follow the image.
            self._is_following = True
            self._follow(self._watcher.image)
            self._controller.on_image()
        return True

    def stop_leading(self) -> None:
        """The broker's session has ended: other brokers may already lead its partitions."""
        self._controller.resign()
        if self._is_following:
            self._is_following = False
            self._follow(self._followed.without_leaders())

    def check_session(self) -> None:
        """Checks the session. Call it before a client is answered.

        A process that was suspended may not have learnt yet that its session ended.
        """
        # Reading the state makes the store check the clock; it reports an expiry to `membership` at once.
        if self._store.session_state is SessionState.EXPIRED:
            self.stop_leading()

    @property
    def _has_stop_begun(self) -> bool:
        return self._lifecycle.has_stop_begun

    # Logs that go offline and come back

    def _on_directory_offline(self, failed: LogDirectory) -> None:
        if self._is_following:
            self._partitions.on_directory_offline(failed)
            self._follow_open_partitions()
        if self._directories.are_all_offline:
            self._lifecycle.fail(f"all log directories are offline: {failed.path}: {failed.offline_reason}")

    def _on_log_offline(self, log: ReadableLog) -> None:
        if self._is_following:
            self._partitions.on_log_offline(log)
            self._follow_open_partitions()

    def _follow_open_partitions(self) -> None:
        """Updates fetchers and coordinators after partitions were closed or reopened without a new image."""
        # The leader would answer fetches for a closed partition at once, so the fetcher would loop without a pause.
        self._fetchers.follow(self._partitions, self._followed)
        self._coordinators.follow()

    async def retry_logs(self) -> None:
        """Reopens logs that went offline because the disk was full, if there is room again. Call it periodically."""
        for key in self._partitions.without_room():
            # The lock is released after each log, so that a new image waits for one log at most.
            async with self._making_logs:
                if self._has_stop_begun:
                    return
                came_back = await self._partitions.retry_log(key, self._is_untouched)
            # An image that waited for the lock may have moved the leadership or deleted the topic.
            if came_back and await self._watcher.catch_up(_IMAGE_TIMEOUT_S) and not self._has_stop_begun:
                self._partitions.take_up(key)
                if self._is_following:
                    self._follow_open_partitions()

    def _is_untouched(self, log: Log) -> bool:
        return not self._cleaner.is_cleaning(log)

    def _give_up(self, topic: str, topic_id: uuid.UUID, partition: int, replicas: tuple[int, ...]) -> None:
        """Resigns from a replica that this broker cannot serve.

        If no other in-sync replica is left and the topic allows unclean elections, any live replica may lead.
        """
        image = self._watcher.image
        fallbacks: tuple[int, ...] = ()
        if self._settings.topic_config(image, topic).unclean_leader_election_enable:
            others = [replica for replica in replicas if replica != self._broker_id]
            fallbacks = tuple(replica for replica in others if replica in image.brokers)
        self._isr_writer.resign(topic, topic_id, partition, self._broker_id, replicas, fallbacks)

    # Stopping

    def stop(self) -> None:
        """Stops following images."""
        self._is_following = False

    async def wait_until_logs_are_made(self) -> None:
        """Waits until no thread creates or reopens logs for `prepare` or `retry_logs`."""
        async with self._making_logs:
            pass
