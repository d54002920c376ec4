"""One partition's commit log.

Keeps true:  L1  an offset is assigned once per leader epoch, strictly increasing.
             L2  a read returns whole batches as they were stored, all below the
                 offset that the caller may see.
             L3  after a failed append the log is as it was before, or offline.
             L4  the recovery point never passes what has reached the disk.

How: an append validates the batch (`records.validate`), checks its sequences (`producers`),
stamps offset and leader epoch, rolls the segment if needed and writes once (`segment`).
The owner of the log calls from one thread; only a `Flush` may run on another thread.

Leaves: loading (`opening`), what has reached the disk (`durability`), and everything about
replicas: `replication` decides how far a client may read and when an append is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID
from zlib import crc32

from felice.config import TopicConfig
from felice.env import Buffer, Clock, Disk, FileSlice
from felice.log import (
    opening,
    recovery,
    replicated,
    retention,
    snapshots,
    timestamps,
)
from felice.log.answers import AppendInfo, AppendOrigin, DeletedSegment, TimestampOffset
from felice.log.errors import CorruptLog, FlushPostponed, LogOffline, is_shortage
from felice.log.files import OpenFiles
from felice.log.flush import Flush
from felice.log.opening import LoadedLog
from felice.log.producers import RememberedBatch
from felice.log.segment import MAX_RELATIVE_OFFSET, SWAP_SUFFIX, Segment
from felice.log.segments import Segments
from felice.log.timestamps import BatchSearch, Find
from felice.log.transaction_index import AbortedTransaction
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import BatchHeader, stamp
from felice.records.control import EndTransactionMarker, end_transaction_marker
from felice.records.reader import read_batch
from felice.records.validate import ProduceRules, Validated, Verdict, only_batch, validate_batch

_log = logging.getLogger("felice.log")

DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000

__all__ = ["AbortedTransaction", "AppendInfo", "AppendOrigin", "DeletedSegment", "Log", "TimestampOffset"]


class Log:
    """See the module. `Log.open` and `Log.begin` create it."""

    # A broker has thousands of logs, most of them idle: slots keep them small.
    __slots__ = (
        "_clock",
        "_deleted_files",
        "_files",
        "_jitter_ms",
        "_offline",
        "_rules",
        "config",
        "cuts",
        "directory",
        "durability",
        "epochs",
        "lacks_room",
        "log_end_offset",
        "log_start_offset",
        "on_failure",
        "on_recovery_point_lowered",
        "partition",
        "producers",
        "segments",
        "topic",
        "topic_id",
        "was_closed_cleanly",
    )

    def __init__(
        self,
        clock: Clock,
        files: OpenFiles,
        directory: Path,
        topic_partition: tuple[str, int],
        config: TopicConfig,
        loaded: LoadedLog,
    ) -> None:
        self.topic, self.partition = topic_partition
        self.topic_id = loaded.topic_id
        self.directory = directory
        self.config, self._rules = config, ProduceRules.of(config)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.durability = loaded.durability
        self.log_start_offset = loaded.log_start_offset
        self._take_segments(loaded.segments)
        self.cuts = loaded.cuts
        self.was_closed_cleanly = False
        # Whether the log is offline only because the disk had no room, or no descriptor was free. Its files can be
        # loaded again.
        self.lacks_room = False
        self.on_failure: Callable[[Log, Exception], None] | None = None
        self.on_recovery_point_lowered: Callable[[Log], None] | None = None
        self._clock = clock
        self._files = files
        self._offline: str | None = None
        self._deleted_files = loaded.deleted_files

    @classmethod
    def open(
        cls,
        disk: Disk,
        clock: Clock,
        directory: Path,
        topic_partition: tuple[str, int],
        config: TopicConfig,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = True,
        sync_failed: bool = False,
        files: OpenFiles | None = None,
        producer_id_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
    ) -> Log:
        """Opens the log in `directory`, or begins one there. Raises `CorruptLog` or OSError.

        `sync_failed`: a sync failed earlier, so that bytes above the recovery point may not be on disk, even if a
        later sync reports success. They are written again.
        """
        files = OpenFiles(disk) if files is None else files
        loaded = opening.load(
            files,
            directory,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown,
            producer_id_expiration_ms=producer_id_expiration_ms,
            now_ms=clock.now_ms(),
        )
        if sync_failed:
            opening.write_again(loaded, files, directory)
        return cls(clock, files, directory, topic_partition, config, loaded)

    @classmethod
    def begin(
        cls,
        clock: Clock,
        directory: Path,
        topic_partition: tuple[str, int],
        config: TopicConfig,
        topic_id: UUID | None,
        *,
        files: OpenFiles,
        producer_id_expiration_ms: int,
    ) -> Log:
        """Begins a log in a directory that was just made and holds no segment. Raises OSError."""
        loaded = opening.begin(
            files,
            directory,
            config,
            topic_id,
            producer_id_expiration_ms=producer_id_expiration_ms,
            now_ms=clock.now_ms(),
        )
        return cls(clock, files, directory, topic_partition, config, loaded)

    def _take_segments(self, segments: Segments) -> None:
        self.segments = segments
        self.log_end_offset = segments.end_offset
        self._jitter_ms = self._jitter_of(segments.active)

    def _new_segment(self, base_offset: int) -> Segment:
        return opening.new_segment(
            self._files, self.directory, base_offset, self.config, self._clock.now_ms()
        )

    # -- facts -----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The partition's name, `topic-partition`, as its directory is called."""
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        """Size of all segments without their indexes."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on disk and needs no check after a crash."""
        return self.durability.recovery_point

    @property
    def offline_reason(self) -> str | None:
        """Why the log refuses appends and reads; None while it is online."""
        return self._offline

    @property
    def produce_rules(self) -> ProduceRules:
        """The rules that the topic's configuration sets for batches."""
        return self._rules

    def update_config(self, config: TopicConfig) -> None:
        """Takes the topic's new configuration. It applies from the next append on."""
        self.config, self._rules = config, ProduceRules.of(config)
        self._jitter_ms = self._jitter_of(self.segments.active)

    def _jitter_of(self, active: Segment) -> int:
        """Milliseconds to subtract from segment.ms, so that partitions created together do not roll together."""
        bound = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        return crc32(f"{self.name}@{active.base_offset}".encode()) % bound if bound else 0

    # -- appending -------------------------------------------------------------------------------------

    def append(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        zstd_allowed: bool = True,
        transaction_version: int = 0,
        header: BatchHeader | None = None,
        verdict: Verdict | None = None,
    ) -> AppendInfo:
        """Appends one batch of a client or coordinator, or all batches that a leader sent.

        From `transaction_version` 2 on, every transaction has its own producer epoch. `header` is the result of
        `records.validate.only_batch` for this batch, if the caller has it already. `verdict` is the result of
        `records.validate.validation_result` for this batch under `produce_rules`, if the caller has it already.

        Stamps a writable buffer in place. Raises `ApiError` if the batch is invalid or the disk fails.
        """
        self._check_online()
        if origin is AppendOrigin.REPLICATION:
            return self._append_replicated(records, leader_epoch, now_ms)
        from_client = origin is AppendOrigin.CLIENT
        if verdict is None:
            header = header or only_batch(records, zstd_allowed=zstd_allowed)
            valid = validate_batch(records, header, self._rules, now_ms=now_ms, from_client=from_client)
        elif isinstance(verdict, ApiError):
            raise verdict
        else:
            valid = verdict
        header = valid.header
        if header.size_bytes > self.config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"batch has {header.size_bytes} bytes, a segment holds {self.config.segment_bytes}",
            )
        marker = None
        if header.producer_id >= 0:
            if header.is_control:
                marker = self._checked_marker(valid, transaction_version)
            else:
                duplicate = self.producers.check(
                    header, sequences=from_client, transaction_version=transaction_version
                )
                if duplicate is not None:
                    return self._duplicate(duplicate)
        return self._append_valid(valid, marker, leader_epoch, now_ms)

    def _append_valid(
        self, valid: Validated, marker: EndTransactionMarker | None, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        base_offset = self.log_end_offset
        fields = valid.header
        stamp(valid.records, 0, base_offset, leader_epoch)
        header = BatchHeader._make((base_offset, fields[1], leader_epoch, *fields[3:]))
        self._write(valid.records, (header,), now_ms)
        self.epochs.assign(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self._account(header, marker, now_ms)
        return AppendInfo(
            base_offset,
            base_offset + header.last_offset_delta,
            valid.log_append_time_ms,
            self.log_start_offset,
        )

    def _checked_marker(self, valid: Validated, transaction_version: int) -> EndTransactionMarker | None:
        records = read_batch(valid.records, valid.header)
        marker = end_transaction_marker(records[0])
        if marker is not None:
            self.producers.check_marker(valid.header, marker, transaction_version)
        return marker

    def _duplicate(self, batch: RememberedBatch) -> AppendInfo:
        # Kafka answers with the remembered batch's timestamp, even if the topic keeps the producer's timestamps.
        return AppendInfo(batch.first_offset, batch.last_offset, batch.timestamp, self.log_start_offset, True)

    def _append_replicated(self, records: Buffer, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Appends a leader's batches unchanged. The leader has checked their sequences."""
        base_offset = self.log_end_offset
        headers = replicated.checked_batches(
            records, log_end_offset=base_offset, leader_epoch=leader_epoch, log_name=self.name
        )
        view = memoryview(records)
        for run in replicated.in_write_groups(headers, self.config.segment_bytes):
            self._write(view[run[0].position : run[-1].end], run, now_ms)
            for header in run:
                self.epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    self._account(header, replicated.marker_in(records, header), now_ms)
        return AppendInfo(base_offset, self.log_end_offset - 1, -1, self.log_start_offset)

    def _account(self, header: BatchHeader, marker: EndTransactionMarker | None, now_ms: int) -> None:
        if not header.is_control:
            self.producers.update(header, header.base_offset, now_ms)
        elif marker is not None:
            aborted = self.producers.complete(header, marker, header.base_offset, now_ms)
            if aborted is not None:
                self._index_aborted(aborted)

    def _index_aborted(self, aborted: AbortedTransaction) -> None:
        try:
            self.segments.active.transaction_index.append(aborted)
        except OSError as error:
            # The marker is in the log already. Without its index entry consumers would read the aborted records.
            raise self._fail(error) from error

    def _write(self, data: Buffer, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Writes all of `data` at once. After an I/O error the log is as it was before, or offline."""
        active = self.segments.active
        try:
            if self._must_roll(active, headers, len(data), now_ms):
                self._roll_at(headers[0].base_offset)
                active = self.segments.active
            active.append(data, headers, self.config.index_interval_bytes)
        except OSError as error:
            raise self._append_failed(active, error) from error
        self.log_end_offset = self.producers.end_offset = active.next_offset

    def _must_roll(
        self, active: Segment, headers: Sequence[BatchHeader], size_bytes: int, now_ms: int
    ) -> bool:
        if active.size_bytes == 0:
            return headers[-1].last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        config = self.config
        if active.size_bytes > config.segment_bytes - size_bytes or not active.has_room_for(
            headers[-1].last_offset
        ):
            return True
        timestamp = max([header.max_timestamp for header in headers])
        return active.age_ms(now_ms, timestamp) > config.max_segment_ms - self._jitter_ms

    def _append_failed(self, active: Segment, error: OSError) -> LogOffline:
        try:
            active.repair()
        except OSError:
            return self._fail(error)
        if self.on_failure is not None:
            self.on_failure(self, error)
        return LogOffline(f"{active.log_path} could not be written: {error}")

    def _fail(self, error: Exception) -> LogOffline:
        """Takes the log offline, because the state of its files is unknown now."""
        if self._offline is None:
            self._offline = f"partition {self.name} is offline: {error}"
            self.lacks_room = isinstance(error, OSError) and is_shortage(error)
            _log.error("a partition is offline", extra={"partition": self.name, "reason": str(error)})
            if self.on_failure is not None:
                self.on_failure(self, error)
        return LogOffline(self._offline)

    def take_offline(self, reason: str) -> None:
        """Refuses appends and reads until the broker restarts, because the log directory failed."""
        if self._offline is None:
            self._offline = f"partition {self.name} is offline: {reason}"

    def _check_online(self) -> None:
        if self._offline is not None:
            raise LogOffline(self._offline)

    # -- rolling ---------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Starts a new segment at the log's end. The next flush brings the old segment to disk."""
        self._check_online()
        try:
            self._roll_at(self.log_end_offset)
        except OSError as error:
            raise LogOffline(f"{self.name} could not begin a new segment: {error}") from error

    def _roll_at(self, offset: int) -> None:
        active = self.segments.active
        if active.size_bytes == 0 and active.base_offset == offset:
            return
        # Steps that can fail come first. If one fails, the log continues in its old segment.
        active.write_indexes()
        segment = self._new_segment(offset)
        if active.size_bytes == 0:
            self._discard([active], self._clock.now_ms())
        else:
            active.seal()
            self.durability.add_snapshot(offset, self.producers)
        self.segments.roll_to(segment)
        self.durability.on_names_changed()
        self._jitter_ms = self._jitter_of(segment)

    # -- reaching the disk -----------------------------------------------------------------------------

    @property
    def needs_flush(self) -> bool:
        """Whether flush.messages makes acknowledgements wait until the recovery point has passed their records."""
        return self.log_end_offset - self.durability.recovery_point >= self.config.flush_messages

    def flush_is_due(self, now_ms: int) -> bool:
        """Whether a flush should begin now: flush.messages, flush.ms, or a closed segment."""
        if self.durability.recovery_point >= self.log_end_offset or self._offline is not None:
            return False
        return self.needs_flush or self.durability.is_overdue(self.segments.active, self.config, now_ms)

    @property
    def is_flushing(self) -> bool:
        """Whether a flush has begun and not ended."""
        return self.durability.is_flushing

    def begin_flush(self, *, is_closing: bool = False, parent_follows: bool = False) -> Flush:
        """Collects what a flush up to the log's end must write. One flush at a time.

        With `parent_follows` the caller syncs the parent directory.
        """
        self._check_online()
        try:
            return self.durability.begin_flush(
                self.segments,
                self.epochs,
                has_topic_id=self.topic_id is not None,
                is_closing=is_closing,
                parent_follows=parent_follows,
            )
        except OSError as error:
            raise self._fail(error) from error

    def end_flush(self, flush: Flush) -> None:
        """Moves the recovery point. A failed flush takes the log offline: it is unknown which pages are lost.

        Raises `FlushPostponed` if the disk had no room: the next flush writes what is missing.
        """
        self.durability.end_flush(flush, self._clock.now_ms())
        if flush.error is not None:
            raise self._fail(flush.error) from flush.error
        if flush.shortage is not None:
            if self.on_failure is not None:
                self.on_failure(self, flush.shortage)
            raise FlushPostponed(f"{self.name} could not be flushed: {flush.shortage}") from flush.shortage

    def flush(self, *, is_closing: bool = False, parent_follows: bool = False) -> None:
        """Brings everything to disk now, on this thread; with `is_closing` the active segment's indexes too."""
        flush = self.begin_flush(is_closing=is_closing, parent_follows=parent_follows)
        flush.run()
        self.end_flush(flush)

    def close(self, *, clean: bool = True, parent_follows: bool = False) -> None:
        """Closes the files. After a clean close no recovery is needed. `parent_follows`: see `begin_flush`."""
        if clean and self._offline is None:
            try:
                # A leader epoch without records is not kept when the log is loaded again, so drop it here too.
                self.epochs.truncate_from_end(self.log_end_offset)
                if self.durability.is_saved(self.log_end_offset):
                    # Nothing was written since the last clean stop: the files on disk are still complete.
                    self.epochs.flush()
                else:
                    self._save(parent_follows)
            except OSError as error:
                raise self._fail(error) from error
            self.was_closed_cleanly = True
        self._files.forget_under(self.directory)
        self.take_offline("it was closed")

    def _save(self, parent_follows: bool) -> None:
        if self.segments.active.has_files:
            self.segments.active.write_indexes()
            self.durability.add_snapshot(self.log_end_offset, self.producers)
        self.flush(is_closing=True, parent_follows=parent_follows)

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one: bool = True) -> FileSlice | None:
        """Returns whole batches, starting with the one that holds `offset`, all below `end_offset`; None if none.

        With `min_one` the first batch is returned even if it is larger than `max_bytes` (KIP-74).
        """
        self._check_online()
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} holds offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        if offset >= end_offset:
            return None
        try:
            segment = self.segments.holding(offset)
            return segment.read(offset, max_bytes, end_offset=end_offset, min_one=min_one)
        except CorruptLog as error:
            self._fail(error)
            raise
        except OSError as error:
            raise self._read_failed(error) from error

    def _read_failed(self, error: OSError) -> LogOffline:
        """A read changes nothing, so a read that found no free descriptor fails alone; the log stays online."""
        if is_shortage(error):
            return LogOffline(f"{self.name} cannot be read at the moment: {error}")
        return self._fail(error)

    def read_bytes(self, offset: int, max_bytes: int, *, end_offset: int, min_one: bool = True) -> bytes:
        """Same as `read`, but copies the bytes; empty if there is no batch."""
        found = self.read(offset, max_bytes, end_offset=end_offset, min_one=min_one)
        return found.read() if found is not None else b""

    def offset_for_timestamp(
        self, timestamp: int, *, end_offset: int, find: Find = BatchSearch.find
    ) -> TimestampOffset | None:
        """Returns the first record at or after `timestamp`, in offset order; None if none is below `end_offset`."""
        return self._found_below(
            end_offset, lambda: timestamps.first_since(self.segments, timestamp, self.log_start_offset, find)
        )

    def offset_of_max_timestamp(
        self, end_offset: int, find: Find = BatchSearch.find
    ) -> TimestampOffset | None:
        """Returns the first record with the log's largest timestamp; None if it is not below `end_offset`."""
        return self._found_below(
            end_offset, lambda: timestamps.first_largest(self.segments, self.log_start_offset, find)
        )

    def _found_below(
        self, end_offset: int, find: Callable[[], TimestampOffset | None]
    ) -> TimestampOffset | None:
        self._check_online()
        try:
            found = find()
        except CorruptLog as error:
            self._fail(error)
            raise
        except OSError as error:
            raise self._read_failed(error) from error
        return found if found is not None and found.offset < end_offset else None

    # -- transactions ----------------------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: int) -> int:
        """T1: every transaction with records below this offset is decided for a read_committed consumer."""
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return min(high_watermark, max(first_unstable, self.log_start_offset))

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in `start_offset..end_offset`, ordered by first offset."""
        try:
            found = list(self._aborted_between(start_offset, end_offset))
        except OSError as error:
            raise self._read_failed(error) from error
        return sorted(found, key=lambda aborted: aborted.first_offset)

    def _aborted_between(self, start_offset: int, end_offset: int) -> Iterator[AbortedTransaction]:
        for segment in self.segments.since(start_offset):
            for aborted in segment.transaction_index.entries():
                if aborted.last_offset >= start_offset and aborted.first_offset < end_offset:
                    yield aborted
                if aborted.last_stable_offset >= end_offset:
                    return

    def expire_producers(self, now_ms: int) -> int:
        """Forgets idle producers; returns how many."""
        return self.producers.expire(now_ms)

    # -- removing --------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """DeleteRecords: the log now begins at `offset`. Retention removes the files. Returns the log start."""
        self._check_online()
        if offset > self.log_end_offset or offset < 0:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} ends at {self.log_end_offset}, {offset} lies beyond",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
        return self.log_start_offset

    def apply_retention(self, now_ms: int, high_watermark: int) -> list[DeletedSegment]:
        """Removes the segments that retention allows to delete, oldest first, and returns them."""
        self._check_online()
        deletes = self.config.deletes_old_segments
        reasons = retention.deletable(
            self.segments.facts(),
            now_ms=now_ms,
            high_watermark=high_watermark,
            log_start_offset=self.log_start_offset,
            retention_bytes=self.config.retention_bytes if deletes else -1,
            retention_ms=self.config.retention_ms if deletes else -1,
        )
        if len(reasons) == len(self.segments):
            self.roll()
        victims = self.segments[: len(reasons)]
        if victims:
            try:
                self._discard(victims, now_ms)
            except OSError as error:
                raise self._fail(error) from error
            self.segments.drop_oldest(len(victims))
            self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
            self.epochs.truncate_from_start(self.log_start_offset)
            # The recovery point stays, even if it is below the log start now. Until the new names are on disk, a
            # power failure may bring the old segments back, and the log may then end at the recovery point.
            self.durability.on_names_changed()
        return [
            DeletedSegment(segment.base_offset, segment.size_bytes, reason)
            for segment, reason in zip(victims, reasons, strict=True)
        ]

    def _discard(self, segments: Sequence[Segment], now_ms: int) -> None:
        """Renames the files; `collect_deleted` returns them after file.delete.delay.ms."""
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in segments:
            self._deleted_files += [(due_ms, path) for path in segment.mark_deleted()]
            self.durability.remove_snapshot(segment.base_offset)

    def collect_deleted(self, now_ms: int) -> list[Path]:
        """Returns the renamed files whose delay is over. The caller removes them."""
        if not self._deleted_files:
            return []
        due = [path for due_ms, path in self._deleted_files if due_ms <= now_ms]
        self._deleted_files = [(due_ms, path) for due_ms, path in self._deleted_files if due_ms > now_ms]
        return due

    # -- cleaning --------------------------------------------------------------------------------------

    @property
    def truncations(self) -> int:
        """Number of truncations so far. A cleaner discards its work if this changed since it began."""
        return self.durability.truncations

    @property
    def files(self) -> OpenFiles:
        """The open files, for the cleaner, which reads and writes on its own thread."""
        return self._files

    def replace_segments(self, old: Sequence[Segment], new: Segment, *, truncations: int) -> bool:
        """Replaces segments by the cleaned segment made from them; False if they are no longer in the log.

        Reads in progress continue in the old files. If the disk fails midway the log goes offline, and the next
        start completes the swap.
        """
        self._check_online()
        if truncations != self.truncations or not self.segments.contains_run(old):
            return False
        assert self.segments.active is not old[-1], f"the active segment of {self.name} must not be cleaned"
        try:
            self._swap(old, new)
        except OSError as error:
            raise self._fail(error) from error
        self.segments.replace(old, new)
        self.durability.on_names_changed()
        return True

    def _swap(self, old: Sequence[Segment], new: Segment) -> None:
        """Renames the files in the order of `segment_swap`, which completes an interrupted swap after a crash."""
        new.change_suffix(SWAP_SUFFIX)
        # The new names must be on disk before the old files are renamed.
        self._files.disk.sync_dir(self.directory)
        due_ms = self._clock.now_ms() + self.config.file_delete_delay_ms
        for segment in old:
            self._deleted_files += [(due_ms, path) for path in segment.mark_deleted(log_last=True)]
            if segment.base_offset != new.base_offset:
                self.durability.remove_snapshot(segment.base_offset)
        new.change_suffix("")

    # -- truncating ------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Removes every batch that contains `offset` or lies above it, as a follower does under a new leader."""
        self._check_online()
        if offset >= self.log_end_offset:
            # An epoch that this broker led without writing starts at the log's end. The new leader may not know it.
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        now_ms = self._clock.now_ms()
        above = self.segments.above(offset)
        kept = self.segments[: len(self.segments) - len(above)]
        try:
            self._lower_recovery_point(kept[-1].base_offset)
            self._discard(above, now_ms)
            if above:
                kept[-1].unseal(self.config.segment_index_bytes)
            kept[-1].truncate(offset)
            self._take_segments(Segments(kept))
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self.epochs.truncate_from_end(self.log_end_offset)
            self._after_truncation()
            recovery.restore_producers(
                self.producers,
                self._files.disk,
                self.directory,
                self.segments,
                log_start_offset=self.log_start_offset,
                now_ms=now_ms,
                rescanned=[],
            )
        except OSError as error:
            raise self._fail(error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes everything. The next offset is `offset`, for example the start of the leader's log."""
        self._check_online()
        try:
            self._lower_recovery_point(0)
            self._discard(self.segments, self._clock.now_ms())
            for at in snapshots.offsets_in(self._files.disk, self.directory):
                self._files.disk.remove(snapshots.path_of(self.directory, at))
            self._take_segments(Segments([self._new_segment(offset)]))
            self.log_start_offset = offset
            self.producers.clear(offset)
            self.epochs.clear()
            self._after_truncation()
        except OSError as error:
            raise self._fail(error) from error

    def _lower_recovery_point(self, offset: int) -> None:
        """Lowers the recovery point to `offset`, on disk too, before the log is truncated.

        Otherwise, after a crash during the truncation, flushed records would seem lost. After a crash later, the
        records written in place of the removed ones would not be scanned.
        """
        self.durability.lower_recovery_point(offset)
        if self.on_recovery_point_lowered is not None:
            self.on_recovery_point_lowered(self)

    def _after_truncation(self) -> None:
        self.durability.on_truncated(self.segments)
        self.epochs.flush()
        # Again: other checkpoints count from the log's new end.
        self._lower_recovery_point(self.log_end_offset)
