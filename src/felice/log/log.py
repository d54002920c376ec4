"""One partition's commit log: appending to it, and bringing it to disk.

Keeps true:  L1  an offset is assigned once per leader epoch, strictly increasing.
             L3  after a failed append the log is as it was before, or offline.
             L4  the recovery point never passes what has reached the disk.

How: an append validates the batch (`records.validate`), checks its sequences (`producers`),
stamps offset and leader epoch, rolls the segment if needed and writes once (`segment`).
The owner of the log calls from one thread; only a `Flush` may run on another thread.

Leaves: reading (`readable`); rolling, removing and truncating (`segmented`); loading (`opening`); what has
reached the disk (`durability`); and everything about replicas: `replication` decides how far a client may
read and when an append is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from felice.config import TopicConfig
from felice.env import Buffer, Clock, Disk
from felice.log import opening, replicated
from felice.log.answers import AppendInfo, AppendOrigin
from felice.log.errors import FlushPostponed, LogOffline
from felice.log.files import OpenFiles
from felice.log.flush import Flush
from felice.log.opening import LoadedLog
from felice.log.producers import RememberedBatch
from felice.log.segment import Segment
from felice.log.segmented import SegmentedLog
from felice.log.transaction_index import AbortedTransaction
from felice.protocol.errors import ApiError, BrokenInvariant, ErrorCode
from felice.records.batch import BatchHeader, stamp
from felice.records.control import EndTransactionMarker, end_transaction_marker
from felice.records.reader import read_batch
from felice.records.validate import (
    ProduceRules,
    Validated,
    Verdict,
    only_batch,
    ordinary_batch,
    validate_batch,
)

DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000


class Log(SegmentedLog):
    """See the module. `Log.open` and `Log.begin` create it."""

    __slots__ = ("cuts", "produce_rules", "was_closed_cleanly")

    def __init__(
        self,
        clock: Clock,
        files: OpenFiles,
        directory: Path,
        topic_partition: tuple[str, int],
        config: TopicConfig,
        loaded: LoadedLog,
    ) -> None:
        super().__init__(clock, files, directory, topic_partition, config, loaded)
        self.cuts = loaded.cuts
        self.was_closed_cleanly = False
        # What the topic's configuration requires of batches.
        self.produce_rules = ProduceRules.of(config)

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

    # -- facts -----------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on disk and needs no check after a crash."""
        return self.durability.recovery_point

    def update_config(self, config: TopicConfig) -> None:
        """Takes the topic's new configuration. It applies from the next append on."""
        self.config, self.produce_rules = config, ProduceRules.of(config)
        self._max_age_ms = self._max_age_of(self.segments.active)

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
        if self._offline is not None:
            self._check_online()
        if origin is AppendOrigin.REPLICATION:
            return self._append_replicated(records, leader_epoch, now_ms)
        from_client = origin is AppendOrigin.CLIENT
        if verdict is None:
            valid = ordinary_batch(records, self.produce_rules, now_ms) if from_client else None
            if valid is None:
                header = header or only_batch(records, zstd_allowed=zstd_allowed)
                valid = validate_batch(
                    records, header, self.produce_rules, now_ms=now_ms, from_client=from_client
                )
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
                if from_client and not self.producers.is_next(header):
                    raise self._sequence_skips(header)
        return self._append_valid(valid, marker, leader_epoch, now_ms)

    def _append_valid(
        self, valid: Validated, marker: EndTransactionMarker | None, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        base_offset = self.log_end_offset
        epochs = self.epochs.entries
        # Nearly always: then `assign`, which would change nothing, is not called.
        is_known = bool(epochs) and epochs[-1][0] == leader_epoch and epochs[-1][1] <= base_offset
        if not is_known and self.epochs.latest > leader_epoch:
            raise self._epoch_goes_back(leader_epoch)
        stamp(valid.records, 0, base_offset, leader_epoch)
        header = valid.header.placed(base_offset, leader_epoch)
        self._write(valid.records, (header,), now_ms)
        if not is_known:
            self.epochs.assign(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self._account(header, marker, now_ms)
        last_offset = base_offset + header.last_offset_delta
        # Without the constructor of the named tuple, which is a Python function.
        return tuple.__new__(
            AppendInfo, (base_offset, last_offset, valid.log_append_time_ms, self.log_start_offset, False)
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
            records,
            log_start_offset=self.log_start_offset,
            log_end_offset=base_offset,
            leader_epoch=leader_epoch,
            log_name=self.name,
        )
        if headers and headers[0].base_offset < base_offset:
            self._begin_inside(headers.pop(0), records, now_ms)
        for run in replicated.in_write_groups(headers, self.config.segment_bytes):
            self._write_replicated(run, records, now_ms)
        return AppendInfo(base_offset, self.log_end_offset - 1, -1, self.log_start_offset)

    def _begin_inside(self, header: BatchHeader, records: Buffer, now_ms: int) -> None:
        """The log, which has no records, begins with a whole batch and keeps its start inside this batch.

        If the write fails, the log is empty and begins at the batch's first offset.
        """
        log_start_offset = self.log_start_offset
        self.truncate_fully_and_start_at(header.base_offset)
        self._write_replicated([header], records, now_ms)
        self.delete_records_before(log_start_offset)

    def _write_replicated(self, run: Sequence[BatchHeader], records: Buffer, now_ms: int) -> None:
        epochs = self.epochs.entries
        is_known = len(run) == 1 and bool(epochs) and epochs[-1][0] == run[0].leader_epoch
        if not is_known:
            self._check_epochs(run)
        self._write(memoryview(records)[run[0].position : run[-1].end], run, now_ms)
        for header in run:
            if not is_known or epochs[-1][1] > header.base_offset:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self._account(header, replicated.marker_in(records, header), now_ms)

    def _check_epochs(self, run: Sequence[BatchHeader]) -> None:
        """R2: no batch of a leader comes after batches of a later leader."""
        # The epoch of the last record: a later one may have begun here without a record.
        latest = self.epochs.epoch_at(self.log_end_offset - 1)
        for header in run:
            # Batches of the oldest Kafka have no epoch.
            if 0 <= header.leader_epoch < latest:
                raise self._epoch_goes_back(header.leader_epoch)
            latest = header.leader_epoch

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

    def _sequence_skips(self, header: BatchHeader) -> BrokenInvariant:
        known = self.producers.get(header.producer_id)
        return self.broken(
            "T2",
            "a batch that was not refused does not continue its producer's sequence",
            producer_id=header.producer_id,
            epoch=header.producer_epoch,
            sequence=header.base_sequence,
            last_sequence=None if known is None else known.last_sequence,
        )

    def _epoch_goes_back(self, epoch: int) -> BrokenInvariant:
        """A batch would come after batches of a later leader: the records of two leaders would have one epoch."""
        return self.broken(
            "R2",
            "the leader epoch of a batch is before the latest of the log",
            epoch=epoch,
            latest=self.epochs.latest,
            log_end_offset=self.log_end_offset,
        )

    def _write(self, data: Buffer, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Writes all of `data` at once. After an I/O error the log is as it was before, or offline."""
        active = self.segments.active
        end_offset, base_offset = self.log_end_offset, headers[0].base_offset
        # Not `!=`: a follower's batch may begin above the log's end, where the leader's log was compacted.
        if base_offset < end_offset or active.next_offset != end_offset:
            raise self.broken(
                "L1",
                "a batch does not continue the log",
                base_offset=base_offset,
                log_end_offset=end_offset,
                segment_end_offset=active.next_offset,
            )
        try:
            if self._must_roll(active, headers, len(data), now_ms):
                self._roll_at(headers[0].base_offset)
                active = self.segments.active
            active.append(data, headers, self.config.index_interval_bytes)
        except OSError as error:
            raise self._append_failed(active, error) from error
        next_offset = active.next_offset
        if next_offset <= base_offset:
            raise self.broken(
                "L1",
                "an append did not raise the log's end",
                base_offset=base_offset,
                segment_end_offset=next_offset,
            )
        self.log_end_offset = self.producers.end_offset = next_offset

    def _append_failed(self, active: Segment, error: OSError) -> LogOffline:
        try:
            active.repair()
            if active.next_offset != self.log_end_offset:
                # A follower's batch after a gap has begun this segment, and is not in it.
                self._roll_at(self.log_end_offset)
        except OSError:
            return self._fail(error)
        if self.on_failure is not None:
            self.on_failure(self, error)
        return LogOffline(f"{active.log_path} could not be written: {error}")

    def expire_producers(self, now_ms: int) -> int:
        """Forgets idle producers; returns how many."""
        return self.producers.expire(now_ms)

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
        if self.durability.recovery_point > self.log_end_offset:
            raise self.broken(
                "L4",
                "the recovery point passes the log's end",
                recovery_point=self.durability.recovery_point,
                log_end_offset=self.log_end_offset,
            )
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
