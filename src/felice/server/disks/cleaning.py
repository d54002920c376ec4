"""The log cleaner of a broker: chooses the next partition, cleans it on a thread, and reports the result.

Keeps true: at most one thread cleans a partition at a time. Decisions use only facts read on the event loop. Each new
            segment is swapped in on the event loop, in one step, if the log did not change since the pass began.
            A partition that cannot be cleaned is reported in the log and in `status`, and skipped until its log is
            opened again or replaced: by a restart, a move, or a new topic of the same name. A full disk is not a
            failure of the partition: cleaning is retried.
How:        one worker with its own thread for each of log.cleaner.threads. Every pass reads the options again.
            `log.cleaner_plan` decides, `log.cleaner_pass` reads and writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial
from typing import TypeVar

from felice.config import BrokerConfig
from felice.dataclass import dataclass
from felice.env import Environment
from felice.env.clock import set_within
from felice.log import cleaner_plan
from felice.log.cleaner_pass import CleanerSettings, CleanerStats, CleaningAborted, CleaningPass, log_facts
from felice.log.cleaner_plan import Cleanable
from felice.log.directory import LogDirectory
from felice.log.errors import LogOffline
from felice.log.log import Log
from felice.log.throttle import Throttle
from felice.protocol.errors import ApiError, BrokenInvariant
from felice.replication.partition import Partition
from felice.replication.partitions import Partitions
from felice.server.configs.settings import Settings
from felice.server.disks.log_directories import LogDirectories

_log = logging.getLogger("felice.server")

T = TypeVar("T")

_MAX_SLEEP_MS = 24 * 3_600_000
_MIN_SLEEP_MS = 50
_SECRET_BYTES = 16


@dataclass(slots=True)
class CleanerStatus:
    """Current and finished cleaning by partition name. Can be read at any time; only the cleaner writes it."""

    running: dict[str, CleanerStats] = field(default_factory=dict)
    last: dict[str, CleanerStats] = field(default_factory=dict)
    uncleanable: dict[str, str] = field(default_factory=dict)
    passes: int = 0
    aborted_passes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class _Choice:
    partition: Partition
    directory: LogDirectory
    found: Cleanable


class Cleaner:
    """The workers that clean the partitions of one broker."""

    def __init__(
        self,
        env: Environment,
        settings: Settings,
        directories: LogDirectories,
        partitions: Partitions,
        is_moving: Callable[[str, int], bool],
    ) -> None:
        self._env = env
        self._settings = settings
        self._directories = directories
        self._partitions = partitions
        # Whether a replica is moving to another log directory.
        self._is_moving = is_moving
        self.status = CleanerStatus()
        self._throttle = Throttle(env.clock, lambda: settings.config.log_cleaner_io_max_bytes_per_second)
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._uncleanable: dict[str, Log] = {}
        self._is_running = False
        self._woken = asyncio.Event()

    def start(self) -> None:
        """Starts the workers."""
        self._is_running = self._settings.config.log_cleaner_enable
        self.reconfigure(self._settings.config)

    async def stop(self) -> None:
        """Stops the workers. A running pass ends at its next read or write, and drops segments not yet swapped in."""
        self._is_running = False
        self._throttle.stopping.set()
        self._woken.set()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Adapts the number of workers to log.cleaner.threads. A surplus worker ends after its pass."""
        if not self._is_running:
            return
        for number in range(config.log_cleaner_threads):
            if number not in self._workers:
                self._workers[number] = asyncio.create_task(self._work(number))

    async def _work(self, number: int) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix=f"log-cleaner-{number}") as pool:
            try:
                while self._is_running and number < self._settings.config.log_cleaner_threads:
                    if not await self._clean_next(pool):
                        await self._sleep(self._settings.config.log_cleaner_backoff_ms)
            finally:
                self._workers.pop(number, None)

    async def _sleep(self, backoff_ms: int) -> None:
        await set_within(self._woken, min(max(backoff_ms, _MIN_SLEEP_MS), _MAX_SLEEP_MS) / 1000)

    # -- choosing --------------------------------------------------------------------------------------

    async def _clean_next(self, pool: ThreadPoolExecutor) -> bool:
        """Cleans the dirtiest partition. Returns False if none is due or if the pass did not finish."""
        choice = self._dirtiest()
        if choice is None:
            return False
        name = choice.partition.log.name
        try:
            return await self._clean(choice, pool)
        except CleaningAborted as reason:
            self.status.aborted_passes += 1
            _log.info("cleaning aborted", extra={"partition": name, "reason": str(reason)})
        except OSError as error:
            self._on_io_error(choice.partition.log, error)
        except (BrokenInvariant, LogOffline) as error:
            self._on_offline(choice.partition.log, error)
        except ApiError as error:
            self._give_up(choice.partition.log, error.message)
        except Exception as error:
            _log.exception("the cleaner failed", extra={"partition": name})
            self._give_up(choice.partition.log, f"{type(error).__name__}: {error}")
        finally:
            self.status.running.pop(name, None)
        return False

    def _dirtiest(self) -> _Choice | None:
        now_ms = self._env.clock.now_ms()
        due = []
        self._forget_replaced()
        for partition in self._partitions:
            log = partition.log
            if log.config.is_compacted and log.offline_reason is None and not self._is_taken(partition):
                choice = self._cleanable(partition, now_ms)
                if choice is not None and cleaner_plan.is_due(choice.found, log.config):
                    due.append(choice)
        return max(due, key=lambda choice: choice.found.dirty_ratio, default=None)

    def is_cleaning(self, log: Log) -> bool:
        """Whether a pass over this log is running."""
        return log.name in self.status.running

    def _is_taken(self, partition: Partition) -> bool:
        """Whether the cleaner must skip this partition.

        A replica that moves to another directory is cleaned after the move. Otherwise the copy could contain a value
        without the tombstone that deletes it.
        """
        log, is_moving = partition.log, self._is_moving(partition.topic, partition.partition)
        return is_moving or self.is_cleaning(log) or log.name in self._uncleanable

    def _forget_replaced(self) -> None:
        """Removes the status of deleted topics, so that memory stays bounded.

        A topic that was created again under the same name can be cleaned, even if the old one could not.
        """
        current = {partition.log.name: partition.log for partition in self._partitions}
        for name, log in list(self._uncleanable.items()):
            if current.get(name) is not log:
                del self._uncleanable[name], self.status.uncleanable[name]
        for name in self.status.last.keys() - current.keys():
            del self.status.last[name]

    def _cleanable(self, partition: Partition, now_ms: int) -> _Choice | None:
        log, key = partition.log, (partition.topic, partition.partition)
        directory = next((d for d in self._directories if d.logs.get(key) is log), None)
        if directory is None:
            return None
        try:
            facts = log_facts(log, partition.last_stable_offset, directory.checkpoints.clean_offsets.get(key))
            found = cleaner_plan.cleanable(facts, now_ms)
        except (ApiError, OSError) as error:
            self._give_up(log, str(error))
            return None
        if found.is_reset and key in directory.checkpoints.clean_offsets:
            self._note_reset(log, directory.checkpoints.clean_offsets[key], found.first_dirty_offset)
            directory.checkpoints.clean_offsets[key] = found.first_dirty_offset
        return _Choice(partition, directory, found)

    def _note_reset(self, log: Log, clean_offset: int, first_dirty_offset: int) -> None:
        # It is normal that retention and DeleteRecords move the log start past the clean offset.
        level = logging.INFO if clean_offset < log.log_start_offset else logging.WARNING
        _log.log(
            level,
            "cleaning begins again",
            extra={"partition": log.name, "clean_offset": clean_offset, "from": first_dirty_offset},
        )

    # -- cleaning --------------------------------------------------------------------------------------

    async def _clean(self, choice: _Choice, pool: ThreadPoolExecutor) -> bool:
        log, found, clock = choice.partition.log, choice.found, self._env.clock
        work = CleaningPass(log, found, self._pass_settings(), self._throttle, now_ms=clock.now_ms())
        self.status.running[log.name] = work.stats
        _log.info(
            "cleaning begins",
            extra={
                "partition": log.name,
                "from": found.first_dirty_offset,
                "to": found.end_offset,
                "dirty_bytes": found.dirty_bytes,
                "dirty_ratio": round(found.dirty_ratio, 3),
            },
        )
        started_s = clock.monotonic()
        await _on(pool, work.index)
        for group in work.groups():
            segment = await _on(pool, partial(work.clean, group))
            if segment is None:
                continue
            if not work.swap_in(group, segment):
                await _on(pool, partial(work.discard, segment))
                continue
            # A later group may drop tombstones only after the values that they hide are gone on disk, too.
            await _on(pool, partial(self._env.disk.sync_dir, log.directory))
        await self._note_clean(choice, work.end_offset, pool)
        self._report(log, work, clock.monotonic() - started_s)
        return work.end_offset > found.first_dirty_offset

    def _pass_settings(self) -> CleanerSettings:
        config = self._settings.config
        return CleanerSettings(
            map_bytes=config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1),
            load_factor=config.log_cleaner_io_buffer_load_factor,
            buffer_bytes=config.log_cleaner_io_buffer_size // max(config.log_cleaner_threads, 1),
            secret=self._env.random.randbytes(_SECRET_BYTES),
        )

    async def _note_clean(self, choice: _Choice, end_offset: int, pool: ThreadPoolExecutor) -> None:
        """Records the clean offset, unless the log was truncated or removed while the pass ended."""
        log, directory = choice.partition.log, choice.directory
        key = choice.partition.topic, choice.partition.partition
        if directory.logs.get(key) is not log or end_offset > log.log_end_offset:
            raise CleaningAborted(f"{log.name} is not as it was")
        directory.checkpoints.clean_offsets[key] = end_offset
        await _on(pool, directory.checkpoints.capture_clean_offsets())

    def _report(self, log: Log, work: CleaningPass, seconds: float) -> None:
        stats = work.stats
        self.status.passes += 1
        self.status.bytes_read += stats.bytes_indexed + stats.bytes_read
        self.status.bytes_written += stats.bytes_written
        self.status.last[log.name] = stats
        _log.info(
            "cleaned",
            extra={
                "partition": log.name,
                "up_to": work.end_offset,
                "seconds": round(seconds, 3),
                "bytes_read": stats.bytes_indexed + stats.bytes_read,
                "bytes_before": stats.bytes_read,
                "bytes_after": stats.bytes_written,
                "records_before": stats.records_read,
                "records_after": stats.records_kept,
                "segments_before": stats.segments_before,
                "segments_after": stats.segments_after,
                "keys": stats.keys,
                "map": f"{stats.keys}/{stats.map_slots}" + (" full" if stats.is_map_full else ""),
            },
        )

    # -- failing ---------------------------------------------------------------------------------------

    def _on_io_error(self, log: Log, error: OSError) -> None:
        """Passes an I/O error on to the log directory, which handles it like the error of an append."""
        if log.offline_reason is None and log.on_failure is not None:
            _log.error("cleaning failed", extra={"partition": log.name, "reason": str(error)})
            log.on_failure(log, error)

    def _on_offline(self, log: Log, error: ApiError) -> None:
        if log.offline_reason is None:
            self._give_up(log, error.message)

    def _give_up(self, log: Log, reason: str) -> None:
        self._uncleanable[log.name] = log
        self.status.uncleanable[log.name] = reason
        _log.error(
            "partition cannot be cleaned and is left alone", extra={"partition": log.name, "reason": reason}
        )


async def _on(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work)
