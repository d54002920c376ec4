"""Which part of one log is on disk, and what its next flush must write.

Keeps true:  L4  the recovery point never passes what has reached the disk.
             One flush of a log runs at a time. A truncation that happens meanwhile
             cancels its effect: that flush does not move the recovery point.

How: `begin_flush` collects files and state into a `Flush`, which runs on any thread, and
`end_flush` moves the recovery point. If the disk had no room, `end_flush` takes back what was not
written, for the next flush.

Leaves: what a failed flush means for the log (`log`); the report of a lowered recovery point (`segmented`);
the writing itself (`flush`).
"""

from __future__ import annotations

from pathlib import Path

from felice.config import TopicConfig
from felice.log import failed_sync, partition_metadata, snapshots
from felice.log.epochs import LeaderEpochs
from felice.log.files import OpenFiles
from felice.log.flush import Flush
from felice.log.producers import ProducerStates
from felice.log.segment import Segment
from felice.log.segments import Segments


class Durability:
    """The recovery point of one log and the state of its flushes."""

    # A broker has thousands, most of them idle.
    __slots__ = (
        "_directory",
        "_due_snapshots",
        "_files",
        "_flush",
        "_is_new",
        "_last_flush_ms",
        "_names_changed",
        "_saved_at",
        "recovery_point",
        "truncations",
    )

    def __init__(self, files: OpenFiles, directory: Path, now_ms: int) -> None:
        self.recovery_point = 0
        self.truncations = 0
        self._files = files
        self._directory = directory
        self._flush: Flush | None = None
        self._last_flush_ms = now_ms
        # Producer snapshots that are not on disk yet.
        self._due_snapshots: list[tuple[Path, bytes]] = []
        # Files were created, renamed or removed since the directory was synced.
        self._names_changed = True
        # The name of the log's own directory and its partition.metadata may not be on disk.
        self._is_new = True
        # Log end offset and truncations at the last clean stop.
        self._saved_at: tuple[int, int] | None = None

    def on_loaded(self, log_end_offset: int, recovery_point: int, *, is_new: bool, is_clean: bool) -> None:
        """Takes the state of a log that was loaded from disk, after a clean stop if `is_clean`.

        `is_new`: the directory held no segment file, so that the log starts with one made now.
        """
        # All that a clean stop left is on disk. So is what a recovery found below the old recovery point.
        self.recovery_point = log_end_offset if is_clean else min(recovery_point, log_end_offset)
        self._is_new = is_new or not is_clean
        if is_clean:
            self._names_changed = is_new

    def on_saved(self, log_end_offset: int) -> None:
        """A clean stop left the log on disk as it is now."""
        self._saved_at = log_end_offset, self.truncations

    def is_saved(self, log_end_offset: int) -> bool:
        """Whether the log is as a clean stop left it on disk."""
        return self._saved_at == (log_end_offset, self.truncations)

    # -- changes of the log ----------------------------------------------------------------------------

    def on_names_changed(self) -> None:
        """Files were created, renamed or removed: the next flush syncs the directory."""
        self._names_changed = True

    def add_snapshot(self, offset: int, producers: ProducerStates) -> None:
        """Lets the next flush write the state of the producers, which is that at `offset`."""
        path = snapshots.path_of(self._directory, offset)
        self._due_snapshots.append((path, snapshots.encode(producers.entries())))

    def remove_snapshot(self, offset: int) -> None:
        """Removes the producer snapshot at `offset`, written or due. May raise OSError."""
        path = snapshots.path_of(self._directory, offset)
        self._due_snapshots = [due for due in self._due_snapshots if due[0] != path]
        if self._files.disk.exists(path):
            self._files.disk.remove(path)

    def lower_recovery_point(self, offset: int) -> None:
        """Nothing at or above `offset` counts as flushed any more."""
        self.recovery_point = min(self.recovery_point, offset)

    def on_truncated(self, segments: Segments) -> None:
        """The log ends lower now. A flush under way no longer counts. May raise OSError."""
        self.truncations += 1
        self._names_changed = True
        log_end_offset = segments.end_offset
        self._due_snapshots = [due for due in self._due_snapshots if int(due[0].stem) <= log_end_offset]
        self.sync_cut(segments.active)

    def sync_cut(self, active: Segment) -> None:
        """Brings a cut to disk before anything else is written. Raises OSError.

        Otherwise a power failure could bring back the removed batches, mixed with those written in their place.
        """
        files = active.open_files(with_indexes=False)
        failed_sync.sync(self._files.disk, self._directory.parent, files)
        self._files.disk.sync_dir(self._directory)

    # -- flushing --------------------------------------------------------------------------------------

    @property
    def is_flushing(self) -> bool:
        """Whether a flush has begun and not ended."""
        return self._flush is not None

    def is_overdue(self, active: Segment, config: TopicConfig, now_ms: int) -> bool:
        """Whether flush.ms has passed since the last flush, or a segment was closed since then."""
        return self.recovery_point < active.base_offset or now_ms - self._last_flush_ms >= config.flush_ms

    def begin_flush(
        self,
        segments: Segments,
        epochs: LeaderEpochs,
        *,
        has_topic_id: bool,
        is_closing: bool,
        parent_follows: bool,
    ) -> Flush:
        """Collects what a flush up to the log's end must write. Raises OSError.

        With `is_closing` the active segment's indexes are synced too. With `parent_follows` the caller syncs the
        parent directory.
        """
        assert self._flush is None, f"{self._directory} is being flushed"
        files = []
        if self._is_new and has_topic_id:
            files.append(self._files.get(self._directory / partition_metadata.FILE_NAME))
        # Includes the segment that ends at the recovery point: its indexes were not complete at that flush.
        for segment in segments.reaching(self.recovery_point):
            files += segment.open_files(with_indexes=is_closing or segment is not segments.active)
        self._flush = Flush(
            segments.end_offset,
            self.truncations,
            files,
            self._due_snapshots,
            epochs.capture(sync_name=False),
            self._files.disk,
            self._directory,
            self._names_changed,
            with_parent=self._is_new and not parent_follows,
        )
        self._due_snapshots = []
        # An active segment without files gets them with its first batch.
        self._names_changed = not segments.active.has_files
        return self._flush

    def end_flush(self, flush: Flush, now_ms: int) -> None:
        """Moves the recovery point if the flush succeeded and the log was not truncated meanwhile.

        After a shortage (no room, no free descriptor) the next flush gets what this one could not write.
        """
        assert flush is self._flush
        self._flush = None
        if flush.error is not None:
            return
        if flush.shortage is not None:
            self._take_back(flush)
            return
        self._last_flush_ms = now_ms
        self._is_new = False
        if flush.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)

    def _take_back(self, flush: Flush) -> None:
        if flush.truncations == self.truncations:
            self._due_snapshots = [*flush.snapshots, *self._due_snapshots]
        self._names_changed = self._names_changed or flush.names_changed
