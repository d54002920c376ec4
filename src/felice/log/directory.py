"""One entry of `log.dirs`: the partitions on one disk, and the files that they share.

Keeps true: one broker at a time uses the directory (`.lock`), and only the broker
            and cluster that it belongs to (`meta.properties`).
            `.kafka_cleanshutdown` exists only after a stop that left every
            partition whole and on disk; it is gone before anything is loaded.
            A partition that could not be loaded keeps its checkpoints, so that
            the next start looks at it as hard as this one did.

An I/O error takes the whole directory offline, as in Kafka, but for a full disk
or too many open files: then only what needed more of them fails, until there is
room again. A log that such a fault took offline, halfway through something, is
looked at again (`reopen`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from felice.config import TopicConfig
from felice.env import Clock, Disk, DiskLocked, Lock
from felice.log import checkpoints, failed_sync, meta_properties, partition_metadata
from felice.log.checkpoints import Checkpoint
from felice.log.errors import LogDirectoryError, is_shortage
from felice.log.files import DEFAULT_LIMIT, OpenFiles
from felice.log.log import DEFAULT_PRODUCER_EXPIRATION_MS, Log
from felice.log.meta_properties import MetaProperties
from felice.log.strays import Strays
from felice.protocol.errors import ApiError
from felice.protocol.topic_partition import PartitionKey

_log = logging.getLogger("felice.log")

LOCK_NAME = ".lock"
CLEAN_SHUTDOWN_NAME = ".kafka_cleanshutdown"
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":"-1"}'

_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_DELETE_SUFFIX = "-delete"
_STRAY_SUFFIX = "-stray"
_FUTURE_SUFFIX = "-future"
_SET_ASIDE_NAME = re.compile(r".+\.[0-9a-f]{32}(-delete|-stray|-future)")
_NAME_MAX_LENGTH = 255
# Names of deleted partitions that are kept until the checkpoints on disk are sure not to tell of them.
MOST_FORGOTTEN = 1_000


class LogDirectory:
    """See the module. `acquire`, then `load`; `close` when done."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        path: Path,
        *,
        recovery_threads: int = 2,
        producer_id_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        max_open_files: int = DEFAULT_LIMIT,
    ) -> None:
        self.path = path
        self.directory_id: UUID | None = None
        self.logs: dict[PartitionKey, Log] = {}
        # Replicas on their way here from another directory (`server/replica_moves.py`).
        self.futures: dict[PartitionKey, Log] = {}
        self.unfinished_moves: list[PartitionKey] = []
        self.failed: dict[PartitionKey, str] = {}
        self.high_watermarks: dict[PartitionKey, int] = {}
        self.clean_offsets: dict[PartitionKey, int] = {}
        self.was_clean = False
        self._sync_failed = False
        self.offline_reason: str | None = None
        self.on_offline: Callable[[LogDirectory], None] | None = None
        # Called with a log that went offline while its directory goes on.
        self.on_log_offline: Callable[[Log], None] | None = None
        self._disk = disk
        self._clock = clock
        self._files = OpenFiles(disk, max_open_files)
        self.recovery_threads = recovery_threads
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._lock: Lock | None = None
        self._recovery_points = Checkpoint(disk, path / checkpoints.RECOVERY_POINTS)
        self._log_starts = Checkpoint(disk, path / checkpoints.LOG_START_OFFSETS)
        self._high_watermarks = Checkpoint(disk, path / checkpoints.HIGH_WATERMARKS)
        self._clean_offsets = Checkpoint(disk, path / checkpoints.CLEAN_OFFSETS)
        self._read_recovery_points: dict[PartitionKey, int] = {}
        self._read_log_starts: dict[PartitionKey, int] = {}
        # Partitions that are gone, but that the checkpoints on disk may still tell of.
        self._forgotten: set[PartitionKey] = set()
        self._deleted: list[tuple[int, Path]] = []
        self.strays = Strays(disk)
        self._set_aside_count = 0
        # Directories of new partitions that could neither be completed nor removed.
        self._half_made: set[Path] = set()
        self._shortages_reported: set[str] = set()

    # -- opening ---------------------------------------------------------------------------------------

    def acquire(self, *, node_id: int, cluster_id: str, new_directory_id: UUID) -> None:
        """Locks the directory and proves it ours; a new one becomes ours. Raises `LogDirectoryError`.

        Where the disk is to blame the directory is offline then: the others may go on without it.
        """
        try:
            self._disk.mkdir(self.path)
            self._lock = self._disk.lock(self.path / LOCK_NAME)
            found = meta_properties.read(self._disk, self.path)
            if found is None:
                found = MetaProperties(node_id, cluster_id, new_directory_id)
                meta_properties.write(self._disk, self.path, found)
                self._disk.sync_dir(self.path.parent)
            meta_properties.check(found, self.path, node_id=node_id, cluster_id=cluster_id)
            self.directory_id = found.directory_id
        except DiskLocked as error:
            raise LogDirectoryError(self.path, "is in use by another broker") from error
        except OSError as error:
            self._release()
            # Nothing of it is served yet; the broker knows whether it can go on, and says so.
            self.offline_reason = str(error)
            raise LogDirectoryError(self.path, f"cannot be used: {error.strerror or error}") from error
        except LogDirectoryError:
            self._release()
            raise

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def load(self, config_of: Callable[[str], TopicConfig]) -> None:
        """Opens every partition, some at a time. One that cannot be opened is in `failed`, with the reason."""
        self._take_clean_shutdown_marker()
        self._sync_failed = failed_sync.is_marked(self._disk, self.path)
        self._read_recovery_points = self._recovery_points.read()
        self._read_log_starts = self._log_starts.read()
        self.high_watermarks = self._high_watermarks.read()
        self.clean_offsets = self._clean_offsets.read()
        found = self._partition_directories()
        checkpointed = {*self._read_recovery_points, *self._read_log_starts, *self.clean_offsets}
        self._forgotten = checkpointed - {key for key, _ in found}
        for key in self._forgotten:
            self.clean_offsets.pop(key, None)
        configs = [config_of(topic) for (topic, _), _ in found]
        keys, paths = [key for key, _ in found], [path for _, path in found]
        with self._workers("log-recovery") as each:
            outcomes = each(self._open_or_reason, keys, paths, configs)
            for (topic_partition, _), outcome in zip(found, outcomes, strict=True):
                if isinstance(outcome, Log):
                    self._adopt(topic_partition, outcome)
                else:
                    self.failed[topic_partition] = outcome
                    _log.error("partition %s-%d is offline: %s", *topic_partition, outcome)
        if self._sync_failed and not self.failed:
            failed_sync.unmark(self._disk, self.path)

    @contextmanager
    def _workers(self, name: str) -> Iterator[Callable[..., Iterable[Any]]]:
        """`map` over recovery threads; with one, on the caller's own: a simulated broker has no threads."""
        if self.recovery_threads <= 1:
            yield map
            return
        with ThreadPoolExecutor(self.recovery_threads, thread_name_prefix=name) as pool:
            yield pool.map

    def _take_clean_shutdown_marker(self) -> None:
        """Gone before loading begins: a crash meanwhile must count as an unclean stop."""
        marker = self.path / CLEAN_SHUTDOWN_NAME
        self.was_clean = self._disk.exists(marker)
        if self.was_clean:
            self._disk.remove(marker)
            self._disk.sync_dir(self.path)

    def _partition_directories(self) -> list[tuple[PartitionKey, Path]]:
        found = []
        for name in self._disk.listdir(self.path):
            path = self.path / name
            if not self._disk.is_dir(path):
                continue
            if _SET_ASIDE_NAME.fullmatch(name):
                self._meet_set_aside(path)
            elif match := _PARTITION_NAME.fullmatch(name):
                found.append(((match["topic"], int(match["partition"])), path))
        return found

    def _meet_set_aside(self, path: Path) -> None:
        if path.name.endswith(_DELETE_SUFFIX):
            self._deleted.append((self._clock.now_ms(), path))
        elif path.name.endswith(_FUTURE_SUFFIX):
            # A copy that a stop interrupted: the replica is still where it was, and is copied anew.
            topic, _, partition = path.name.rpartition(".")[0].rpartition("-")
            self.unfinished_moves.append((topic, int(partition)))
            self._deleted.append((self._clock.now_ms(), path))
        else:
            self.strays.on_found(path)

    def _open_or_reason(self, topic_partition: PartitionKey, path: Path, config: TopicConfig) -> Log | str:
        try:
            return self._open(
                topic_partition,
                path,
                config,
                recovery_point=self._read_recovery_points.get(topic_partition, 0),
                log_start_offset=self._read_log_starts.get(topic_partition, 0),
                clean_shutdown=self.was_clean,
                sync_failed=self._sync_failed,
            )
        except ApiError as error:
            return error.message
        except OSError as error:
            return str(error)

    def _open(
        self,
        topic_partition: PartitionKey,
        path: Path,
        config: TopicConfig,
        *,
        recovery_point: int,
        log_start_offset: int,
        clean_shutdown: bool,
        sync_failed: bool = False,
    ) -> Log:
        return Log.open(
            self._disk,
            self._clock,
            path,
            topic_partition,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown,
            sync_failed=sync_failed,
            files=self._files,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
        )

    def _adopt(self, topic_partition: PartitionKey, log: Log) -> None:
        log.on_failure = self._on_log_failure
        log.on_recovery_point_lowered = lambda log: self._on_truncated(topic_partition, log)
        self.logs[topic_partition] = log
        if self.clean_offsets.get(topic_partition, 0) > log.log_end_offset:
            # A recovery cut the log below: what comes there now was never cleaned.
            self.clean_offsets[topic_partition] = log.log_end_offset

    def _on_truncated(self, topic_partition: PartitionKey, log: Log) -> None:
        """What is written again above the cut is neither on disk nor clean."""
        self.capture_recovery_points()()
        self.capture_log_starts()()
        if self.clean_offsets.get(topic_partition, 0) > log.log_end_offset:
            self.clean_offsets[topic_partition] = log.log_end_offset
            self.capture_clean_offsets()()

    # -- partitions ------------------------------------------------------------------------------------

    def create(self, topic: str, partition: int, config: TopicConfig, topic_id: UUID | None) -> Log:
        """Begins the log of a new partition. It reaches the disk with its first flush."""
        self._check_online()
        topic_partition = topic, partition
        path = self.path / f"{topic}-{partition}"
        if topic_partition in self.logs or self._is_taken(path):
            raise LogDirectoryError(self.path, f"has a directory {path.name} already")
        log = self._begin(topic_partition, path, config, topic_id)
        self._adopt(topic_partition, log)
        return log

    def create_many(
        self, wanted: Sequence[tuple[PartitionKey, TopicConfig, UUID]]
    ) -> Callable[[], Callable[[], None]]:
        """As `create`, in three steps: here and now, then on any thread, then here again with what that gave.

        What cannot be made is left out: `create` says why.
        """
        if self.offline_reason is not None:
            return lambda: lambda: None
        for topic_partition, _, _ in wanted:
            self._forget_on_disk(topic_partition)

        def begin() -> Callable[[], None]:
            begun: dict[PartitionKey, Log] = {}
            for topic_partition, config, topic_id in wanted:
                path = self.path / f"{topic_partition[0]}-{topic_partition[1]}"
                with suppress(OSError):
                    if not self._is_taken(path):
                        begun[topic_partition] = self._begin_files(topic_partition, path, config, topic_id)
            return lambda: self._adopt_many(begun)

        return begin

    def _adopt_many(self, begun: Mapping[PartitionKey, Log]) -> None:
        for topic_partition, log in begun.items():
            self._adopt(topic_partition, log)
            if self.offline_reason is not None:
                log.take_offline(self.offline_reason)

    def _begin(
        self, topic_partition: PartitionKey, path: Path, config: TopicConfig, topic_id: UUID | None
    ) -> Log:
        try:
            self._forget_on_disk(topic_partition)
            return self._begin_files(topic_partition, path, config, topic_id)
        except OSError as error:
            self.on_io_error(error)
            raise LogDirectoryError(self.path, f"cannot take a new partition: {error}") from error

    def _begin_files(
        self, topic_partition: PartitionKey, path: Path, config: TopicConfig, topic_id: UUID | None
    ) -> Log:
        """On any thread."""
        if path in self._half_made:
            with suppress(FileNotFoundError):
                self._disk.remove_tree(path)
            self._half_made.discard(path)
        try:
            self._disk.mkdir(path)
            if topic_id is not None:
                partition_metadata.write(self._disk, path, topic_id)
            return Log.begin(
                self._clock,
                path,
                topic_partition,
                config,
                topic_id,
                files=self._files,
                producer_id_expiration_ms=self._producer_id_expiration_ms,
            )
        except OSError:
            self._files.forget_under(path)
            self._remove_half_made(path)
            raise

    def _is_taken(self, path: Path) -> bool:
        return path not in self._half_made and self._disk.exists(path)

    def _remove_half_made(self, path: Path) -> None:
        """Half a partition must not stand in the way of the next attempt."""
        try:
            self._disk.remove_tree(path)
        except FileNotFoundError:
            pass
        except OSError:
            # Removing takes descriptors, too: the next attempt begins with it.
            self._half_made.add(path)

    def delete(self, topic: str, partition: int) -> None:
        """Sets a partition aside; its files go after file.delete.delay.ms. The name is free at once."""
        log = self.logs.get((topic, partition))
        self._set_aside(topic, partition, _DELETE_SUFFIX, log.config.file_delete_delay_ms if log else 0)

    def set_aside_as_stray(self, topic: str, partition: int, reason: str) -> None:
        """Takes a partition out that this broker should not have, and keeps its files for a person to look at."""
        log = self.logs.get((topic, partition))
        target = self._set_aside(topic, partition, _STRAY_SUFFIX, None)
        self.strays.on_set_aside(f"{topic}-{partition}", log, target, reason)

    def _set_aside(self, topic: str, partition: int, suffix: str, delay_ms: int | None) -> Path:
        topic_partition = topic, partition
        path = self.path / f"{topic}-{partition}"
        log = self.logs.pop(topic_partition, None)
        if log is not None:
            log.close(clean=False)
        self.failed.pop(topic_partition, None)
        target = self._set_aside_path(path.name, suffix)
        try:
            self._disk.rename(path, target)
        except OSError as error:
            self.on_io_error(error)
            raise LogDirectoryError(self.path, f"cannot set {path.name} aside: {error}") from error
        kept = (self._read_recovery_points, self._read_log_starts, self.high_watermarks, self.clean_offsets)
        for offsets in kept:
            offsets.pop(topic_partition, None)
        self._forgotten.add(topic_partition)
        if len(self._forgotten) > MOST_FORGOTTEN:
            self._forget_all_on_disk()
        if delay_ms is not None:
            self._deleted.append((self._clock.now_ms() + delay_ms, target))
        return target

    def _set_aside_path(self, name: str, suffix: str) -> Path:
        self._set_aside_count += 1
        unique = f"{self._clock.now_ms():016x}{self._set_aside_count:016x}{suffix}"
        return self.path / f"{name[: _NAME_MAX_LENGTH - len(unique) - 1]}.{unique}"

    def _forget_on_disk(self, topic_partition: PartitionKey) -> None:
        """Else a crash would let a new partition begin with the recovery point of one that had its name."""
        if topic_partition in self._forgotten:
            self._write_checkpoints()

    def _forget_all_on_disk(self) -> None:
        """What is deleted and never made again would be remembered for ever."""
        try:
            self._write_checkpoints()
        except OSError as error:
            self.on_io_error(error)

    def _write_checkpoints(self) -> None:
        self.capture_recovery_points()()
        self.capture_log_starts()()
        self.capture_clean_offsets()()
        self._forgotten.clear()

    # -- logs that had no room -------------------------------------------------------------------------

    def reopen(self, topic_partition: PartitionKey) -> Callable[[], Callable[[], Log | None]]:
        """Looks again at a log that went offline for want of room, as a start after a crash would.

        In three steps, as `create_many`. The last gives the log that takes its place, None if there is still no room.
        """
        old = self.logs[topic_partition]
        old.close(clean=False)
        write_recovery_points = self.capture_recovery_points()

        def look() -> Callable[[], Log | None]:
            try:
                # What a truncation lowered must be on disk before the log is written again.
                write_recovery_points()
                log = self._open(
                    topic_partition,
                    old.directory,
                    old.config,
                    recovery_point=old.recovery_point,
                    log_start_offset=old.log_start_offset,
                    clean_shutdown=False,
                    sync_failed=True,  # perhaps: what is above the recovery point is not taken for being on disk
                )
            except (OSError, ApiError) as error:
                return partial(self._not_reopened, old, error)
            return partial(self._take_back, topic_partition, old, log)

        return look

    def _not_reopened(self, old: Log, error: Exception) -> None:
        self._files.forget_under(old.directory)
        if self.logs.get((old.topic, old.partition)) is not old:
            return  # its files were set aside meanwhile, and may not have been found for that
        if isinstance(error, OSError):
            self.on_io_error(error)
        else:
            old.wants_room = False
            _log.error("partition %s stays offline: %s", old.name, error)

    def _take_back(self, topic_partition: PartitionKey, old: Log, log: Log) -> Log | None:
        if self.offline_reason is not None or self.logs.get(topic_partition) is not old:
            log.close(clean=False)
            return None
        self._adopt(topic_partition, log)
        _log.info("partition %s is online again", log.name)
        return log

    # -- replicas that come from another directory -----------------------------------------------------

    def create_future(self, topic: str, partition: int, config: TopicConfig, topic_id: UUID) -> Log:
        """Begins the copy of a replica of another directory; `adopt_future` makes it the replica."""
        self._check_online()
        name = f"{topic}-{partition}"
        path = self._set_aside_path(name, _FUTURE_SUFFIX)
        if not path.name.startswith(f"{name}."):
            # A next start could not tell whose copy it is.
            raise LogDirectoryError(self.path, f"cannot take {name}: the name is too long for a copy")
        log = self._begin((topic, partition), path, config, topic_id)
        log.on_failure = self._on_log_failure
        self.futures[topic, partition] = log
        return log

    def adopt_future(self, topic: str, partition: int, *, clean_offset: int) -> Log:
        """Gives the copy, which must be whole, the replica's name; what it holds is on disk then."""
        topic_partition = topic, partition
        future = self.futures[topic_partition]
        path = self.path / f"{topic}-{partition}"
        try:
            future.close()
            self._disk.rename(future.directory, path)
            self._disk.sync_dir(self.path)
            log = self._open(
                topic_partition,
                path,
                future.config,
                recovery_point=future.log_end_offset,
                log_start_offset=future.log_start_offset,
                clean_shutdown=True,
            )
        except OSError as error:
            self.on_io_error(error)
            raise LogDirectoryError(self.path, f"cannot take {path.name}: {error}") from error
        del self.futures[topic_partition]
        self._adopt(topic_partition, log)
        self.clean_offsets[topic_partition] = clean_offset
        return log

    def drop_future(self, topic: str, partition: int) -> None:
        """Ends a copy that is wanted no more; its files go when files go next."""
        future = self.futures.pop((topic, partition))
        future.close(clean=False)
        target = self._set_aside_path(f"{topic}-{partition}", _DELETE_SUFFIX)
        try:
            self._disk.rename(future.directory, target)
        except OSError as error:
            self.on_io_error(error)
        else:
            self._deleted.append((self._clock.now_ms(), target))

    def collect_deleted(self, now_ms: int) -> list[Path]:
        """Files and directories whose time to go has come, for `remove_paths`, which may run on a thread."""
        due = [path for due_ms, path in self._deleted if due_ms <= now_ms]
        self._deleted = [(due_ms, path) for due_ms, path in self._deleted if due_ms > now_ms]
        for log in self.logs.values():
            due += log.collect_deleted(now_ms)
        return due

    def remove_paths(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if self._disk.is_dir(path):
                self._disk.remove_tree(path)
            else:
                with suppress(FileNotFoundError):  # `reopen` may have been here first
                    self._disk.remove(path)

    def update_producer_expiration(self, producer_id_expiration_ms: int) -> None:
        """How long idle producers are remembered from now on, in every log here and to come."""
        self._producer_id_expiration_ms = producer_id_expiration_ms
        for log in self.logs.values():
            log.producers.expiration_ms = producer_id_expiration_ms

    # -- checkpoints -----------------------------------------------------------------------------------

    def capture_recovery_points(self) -> Callable[[], None]:
        """The recovery points as of now. The result writes them, on any thread; it may raise OSError."""
        current = {topic_partition: log.recovery_point for topic_partition, log in self.logs.items()}
        return self._recovery_points.capture({**self._kept(self._read_recovery_points), **current})

    def capture_log_starts(self) -> Callable[[], None]:
        """The log start offsets. Those of first segments too: what was removed may come back with a loss of power."""
        moved = {
            topic_partition: log.log_start_offset
            for topic_partition, log in self.logs.items()
            if log.log_start_offset > 0
        }
        return self._log_starts.capture({**self._kept(self._read_log_starts), **moved})

    def capture_high_watermarks(self, offsets: Mapping[PartitionKey, int]) -> Callable[[], None]:
        return self._high_watermarks.capture({**self._kept(self.high_watermarks), **offsets})

    def capture_clean_offsets(self) -> Callable[[], None]:
        """How far the cleaner got in each log."""
        return self._clean_offsets.capture(self.clean_offsets)

    def _kept(self, offsets: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
        return {
            topic_partition: offset
            for topic_partition, offset in offsets.items()
            if topic_partition in self.failed
        }

    # -- failing ---------------------------------------------------------------------------------------

    def _check_online(self) -> None:
        if self.offline_reason is not None:
            raise LogDirectoryError(self.path, f"is offline: {self.offline_reason}")

    def _on_log_failure(self, log: Log, error: Exception) -> None:
        if isinstance(error, OSError):
            self.on_io_error(error)
        elif log.offline_reason is not None:
            _log.error("%s; the other partitions of %s go on", log.offline_reason, self.path)
        if log.offline_reason is not None and self.offline_reason is None and self.on_log_offline is not None:
            self.on_log_offline(log)

    def on_io_error(self, error: OSError) -> None:
        """An operation on the directory failed: it is offline from now on, unless it only wants room."""
        if not is_shortage(error):
            self.fail(error)
        elif (reason := error.strerror or "") not in self._shortages_reported:
            self._shortages_reported.add(reason)
            _log.error("writes to %s fail until there is room: %s", self.path, error)

    def fail(self, error: Exception) -> None:
        """Takes the directory and all its partitions offline until the broker starts again."""
        if self.offline_reason is not None:
            return
        self.offline_reason = str(error)
        _log.error("log directory %s is offline: %s", self.path, error)
        for log in (*self.logs.values(), *self.futures.values()):
            log.take_offline(f"log directory {self.path} failed: {error}")
        if self.on_offline is not None:
            self.on_offline(self)

    # -- closing ---------------------------------------------------------------------------------------

    def close(self, high_watermarks: Mapping[PartitionKey, int] | None = None) -> None:
        """Brings everything to disk and gives the directory back. Only a stop without fault counts as clean."""
        try:
            if self.offline_reason is None:
                self._close_logs(high_watermarks or {})
        except OSError as error:
            self.fail(error)
        finally:
            self._release()

    def _close_logs(self, high_watermarks: Mapping[PartitionKey, int]) -> None:
        with self._workers("log-closing") as each:
            outcomes = list(each(_close_cleanly, self.logs.values()))
        # For all of them that are new.
        self._disk.sync_dir(self.path)
        self.capture_recovery_points()()
        self.capture_log_starts()()
        self.capture_high_watermarks(high_watermarks)()
        for future in self.futures.values():
            future.close(clean=False)
        if all(outcomes) and not self.failed:
            self._disk.write_atomic(self.path / CLEAN_SHUTDOWN_NAME, _CLEAN_SHUTDOWN_CONTENT)

    def abandon(self) -> None:
        """Lets go without bringing anything to disk, as a crash would; the next start recovers."""
        for log in (*self.logs.values(), *self.futures.values()):
            log.close(clean=False)
        self._release()


def _close_cleanly(log: Log) -> bool:
    try:
        log.close(parent_follows=True)
    except (ApiError, OSError) as error:
        _log.error("partition %s could not be closed: %s", log.name, error)
    return log.was_closed_cleanly
