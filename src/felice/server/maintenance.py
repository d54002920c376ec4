"""The periodic tasks of a broker: retention, flushes, checkpoints, and removal of expired state.

Each task runs independently. A task that fails is logged, and runs again after its interval. The event loop makes the
decisions; threads write and remove the files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from felice.env.clock import set_within
from felice.log.directory import LogDirectory
from felice.metadata import MetadataStore
from felice.protocol.errors import ApiError, BrokenInvariant
from felice.server.net.listener import Listener
from felice.server.services import Services

_log = logging.getLogger("felice.server")

# The interval of checks for due flushes (flush.ms and closed segments), unless log.flush.scheduler.interval.ms is less.
_MAX_FLUSH_CHECK_MS = 1_000
_FILE_REMOVAL_MS = 5_000
_IDLE_CHECK_MS = 5_000
_FRAME_MEMORY_MS = 10_000
_TELEMETRY_MS = 10_000
_RETRY_LOGS_MS = 10_000
_OFFLINE_REPLICAS_MS = 1_000
_DELETED_TOPICS_MS = 5_000
_MAX_SLEEP_MS = 24 * 3_600_000

PeriodicTask = Callable[[], Awaitable[None]]


class Maintenance:
    """The periodic tasks of one broker."""

    def __init__(
        self,
        services: Services,
        listeners: Sequence[Listener],
        store: MetadataStore,
        report_offline_replicas: PeriodicTask,
    ) -> None:
        self._report_offline_replicas = report_offline_replicas
        self._services, self._store = services, store
        self._listeners = listeners
        self._clock = services.env.clock
        self._partitions = services.partitions
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Starts every task that has an interval."""
        config = self._services.settings.config
        periodic: list[tuple[str, int, PeriodicTask]] = [
            ("retention", config.log_retention_check_interval_ms, self._apply_retention),
            ("flush", min(config.log_flush_scheduler_interval_ms, _MAX_FLUSH_CHECK_MS), self._flush_due),
            ("file removal", _FILE_REMOVAL_MS, self._remove_files),
            (
                "recovery point checkpoint",
                config.log_flush_offset_checkpoint_interval_ms,
                self._write_recovery_points,
            ),
            (
                "log start checkpoint",
                config.log_flush_start_offset_checkpoint_interval_ms,
                self._write_log_starts,
            ),
            (
                "high watermark checkpoint",
                config.replica_high_watermark_checkpoint_interval_ms,
                self._write_high_watermarks,
            ),
            ("in-sync replicas", max(1, config.replica_lag_time_max_ms // 2), self._shrink_isrs),
            ("producer expiry", config.producer_id_expiration_check_interval_ms, self._expire_producers),
            ("frame memory", _FRAME_MEMORY_MS, self._forget_frame_memory),
            ("logs on full disks", _RETRY_LOGS_MS, self._services.disks.offline_logs.retry),
            ("offline replicas", _OFFLINE_REPLICAS_MS, self._report_offline_replicas),
            ("client telemetry", _TELEMETRY_MS, self._forget_silent_clients),
            ("deleted topics", _DELETED_TOPICS_MS, self._confirm_deletions),
            (
                "delegation token expiry",
                config.delegation_token_expiry_check_interval_ms,
                self._delete_expired_tokens,
            ),
            ("idle connections", min(_IDLE_CHECK_MS, config.connections_max_idle_ms), self._close_idle),
        ]
        for name, interval_ms, task in periodic:
            if interval_ms > 0:
                self._tasks.append(asyncio.create_task(self._repeat(name, interval_ms, task)))

    async def stop(self) -> None:
        """Waits for running tasks, because their files are closed next, and starts no further one."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        self._tasks.clear()

    async def _repeat(self, name: str, interval_ms: int, task: PeriodicTask) -> None:
        while not await set_within(self._stopping, min(interval_ms, _MAX_SLEEP_MS) / 1000):
            try:
                await task()
            except Exception:
                _log.exception("a periodic task failed", extra={"task": name})

    async def _apply_retention(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            if not partition.is_open:
                continue
            try:
                deleted = partition.log.apply_retention(now_ms, partition.high_watermark)
            except BrokenInvariant:
                continue  # it has stopped the partition, and is reported
            except ApiError as error:
                _log.error(
                    "retention failed", extra={"partition": partition.log.name, "reason": error.message}
                )
                continue
            if deleted:
                # The log start may have moved. Waiting fetches carry it between leader and followers.
                partition.wake_readers()
            for segment in deleted:
                _log.info(
                    "segment deleted",
                    extra={
                        "partition": partition.log.name,
                        "base_offset": segment.base_offset,
                        "size_bytes": segment.size_bytes,
                        "reason": segment.reason.value,
                    },
                )
            await asyncio.sleep(0)

    async def _flush_due(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            if not partition.log.flush_is_due(now_ms) or partition.log.is_flushing:
                continue
            try:
                # Cancelling this task must not interrupt a flush.
                await asyncio.shield(partition.flusher.begin())
            except Exception:
                # Other partitions have other disks and deadlines, so they are still flushed.
                _log.exception("a flush failed", extra={"partition": partition.log.name})

    async def _remove_files(self) -> None:
        now_ms = self._clock.now_ms()
        for directory in self._online_directories():
            paths = directory.collect_deleted(now_ms)
            if paths:
                await self._write(directory, partial(directory.remove_paths, paths))

    async def _write_recovery_points(self) -> None:
        for directory in self._online_directories():
            await self._write(directory, directory.checkpoints.capture_recovery_points())

    async def _write_log_starts(self) -> None:
        for directory in self._online_directories():
            await self._write(directory, directory.checkpoints.capture_log_starts())

    async def _write_high_watermarks(self) -> None:
        for directory in self._online_directories():
            offsets = self._partitions.high_watermarks(directory)
            await self._write(directory, directory.checkpoints.capture_high_watermarks(offsets))

    def _online_directories(self) -> list[LogDirectory]:
        return [
            directory for directory in self._services.disks.directories if directory.offline_reason is None
        ]

    async def _write(self, directory: LogDirectory, write: Callable[[], None]) -> None:
        """Writes files on a thread. A disk error takes the directory offline, as for an append."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, write)
        except OSError as error:
            directory.on_io_error(error)

    async def _shrink_isrs(self) -> None:
        self._partitions.shrink_isrs()

    async def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            partition.log.expire_producers(now_ms)

    async def _confirm_deletions(self) -> None:
        if self._services.image.deleted_topics:
            # A start needs no module for this.
            from felice.server.membership.deleted_topics import DeletedTopics

            await DeletedTopics(self._services, self._store).confirm()

    async def _forget_silent_clients(self) -> None:
        self._services.telemetry.forget_silent()

    async def _delete_expired_tokens(self) -> None:
        if self._services.image.controller_id == self._services.broker_id:
            await self._services.security.tokens.delete_expired()

    async def _forget_frame_memory(self) -> None:
        self._services.flow.frame_memory.forget_unused()

    async def _close_idle(self) -> None:
        max_idle_s = self._services.settings.config.connections_max_idle_ms / 1000
        if max_idle_s > 0:
            now = self._clock.monotonic()
            for listener in self._listeners:
                listener.close_idle(now, max_idle_s)
