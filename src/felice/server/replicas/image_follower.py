"""Brings the components of a broker from one metadata image to the next.

Keeps true: R2 a broker whose session has ended follows an image without leaders, from the moment that it learns of
            the end until it is registered again.
            Configuration changes first, then partitions, then fetchers, then coordinators.
            No image is followed while a thread makes or reopens log files.
            If an operator restored an older state of the store, no component follows it before the broker has raised
            the leader epochs in the store above those of its logs.
How:        `prepare` and `on_image` are called by the watcher for each new image. Before `lead_again` and after
            `stop_leading` no component follows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from felice.controller.controller import Controller
from felice.metadata import ClusterImage
from felice.metadata.store import MetadataStore, SessionState
from felice.metadata.watcher import Watcher
from felice.server.configs.settings import Settings
from felice.server.groups.coordinators import Coordinators
from felice.server.lifecycle import Lifecycle
from felice.server.metrics.mbeans import Metrics
from felice.server.replicas.replication_parts import ReplicationParts


class ImageFollower:
    """Applies metadata images to the components of one broker."""

    def __init__(
        self,
        broker_id: int,
        settings: Settings,
        lifecycle: Lifecycle,
        store: MetadataStore,
        watcher: Watcher,
        replication: ReplicationParts,
        coordinators: Coordinators,
        controller: Controller,
        metrics: Metrics,
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._watcher = watcher
        self._settings = settings
        self._lifecycle = lifecycle
        self._partitions = replication.partitions
        self._peers = replication.peers
        self._fetchers = replication.fetchers
        self._coordinators = coordinators
        self._controller = controller
        self._metrics = metrics
        # Joins the cluster again, which raises leader epochs where that is necessary.
        self.on_join_again: Callable[[], None] = lambda: None
        # The image that the components followed last.
        self._followed = ClusterImage()
        self._is_following = False
        # Held while a thread creates files in the log directories.
        self.making_logs = asyncio.Lock()

    @property
    def is_following(self) -> bool:
        """Whether the components follow new images."""
        return self._is_following

    # New images

    async def prepare(self, new: ClusterImage) -> None:
        """Creates the log files of a new image, before the components follow it."""
        if self._is_following:
            async with self.making_logs:
                await self._partitions.make_logs(new, lambda: self._is_following)

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Brings the components to a new image."""
        if self._is_following and self._partitions.goes_back(new):
            self.join_again()
        if self._is_following:
            self._metrics.on_image(old, new)
            self._follow(new)
            self._controller.on_image()

    def _follow(self, new: ClusterImage) -> None:
        old, self._followed = self._followed, new
        if new.broker_configs is not old.broker_configs:
            self._settings.follow(new, self._broker_id)
        self._partitions.apply(old, new)
        self._follow_leaders(old, new)
        self._reconfigure_partitions(old, new)
        self._coordinators.follow()

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

    def follow_open_partitions(self) -> None:
        """Updates fetchers and coordinators after partitions were closed or reopened without a new image."""
        # The leader would answer fetches for a closed partition at once, so the fetcher would loop without a pause.
        self._fetchers.follow(self._partitions, self._followed)
        self._coordinators.follow()

    # The session with the metadata store

    async def lead_again(self) -> bool:
        """Follows the current image; call it when the broker is registered.

        Returns False if the broker's session has ended in the meantime.
        """
        async with self.making_logs:
            await self._partitions.make_logs(self._watcher.image, lambda: not self._has_stop_begun)
            if self._has_stop_begun:
                return True
            if self._store.session_state is SessionState.EXPIRED:
                return False
            # Keep the lock: no thread may start to create files before the components follow the image.
            self._is_following = True
            self._follow(self._watcher.image)
            self._partitions.set_strays_aside()
            self._controller.on_image()
        return True

    def stop_leading(self) -> None:
        """The broker's session has ended: other brokers may already lead its partitions."""
        self._controller.resign()
        if self._is_following:
            self._is_following = False
            self._follow(self._followed.without_leaders())

    def join_again(self) -> None:
        """Leads nothing until the broker has joined again: the store's leader epochs are too low for logs here."""
        self.stop_leading()
        self.on_join_again()

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

    # Stopping

    def stop(self) -> None:
        """Stops following images."""
        self._is_following = False

    async def wait_until_logs_are_made(self) -> None:
        """Waits until no thread creates or reopens logs for `prepare` or `retry_logs`."""
        async with self.making_logs:
            pass
