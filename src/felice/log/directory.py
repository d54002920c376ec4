"""One entry of `log.dirs`: the partitions on one disk, and the files that they share.

Keeps true: one broker at a time uses the directory (`.lock`), and only the broker
            and cluster that it belongs to (`meta.properties`).
            `.kafka_cleanshutdown` exists only after a stop that left every
            partition whole and on disk. It is removed before anything is loaded.
            A partition that could not be loaded keeps its checkpoints, so that
            the next start checks it as strictly as this one.

An I/O error takes the whole directory offline, as in Kafka. A full disk and too many
open files are exceptions: only the operations that need room or a descriptor fail,
until there is room again. A log that such a shortage stopped in the middle of an
operation goes offline alone and is loaded again (`reopen`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import UUID

from felice.config import TopicConfig
from felice.env import Clock, Disk, DiskLocked, Lock
from felice.log import (
    clean_shutdown,
    deleted_paths,
    directory_names,
    failed_sync,
    meta_properties,
    partition_metadata,
)
from felice.log.directory_checkpoints import DirectoryCheckpoints
from felice.log.directory_names import DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX, SetAsideNames
from felice.log.errors import LogDirectoryError, is_shortage
from felice.log.files import DEFAULT_LIMIT, OpenFiles
from felice.log.log import DEFAULT_PRODUCER_EXPIRATION_MS, Log
from felice.log.meta_properties import MetaProperties
from felice.log.partition_logs import PartitionLogs
from felice.log.readable import ReadableLog
from felice.log.strays import Stray, Strays
from felice.log.workers import workers
from felice.protocol.errors import ApiError, BrokenInvariant
from felice.protocol.topic_partition import PartitionKey

_log = logging.getLogger("felice.log")

LOCK_NAME = ".lock"


class LogDirectory:
    """See the module. Call `acquire`, then `load`, and `close` at the end."""

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
        # Replicas that are being copied here from another directory (`server/disks/replica_moves.py`).
        self.futures: dict[PartitionKey, Log] = {}
        self.unfinished_moves: list[PartitionKey] = []
        self.failed: dict[PartitionKey, str] = {}
        self.checkpoints = DirectoryCheckpoints(disk, path, self.logs, self.failed)
        self.was_clean = False
        self._sync_failed = False
        self.offline_reason: str | None = None
        self.on_offline: Callable[[LogDirectory], None] | None = None
        # Called with a log that went offline while its directory stays online.
        self.on_log_offline: Callable[[ReadableLog], None] | None = None
        self._disk = disk
        self._clock = clock
        self._files = OpenFiles(disk, max_open_files)
        self.recovery_threads = recovery_threads
        self._lock: Lock | None = None
        self._deleted: list[tuple[int, Path]] = []
        self.strays = Strays(disk)
        self._names = SetAsideNames(path, clock)
        self._partition_logs = PartitionLogs(disk, clock, self._files, producer_id_expiration_ms)
        self._shortages_reported: set[str] = set()

    # -- opening ---------------------------------------------------------------------------------------

    def acquire(self, *, node_id: int, cluster_id: str, new_directory_id: UUID) -> None:
        """Locks the directory and checks that it is this broker's, or claims a new one. Raises `LogDirectoryError`.

        After a disk error the directory is offline: the broker may go on with its other directories.
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
            # The directory serves nothing yet. The broker decides whether it can start without it, and logs that.
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
        """Opens all partitions, several at a time. `failed` has the reason for each that cannot be opened.

        `config_of` returns a topic's configuration. Raises `LogDirectoryError` for a damaged checkpoint, or OSError.
        """
        self.was_clean = clean_shutdown.take_marker(self._disk, self.path)
        self._sync_failed = failed_sync.has_marker(self._disk, self.path)
        self.checkpoints.read()
        found = self._partition_directories()
        self.checkpoints.forget_all_but([key for key, _ in found])
        configs = [config_of(topic) for (topic, _), _ in found]
        keys, paths = [key for key, _ in found], [path for _, path in found]
        with workers(self.recovery_threads, "log-recovery") as each:
            open_one = partial(self._open_or_reason, clean_shutdown=self.was_clean)
            outcomes = each(open_one, keys, paths, configs)
            for (topic_partition, _), outcome in zip(found, outcomes, strict=True):
                self._take(topic_partition, outcome)
        self._limit_checkpoints()
        if self._sync_failed and not self.failed:
            failed_sync.remove_marker(self._disk, self.path)

    def _limit_checkpoints(self) -> None:
        """Lowers the checkpointed offsets of logs whose end a recovery removed.

        If there is no room to write that, such a log must not be written: it is offline until `reopen` succeeds.
        """
        try:
            self.checkpoints.limit({key: log.log_end_offset for key, log in self.logs.items()})
        except OSError as error:
            if not is_shortage(error):
                raise
            self.on_io_error(error)
            for key, log in self.logs.items():
                if self.checkpoints.is_above(key, log.log_end_offset):
                    log.take_offline(str(error))
                    log.lacks_room = True

    def _partition_directories(self) -> list[tuple[PartitionKey, Path]]:
        found = []
        for name in self._disk.listdir(self.path):
            path = self.path / name
            if not self._disk.is_dir(path):
                continue
            if directory_names.is_set_aside(name):
                self._on_set_aside_found(path)
            elif (key := directory_names.partition_of(name)) is not None:
                if self._partition_logs.is_partition(path):
                    found.append((key, path))
                else:
                    _log.warning(
                        "a directory is left alone: it has the name of a partition, but no log",
                        extra={"path": str(path)},
                    )
            elif name not in directory_names.OTHERS:
                _log.warning(
                    "a directory is left alone: its name is not that of a partition, such as orders-0",
                    extra={"path": str(path)},
                )
        return found

    def _on_set_aside_found(self, path: Path) -> None:
        if path.name.endswith(DELETE_SUFFIX):
            self._deleted.append((self._clock.now_ms(), path))
        elif path.name.endswith(FUTURE_SUFFIX):
            # A stop interrupted this copy. The replica is still in its old directory and is copied again.
            key = directory_names.set_aside_partition_of(path.name)
            assert key is not None, f"{path.name} is no copy of a partition"
            self.unfinished_moves.append(key)
            self._deleted.append((self._clock.now_ms(), path))
        else:
            self.strays.on_found(path)

    def _take(self, topic_partition: PartitionKey, outcome: Log | str) -> None:
        """Adopts an opened log, or reports why it could not be opened."""
        if isinstance(outcome, Log):
            self._adopt(topic_partition, outcome)
            return
        self.failed[topic_partition] = outcome
        _log.error(
            "a partition is offline",
            extra={"partition": "{}-{}".format(*topic_partition), "reason": outcome},
        )

    def _open_or_reason(
        self, topic_partition: PartitionKey, path: Path, config: TopicConfig, *, clean_shutdown: bool
    ) -> Log | str:
        try:
            return self._partition_logs.open(
                topic_partition,
                path,
                config,
                recovery_point=self.checkpoints.recovery_point_of(topic_partition),
                log_start_offset=self.checkpoints.log_start_of(topic_partition),
                clean_shutdown=clean_shutdown,
                sync_failed=self._sync_failed,
            )
        except ApiError as error:
            return error.message
        except OSError as error:
            return str(error)

    def topic_ids(self) -> list[tuple[PartitionKey, UUID | None]]:
        """The partitions, also those that could not be opened, with their topics' ids; None where none can be read."""
        opened = [(key, log.topic_id) for key, log in self.logs.items()]
        paths = ((key, self.path / "{}-{}".format(*key)) for key in self.failed)
        return opened + [(key, partition_metadata.look(self._disk, path)) for key, path in paths]

    def _adopt(self, key: PartitionKey, log: Log) -> None:
        log.on_failure = self._on_log_failure
        log.on_recovery_point_lowered = lambda log: self.checkpoints.on_truncated(key, log.log_end_offset)
        self.logs[key] = log

    # -- partitions ------------------------------------------------------------------------------------

    def create(self, topic: str, partition: int, config: TopicConfig, topic_id: UUID | None) -> Log:
        """Creates the log of a new partition. Its first flush brings it to disk. Raises `LogDirectoryError`."""
        self._check_online()
        topic_partition = topic, partition
        path = self.path / f"{topic}-{partition}"
        self._check_free(topic_partition)
        log = self._begin(topic_partition, path, config, topic_id)
        self._adopt(topic_partition, log)
        return log

    def create_many(
        self, wanted: Sequence[tuple[PartitionKey, TopicConfig, UUID]]
    ) -> Callable[[], Callable[[], None]]:
        """Creates logs as `create` does, in three steps, because the second may run on any thread.

        Call this method, then its result on any thread, then that call's result on this thread. Logs that cannot
        be created are left out; `create` reports the reason.
        """
        if self.offline_reason is not None:
            return lambda: lambda: None
        try:
            for topic_partition, _, _ in wanted:
                self.checkpoints.forget_on_disk(topic_partition)
        except OSError as error:
            self.on_io_error(error)
            return lambda: lambda: None

        def begin() -> Callable[[], None]:
            begun: dict[PartitionKey, Log] = {}
            for key, config, topic_id in wanted:
                path = self.path / "{}-{}".format(*key)
                with suppress(OSError):
                    if not self._partition_logs.is_taken(path):
                        begun[key] = self._partition_logs.create(key, path, config, topic_id)
            return lambda: self._adopt_many(begun)

        return begin

    def _adopt_many(self, begun: Mapping[PartitionKey, Log]) -> None:
        for topic_partition, log in begun.items():
            self._adopt(topic_partition, log)
            if self.offline_reason is not None:
                log.take_offline(self.offline_reason)

    def _check_free(self, topic_partition: PartitionKey) -> None:
        path = self.path / "{}-{}".format(*topic_partition)
        if topic_partition in self.logs or self._partition_logs.is_taken(path):
            raise LogDirectoryError(self.path, f"has a directory {path.name} already")

    def _begin(
        self, topic_partition: PartitionKey, path: Path, config: TopicConfig, topic_id: UUID | None
    ) -> Log:
        try:
            self.checkpoints.forget_on_disk(topic_partition)
            return self._partition_logs.create(topic_partition, path, config, topic_id)
        except OSError as error:
            self.on_io_error(error)
            raise LogDirectoryError(self.path, f"cannot take a new partition: {error}") from error

    def delete(self, topic: str, partition: int) -> None:
        """Renames a partition; its files are removed after file.delete.delay.ms. The name is free at once.

        Raises `LogDirectoryError`.
        """
        log = self.logs.get((topic, partition))
        self._set_aside(topic, partition, DELETE_SUFFIX, log.config.file_delete_delay_ms if log else 0)

    def set_aside_as_stray(self, topic: str, partition: int, reason: str) -> None:
        """Removes a partition that this broker should not have. Its files stay, so that an operator can inspect them.

        Raises `LogDirectoryError`.
        """
        log = self.logs.get((topic, partition))
        target = self._set_aside(topic, partition, STRAY_SUFFIX, None)
        self.strays.on_set_aside((topic, partition), log, target, reason)

    def _set_aside(self, topic: str, partition: int, suffix: str, delay_ms: int | None) -> Path:
        topic_partition = topic, partition
        path = self.path / f"{topic}-{partition}"
        log = self.logs.pop(topic_partition, None)
        if log is not None:
            log.close(clean=False)
        reason = self.failed.pop(topic_partition, None)
        target = self._names.new(path.name, suffix)
        try:
            self._disk.rename(path, target)
        except OSError as error:
            # Its files are still here, so a later attempt must find it.
            self.failed[topic_partition] = reason or f"it could not be set aside: {error}"
            self.on_io_error(error)
            raise LogDirectoryError(self.path, f"cannot set {path.name} aside: {error}") from error
        self.checkpoints.forget(topic_partition)
        if self.checkpoints.has_too_many_forgotten:
            try:
                self.checkpoints.forget_on_disk()
            except OSError as error:
                self.on_io_error(error)
        if delay_ms is not None:
            self._deleted.append((self._clock.now_ms() + delay_ms, target))
        return target

    # -- strays ----------------------------------------------------------------------------------------

    def bring_back(
        self, stray: Stray, key: PartitionKey, config: TopicConfig
    ) -> Callable[[], Callable[[], None]]:
        """Gives the stray of a partition its name again and opens it, as a start after a crash would.

        In three steps, as `create_many`. `failed` has the reason if it cannot be opened.
        """
        return lambda: partial(self._take_stray, stray, key, self._named_again(stray, key, config))

    def _named_again(self, stray: Stray, key: PartitionKey, config: TopicConfig) -> Log | str | None:
        """The opened log, the reason why it cannot be opened, or None if it stays a stray. Runs on any thread."""
        path = self.path / "{}-{}".format(*key)
        if self._partition_logs.is_taken(path):
            return None
        try:
            self._disk.rename(stray.path, path)
            self._disk.sync_dir(self.path)
        except OSError as error:
            return str(error) if self._disk.exists(path) else None
        return self._open_or_reason(key, path, config, clean_shutdown=False)

    def _take_stray(self, stray: Stray, key: PartitionKey, outcome: Log | str | None) -> None:
        if outcome is None:
            return
        self.strays.forget(stray)
        self._take(key, outcome)
        if isinstance(outcome, str):
            return
        if self.offline_reason is not None:
            outcome.take_offline(self.offline_reason)
        _log.warning(
            "a log that was set aside is back: its topic is in the cluster's metadata again",
            extra={"partition": outcome.name, "log_end_offset": outcome.log_end_offset},
        )

    def delete_strays(self, is_deleted: Callable[[UUID], bool]) -> None:
        """Deletes the strays of topics whose deletion was requested."""
        for stray in self.strays:
            if stray.topic_id is None or not is_deleted(stray.topic_id) or self.offline_reason is not None:
                continue
            target = self._names.new(stray.path.name.rpartition(".")[0], DELETE_SUFFIX)
            try:
                self._disk.rename(stray.path, target)
            except FileNotFoundError:
                pass  # an operator moved it away
            except OSError as error:
                self.on_io_error(error)
                continue
            else:
                self._deleted.append((self._clock.now_ms(), target))
            self.strays.forget(stray)

    def sync_names(self) -> None:
        """Brings renamings to disk. Blocks; may run on any thread. Raises OSError."""
        self._disk.sync_dir(self.path)

    # -- logs that had no room -------------------------------------------------------------------------

    def reopen(self, topic_partition: PartitionKey) -> Callable[[], Callable[[], Log | None]]:
        """Loads a log again that a shortage took offline, as a start after a crash would.

        In three steps, as `create_many`. The last returns the log that replaces the old one, None if there is still
        no room.
        """
        old = self.logs[topic_partition]
        old.close(clean=False)
        write_recovery_points = self.checkpoints.capture_recovery_points()

        def look() -> Callable[[], Log | None]:
            try:
                # A recovery point that a truncation lowered must be on disk before the log is written again.
                write_recovery_points()
                log = self._partition_logs.open(
                    topic_partition,
                    old.directory,
                    old.config,
                    recovery_point=old.recovery_point,
                    log_start_offset=old.log_start_offset,
                    clean_shutdown=False,
                    # A sync may have failed: bytes above the recovery point may not be on disk.
                    sync_failed=True,
                )
            except (OSError, ApiError) as error:
                return partial(self._not_reopened, old, error)
            return partial(self._take_back, topic_partition, old, log)

        return look

    def _not_reopened(self, old: Log, error: Exception) -> None:
        self._files.forget_under(old.directory)
        if self.logs.get((old.topic, old.partition)) is not old:
            # The log was deleted meanwhile. Its files may have been missing for that reason.
            return
        if isinstance(error, OSError):
            self.on_io_error(error)
        else:
            old.lacks_room = False
            _log.error("a partition stays offline", extra={"partition": old.name, "reason": str(error)})

    def _take_back(self, topic_partition: PartitionKey, old: Log, log: Log) -> Log | None:
        if self.offline_reason is not None or self.logs.get(topic_partition) is not old:
            log.close(clean=False)
            return None
        try:
            # As at a start: the recovery may have removed the end of the log.
            self.checkpoints.limit({topic_partition: log.log_end_offset})
        except OSError as error:
            log.close(clean=False)
            self._not_reopened(old, error)
            return None
        self._adopt(topic_partition, log)
        _log.info("a partition is online again", extra={"partition": log.name})
        return log

    # -- replicas that come from another directory -----------------------------------------------------

    def create_future(self, topic: str, partition: int, config: TopicConfig, topic_id: UUID) -> Log:
        """Starts a copy of a replica of another directory. `adopt_future` makes the copy the replica.

        Raises `LogDirectoryError`.
        """
        self._check_online()
        name = f"{topic}-{partition}"
        self._check_free((topic, partition))
        path = self._names.new(name, FUTURE_SUFFIX)
        if not path.name.startswith(f"{name}."):
            # After a restart the broker could not tell which partition the copy belongs to.
            raise LogDirectoryError(self.path, f"cannot take {name}: the name is too long for a copy")
        log = self._begin((topic, partition), path, config, topic_id)
        log.on_failure = self._on_log_failure
        self.futures[topic, partition] = log
        return log

    def adopt_future(self, topic: str, partition: int, *, clean_offset: int) -> Log:
        """Brings the complete copy to disk and gives it the replica's name. Raises `LogDirectoryError`."""
        topic_partition = topic, partition
        future = self.futures[topic_partition]
        path = self.path / f"{topic}-{partition}"
        try:
            future.close()
            self._disk.rename(future.directory, path)
            self._disk.sync_dir(self.path)
            log = self._partition_logs.open(
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
        self.checkpoints.clean_offsets[topic_partition] = clean_offset
        return log

    def drop_future(self, topic: str, partition: int) -> None:
        """Stops a copy that is no longer wanted. The next removal of deleted files removes its files."""
        future = self.futures.pop((topic, partition))
        future.close(clean=False)
        target = self._names.new(f"{topic}-{partition}", DELETE_SUFFIX)
        try:
            self._disk.rename(future.directory, target)
        except OSError as error:
            self.on_io_error(error)
        else:
            self._deleted.append((self._clock.now_ms(), target))

    def collect_deleted(self, now_ms: int) -> list[Path]:
        """Returns the files and directories whose delay is over. `remove_paths` may remove them on a thread."""
        due, self._deleted = deleted_paths.split(self._deleted, now_ms)
        for log in self.logs.values():
            due += log.collect_deleted(now_ms)
        return due

    def remove_paths(self, paths: Iterable[Path]) -> None:
        """Deletes files and directories. Blocks; may run on any thread. Raises OSError."""
        deleted_paths.remove(self._disk, paths)

    def update_producer_expiration(self, producer_id_expiration_ms: int) -> None:
        """Sets how long idle producers are remembered, in all logs and in those created later."""
        self._partition_logs.producer_id_expiration_ms = producer_id_expiration_ms
        for log in self.logs.values():
            log.producers.expiration_ms = producer_id_expiration_ms

    # -- failing ---------------------------------------------------------------------------------------

    def _check_online(self) -> None:
        if self.offline_reason is not None:
            raise LogDirectoryError(self.path, f"is offline: {self.offline_reason}")

    def _on_log_failure(self, log: ReadableLog, error: Exception) -> None:
        if isinstance(error, OSError) and (log.offline_reason is None or not is_shortage(error)):
            self.on_io_error(error)
        if log.offline_reason is None or self.offline_reason is not None:
            return
        facts = {"partition": log.name, "log_dir": str(self.path), "reason": str(error)}
        if isinstance(error, BrokenInvariant):
            _log.error(
                "an invariant is broken: the partition is offline until the broker restarts",
                extra={**facts, "invariant": error.name},
            )
        else:
            _log.error(
                "a partition is offline; the other partitions of its log directory stay online", extra=facts
            )
        if self.on_log_offline is not None:
            self.on_log_offline(log)

    def on_io_error(self, error: OSError) -> None:
        """Takes the directory offline after a failed operation, unless the disk had no room or no descriptor."""
        if not is_shortage(error):
            self.fail(error)
        elif (reason := error.strerror or "") not in self._shortages_reported:
            self._shortages_reported.add(reason)
            _log.error(
                "writes to a log directory fail until there is room",
                extra={"log_dir": str(self.path), "reason": str(error)},
            )

    def fail(self, error: Exception) -> None:
        """Takes the directory and all its partitions offline until the broker restarts."""
        if self.offline_reason is not None:
            return
        self.offline_reason = str(error)
        _log.error("a log directory is offline", extra={"log_dir": str(self.path), "reason": str(error)})
        for log in (*self.logs.values(), *self.futures.values()):
            log.take_offline(f"log directory {self.path} failed: {error}")
        if self.on_offline is not None:
            self.on_offline(self)

    # -- closing ---------------------------------------------------------------------------------------

    def close(self, high_watermarks: Mapping[PartitionKey, int] | None = None) -> None:
        """Brings everything to disk and releases the lock. Only a stop without an error counts as clean."""
        try:
            if self.offline_reason is None:
                self._close_logs(high_watermarks or {})
        except OSError as error:
            self.fail(error)
        finally:
            self._release()

    def _close_logs(self, high_watermarks: Mapping[PartitionKey, int]) -> None:
        with workers(self.recovery_threads, "log-closing") as each:
            outcomes = list(each(clean_shutdown.close, self.logs.values()))
        # One sync covers the names of all new partitions.
        self._disk.sync_dir(self.path)
        self.checkpoints.capture_recovery_points()()
        self.checkpoints.capture_log_starts()()
        self.checkpoints.capture_high_watermarks(high_watermarks)()
        for future in self.futures.values():
            future.close(clean=False)
        if all(outcomes) and not self.failed:
            clean_shutdown.write_marker(self._disk, self.path)

    def abandon(self) -> None:
        """Releases everything without writing, as a crash would. The next start recovers the logs."""
        for log in (*self.logs.values(), *self.futures.values()):
            log.close(clean=False)
        self._release()
