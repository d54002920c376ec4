"""Moves replicas of this broker from one of its log directories to another (KIP-113).

Keeps true: the replica serves from its old directory until the copy in the new directory is complete and on disk.
            The copy replaces the replica in one step of the event loop, so no record is lost or served twice.
            The cleaner skips a replica while it moves, so the copy has the tombstones of all values that it contains.
            If a move fails or is cancelled, or its topic is deleted, the replica stays where it is. A move that a
            stop interrupts starts again at the next start.
How:        one task per move copies batches unchanged: it reads on threads and appends on the event loop, as a
            follower does. At most as many moves use the disks at once as there are log directories. A throttled move
            waits on the event loop, because flushes and large requests need the threads. The last step copies the
            batches that were appended since. A crash between the two renames of that step leaves the replica in both
            directories: `Partitions` keeps the longer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from felice.dataclass import dataclass
from felice.env import Clock
from felice.log.answers import AppendOrigin
from felice.log.directory import LogDirectory
from felice.log.errors import LogDirectoryError
from felice.log.log import Log
from felice.log.throttle import Throttle
from felice.protocol.errors import ApiError, ErrorCode
from felice.replication.partition import NO_EPOCH, Partition
from felice.replication.partitions import Partitions
from felice.server.configs.settings import Settings
from felice.server.disks.log_directories import LogDirectories

_log = logging.getLogger("felice.server")

_CHUNK_BYTES = 1024 * 1024
_CLEANER_CHECK_S = 0.05
# Batches of every epoch are copied. A follower would stop at the batches of a leader that it does not know yet.
_ANY_EPOCH = 2**31 - 1


class _MoveCancelled(Exception):
    """The move is not wanted any more, or its partition was removed."""


@dataclass(slots=True)
class _Move:
    partition: Partition
    source: LogDirectory
    target: LogDirectory
    # The log's number of truncations when the copy began. A later truncation makes the copy invalid.
    truncations: int
    task: asyncio.Task[None] | None = None
    is_wanted: bool = True

    @property
    def key(self) -> tuple[str, int]:
        return self.partition.topic, self.partition.partition


class ReplicaMoves:
    """The moves between the log directories of one broker."""

    def __init__(
        self,
        clock: Clock,
        settings: Settings,
        directories: LogDirectories,
        partitions: Partitions,
        is_cleaning: Callable[[Log], bool],
    ) -> None:
        self._clock = clock
        self._directories = directories
        self._partitions = partitions
        self._is_cleaning = is_cleaning
        self._moves: dict[tuple[str, int], _Move] = {}
        self._throttle = Throttle(
            clock, lambda: settings.config.replica_alter_log_dirs_io_max_bytes_per_second
        )
        self._disk_turns = asyncio.Semaphore(len(directories))
        self._is_running = False

    def start(self) -> None:
        """Starts the moves again that the last stop interrupted."""
        self._is_running = True
        for directory in self._directories:
            for topic, partition in directory.unfinished_moves:
                try:
                    self.begin(topic, partition, str(directory.path))
                except ApiError as error:
                    _log.warning(
                        "an interrupted move of a replica is not resumed",
                        extra={"partition": f"{topic}-{partition}", "reason": error.message},
                    )
            directory.unfinished_moves.clear()

    async def stop(self) -> None:
        """Cancels every move. The copies stay on disk, so that the next start sees which moves were in progress."""
        self._is_running = False
        tasks = [move.task for move in self._moves.values() if move.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, topic: str, partition: int, path: str) -> None:
        """Starts to move a replica to the log directory `path`. Raises `ApiError`.

        If `path` is the current directory of the replica, its move is cancelled.
        """
        target = self._directory(path)
        found = self._partitions.find(topic, partition)
        found.check_epoch(NO_EPOCH)  # an offline log cannot be read
        source = self._directory_of(found.log)
        running = self._moves.get((topic, partition))
        if running is not None and running.target is target and running.is_wanted:
            return
        if running is not None:
            running.is_wanted = False
        if source is target or not self._is_running:
            return
        move = _Move(found, source, target, found.log.truncations)
        move.task = asyncio.create_task(self._run(move, after=running))
        self._moves[topic, partition] = move

    def is_moving(self, topic: str, partition: int) -> bool:
        """Whether a move of this replica is in progress."""
        return (topic, partition) in self._moves

    def _directory(self, path: str) -> LogDirectory:
        for directory in self._directories:
            if directory.path == Path(path):
                if directory.offline_reason is not None:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} is offline")
                return directory
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not one of log.dirs")

    def _directory_of(self, log: Log) -> LogDirectory:
        for directory in self._directories:
            if directory.logs.get((log.topic, log.partition)) is log:
                return directory
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name} is offline")

    async def _run(self, move: _Move, after: _Move | None) -> None:
        if after is not None and after.task is not None:
            await asyncio.wait([after.task])
        name = move.partition.log.name
        try:
            await self._copy(move)
            _log.info("replica moved", extra={"partition": name, "to": str(move.target.path)})
        except _MoveCancelled as reason:
            _log.info("move cancelled", extra={"partition": name, "reason": str(reason)})
        except (ApiError, LogDirectoryError, OSError) as error:
            _log.error("replica was not moved", extra={"partition": name, "reason": str(error)})
        finally:
            if self._moves.get(move.key) is move:
                del self._moves[move.key]

    async def _copy(self, move: _Move) -> None:
        partition = move.partition
        while self._is_cleaning(partition.log):
            await asyncio.sleep(_CLEANER_CHECK_S)
        self._check_wanted(move)
        future = move.target.create_future(*move.key, partition.log.config, partition.topic_id)
        is_stopping = False
        try:
            while not await self._copy_more(move, future):
                pass
        except asyncio.CancelledError:
            is_stopping = True
            raise
        finally:
            if not is_stopping and move.target.futures.get(move.key) is future:
                move.target.drop_future(*move.key)

    async def _copy_more(self, move: _Move, future: Log) -> bool:
        """Copies the next chunk. Returns True when the copy has replaced the replica."""
        loop, source = asyncio.get_running_loop(), move.partition.log
        self._check_wanted(move)
        if source.truncations != move.truncations:
            move.truncations = source.truncations
            future.truncate_fully_and_start_at(source.log_start_offset)
        _follow_start(source, future)
        if future.log_end_offset >= source.log_end_offset:
            async with self._disk_turns:
                await self._flush_copy(future)
            await move.partition.flusher.finish()
            return self._swap_in(move, future)
        piece = source.read(future.log_end_offset, _CHUNK_BYTES, end_offset=source.log_end_offset)
        if piece is None:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{source.name} has no batch to copy before its end"
            )
        await self._throttle.take_async(piece.size_bytes)
        async with self._disk_turns:
            records = await loop.run_in_executor(None, piece.read)
            self._check_wanted(move)
            if source.truncations == move.truncations:
                self._append(future, records)
        return False

    def _append(self, future: Log, records: bytes) -> None:
        now_ms = self._clock.now_ms()
        future.append(records, leader_epoch=_ANY_EPOCH, now_ms=now_ms, origin=AppendOrigin.REPLICATION)

    async def _flush_copy(self, future: Log) -> None:
        flush = future.begin_flush()
        await asyncio.get_running_loop().run_in_executor(None, flush.run)
        future.end_flush(flush)

    def _swap_in(self, move: _Move, future: Log) -> bool:
        """The last step, without a pause. Returns False if the replica grew too much since the last chunk."""
        self._check_wanted(move)
        partition, source = move.partition, move.partition.log
        if partition.flusher.is_running or source.truncations != move.truncations:
            return False
        _follow_start(source, future)
        rest_bytes = 0
        while future.log_end_offset < source.log_end_offset:
            piece = source.read(future.log_end_offset, _CHUNK_BYTES, end_offset=source.log_end_offset)
            rest_bytes += piece.size_bytes if piece is not None else 0
            if piece is None or rest_bytes > _CHUNK_BYTES:
                return False
            self._append(future, piece.read())
        future.epochs.copy_from(source.epochs)
        clean_offset = move.source.checkpoints.clean_offsets.get(move.key, 0)
        moved = move.target.adopt_future(*move.key, clean_offset=clean_offset)
        partition.change_log(moved)
        move.source.delete(*move.key)
        return True

    def _check_wanted(self, move: _Move) -> None:
        if not move.is_wanted:
            raise _MoveCancelled("another directory was asked for")
        if not move.partition.is_open or self._partitions.get(*move.key) is not move.partition:
            raise _MoveCancelled("the replica is gone")


def _follow_start(source: Log, future: Log) -> None:
    """Deletes from the copy the records that were deleted from the source since."""
    start = source.log_start_offset
    if future.log_end_offset < start:
        future.truncate_fully_and_start_at(start)
    elif future.log_start_offset < start:
        future.delete_records_before(start)
