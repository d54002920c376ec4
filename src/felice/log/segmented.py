"""The segments of one partition's commit log, and the changes of them: rolling, removing, cleaning, truncating.

Keeps true:  L1  the offsets of the segments continue each other; a new segment begins at the log's end.
             After an error that leaves the files in an unknown state, the log is offline.

How: files are renamed first and removed later (`file.delete.delay.ms`), so that reads in progress continue and a
removed segment stays removed after a crash.

Leaves: appending and flushing (`log`), and when to clean or delete (`cleaner_plan`, `retention`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

from felice.config import TopicConfig
from felice.env import Clock
from felice.log import deleted_paths, opening, recovery, retention, snapshots
from felice.log.answers import DeletedSegment
from felice.log.batch_places import MAX_RELATIVE_OFFSET
from felice.log.errors import LogOffline
from felice.log.files import OpenFiles
from felice.log.opening import LoadedLog
from felice.log.readable import ReadableLog
from felice.log.segment import SWAP_SUFFIX, Segment
from felice.log.segments import Segments
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import BatchHeader


class SegmentedLog(ReadableLog):
    """See the module. `on_recovery_point_lowered` is called before each truncation, and after it."""

    __slots__ = (
        "_clock",
        "_deleted_files",
        "_max_age_ms",
        "config",
        "durability",
        "on_recovery_point_lowered",
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
        super().__init__(files, directory, topic_partition, loaded)
        self.config = config
        self.durability = loaded.durability
        self.on_recovery_point_lowered: Callable[[SegmentedLog], None] | None = None
        self._clock = clock
        self._deleted_files = loaded.deleted_files
        self._max_age_ms = self._max_age_of(self.segments.active)

    def _take_segments(self, segments: Segments) -> None:
        self.segments = segments
        self.log_end_offset = segments.end_offset
        self._max_age_ms = self._max_age_of(segments.active)

    def _new_segment(self, base_offset: int) -> Segment:
        return opening.new_segment(
            self._files, self.directory, base_offset, self.config, self._clock.now_ms()
        )

    def _max_age_of(self, active: Segment) -> int:
        """segment.ms, less a jitter so that partitions that were created together do not roll together."""
        max_age_ms = self.config.max_segment_ms
        bound = min(self.config.segment_jitter_ms, max_age_ms)
        return max_age_ms - (crc32(f"{self.name}@{active.base_offset}".encode()) % bound if bound else 0)

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
        self._max_age_ms = self._max_age_of(segment)

    def _must_roll(
        self, active: Segment, headers: Sequence[BatchHeader], size_bytes: int, now_ms: int
    ) -> bool:
        last_offset = headers[-1].base_offset + headers[-1].last_offset_delta
        if active.size_bytes == 0:
            return last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        if active.size_bytes > self.config.segment_bytes - size_bytes or not active.has_room_for(last_offset):
            return True
        timestamp = headers[0].max_timestamp
        if len(headers) > 1:
            timestamp = max([header.max_timestamp for header in headers])
        return active.age_ms(now_ms, timestamp) > self._max_age_ms

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
            if victims[-1].next_offset > high_watermark:
                raise self.broken(
                    "L9",
                    "retention would delete records above the high watermark",
                    end_offset=victims[-1].next_offset,
                    high_watermark=high_watermark,
                )
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
        due, self._deleted_files = deleted_paths.split(self._deleted_files, now_ms)
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
        begin, end = old[0].base_offset, old[-1].next_offset
        if self.segments.active is old[-1] or new.base_offset != begin or new.next_offset > end:
            raise self.broken(
                "L10",
                "a cleaned segment does not replace closed segments of its own offsets",
                cleaned=(new.base_offset, new.next_offset),
                replaced=(begin, end),
                active=self.segments.active.base_offset,
            )
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
            if self.log_end_offset > offset:
                raise self.broken(
                    "R5",
                    "the log was not truncated far enough",
                    offset=offset,
                    log_end_offset=self.log_end_offset,
                )
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
