"""Logs that go offline, with their directory or alone, and logs that come back when a full disk has room again.

Keeps true: a partition without its log is not led and not fetched. When the last directory fails, the broker fails.
            A log is reopened under the lock of `image_follower`, so that no image is followed meanwhile.
"""

from __future__ import annotations

from felice.log.directory import LogDirectory
from felice.log.log import Log
from felice.log.readable import ReadableLog
from felice.metadata.watcher import Watcher
from felice.replication.partitions import Partitions
from felice.server.disks.cleaning import Cleaner
from felice.server.disks.log_directories import LogDirectories
from felice.server.lifecycle import Lifecycle
from felice.server.replicas.image_follower import ImageFollower

_IMAGE_TIMEOUT_S = 1.0


class OfflineLogs:
    """Reacts to failed directories and logs from its creation on."""

    def __init__(
        self,
        directories: LogDirectories,
        partitions: Partitions,
        cleaner: Cleaner,
        lifecycle: Lifecycle,
        watcher: Watcher,
        follower: ImageFollower,
    ) -> None:
        self._directories = directories
        self._partitions = partitions
        self._cleaner = cleaner
        self._lifecycle = lifecycle
        self._watcher = watcher
        self._follower = follower
        for directory in directories:
            directory.on_offline = self._on_directory_offline
            directory.on_log_offline = self._on_log_offline

    def _on_directory_offline(self, failed: LogDirectory) -> None:
        if self._follower.is_following:
            self._partitions.on_directory_offline(failed)
            self._follower.follow_open_partitions()
        if self._directories.are_all_offline:
            self._lifecycle.fail(f"all log directories are offline: {failed.path}: {failed.offline_reason}")

    def _on_log_offline(self, log: ReadableLog) -> None:
        if self._follower.is_following:
            self._partitions.on_log_offline(log)
            self._follower.follow_open_partitions()

    async def retry(self) -> None:
        """Reopens logs that went offline because the disk was full, if there is room again. Call it periodically."""
        for key in self._partitions.without_room():
            # The lock is released after each log, so that a new image waits for one log at most.
            async with self._follower.making_logs:
                if self._lifecycle.has_stop_begun:
                    return
                came_back = await self._partitions.retry_log(key, self._is_untouched)
            # An image that waited for the lock may have moved the leadership or deleted the topic.
            if came_back and self._partitions.needs_epoch() and self._follower.is_following:
                self._follower.join_again()
            elif (
                came_back
                and await self._watcher.catch_up(_IMAGE_TIMEOUT_S)
                and not self._lifecycle.has_stop_begun
            ):
                self._partitions.take_up(key)
                if self._follower.is_following:
                    self._follower.follow_open_partitions()

    def _is_untouched(self, log: Log) -> bool:
        return not self._cleaner.is_cleaning(log)
