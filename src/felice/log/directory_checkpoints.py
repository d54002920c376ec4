"""The checkpoints of one log directory: recovery points, log starts, high watermarks and clean offsets.

Keeps true: a partition that could not be loaded keeps the offsets that were read at the start.
            Before a partition is created, no checkpoint on disk has an offset of a deleted partition with the same
            name. Before a truncated log is written again, no checkpoint has an offset above its new end. Otherwise,
            after a crash, the new records above that end would count as committed (R6), flushed, or cleaned.

How: each `capture_...` takes the offsets as of now, on the thread that owns the logs. It returns a function that
writes them, on any thread; that function may raise OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from felice.env import Disk
from felice.log import checkpoints
from felice.log.checkpoints import Checkpoint
from felice.log.log import Log
from felice.protocol.topic_partition import PartitionKey

# Limit of deleted partitions that are remembered until the checkpoints on disk no longer contain them.
MOST_FORGOTTEN = 1_000


class DirectoryCheckpoints:
    """Reads and writes the checkpoints for `logs`. `failed` are the partitions that could not be loaded."""

    def __init__(
        self, disk: Disk, path: Path, logs: Mapping[PartitionKey, Log], failed: Collection[PartitionKey]
    ) -> None:
        # As they were read at the start, then as they were captured last.
        self.high_watermarks: dict[PartitionKey, int] = {}
        self.clean_offsets: dict[PartitionKey, int] = {}
        self._logs = logs
        self._failed = failed
        self._recovery_points_file = Checkpoint(disk, path / checkpoints.RECOVERY_POINTS)
        self._log_starts_file = Checkpoint(disk, path / checkpoints.LOG_START_OFFSETS)
        self._high_watermarks_file = Checkpoint(disk, path / checkpoints.HIGH_WATERMARKS)
        self._clean_offsets_file = Checkpoint(disk, path / checkpoints.CLEAN_OFFSETS)
        # As they were read at the start.
        self._recovery_points: dict[PartitionKey, int] = {}
        self._log_starts: dict[PartitionKey, int] = {}
        # Deleted partitions that the checkpoints on disk may still contain.
        self._forgotten: set[PartitionKey] = set()

    def read(self) -> None:
        """Reads all files. Raises `LogDirectoryError` if one is damaged, or OSError."""
        self._recovery_points = self._recovery_points_file.read()
        self._log_starts = self._log_starts_file.read()
        self.high_watermarks = self._high_watermarks_file.read()
        self.clean_offsets = self._clean_offsets_file.read()

    def forget_all_but(self, present: Collection[PartitionKey]) -> None:
        """Forgets partitions that have no directory."""
        known = {*self._recovery_points, *self._log_starts, *self.high_watermarks, *self.clean_offsets}
        for key in known - {*present}:
            self.forget(key)

    def recovery_point_of(self, key: PartitionKey) -> int:
        """The recovery point that was read at the start."""
        return self._recovery_points.get(key, 0)

    def log_start_of(self, key: PartitionKey) -> int:
        """The log start offset that was read at the start."""
        return self._log_starts.get(key, 0)

    # -- deleted partitions ----------------------------------------------------------------------------

    @property
    def has_too_many_forgotten(self) -> bool:
        """Whether `forget_on_disk` is due: partitions that are never created again must not be kept for ever."""
        return len(self._forgotten) > MOST_FORGOTTEN

    def forget(self, key: PartitionKey) -> None:
        """Forgets a deleted partition. The files on disk may still contain it."""
        for offsets in (self._recovery_points, self._log_starts, self.high_watermarks, self.clean_offsets):
            offsets.pop(key, None)
        self._forgotten.add(key)

    def forget_on_disk(self, key: PartitionKey | None = None) -> None:
        """Removes deleted partitions from the files, before a new one gets the name `key`. Raises OSError.

        Otherwise, after a crash, the new partition would start with the old one's offsets.
        """
        if key is None or key in self._forgotten:
            self.capture_recovery_points()()
            self.capture_log_starts()()
            self.capture_high_watermarks({})()
            self.capture_clean_offsets()()
            self._forgotten.clear()

    # -- changed logs ----------------------------------------------------------------------------------

    def limit(self, ends: Mapping[PartitionKey, int]) -> None:
        """Lowers and writes the high watermarks and clean offsets that are above the ends of these logs.

        Raises OSError.
        """
        for offsets, file in (
            (self.high_watermarks, self._high_watermarks_file),
            (self.clean_offsets, self._clean_offsets_file),
        ):
            lowered = {key: end for key, end in ends.items() if offsets.get(key, 0) > end}
            if lowered:
                file.capture({**offsets, **lowered})()
                # Only after the write: if it fails, the next attempt must write them again.
                offsets.update(lowered)

    def is_above(self, key: PartitionKey, end: int) -> bool:
        """Whether the high watermark or the clean offset is above the end of the log: `limit` could not lower it."""
        return max(self.high_watermarks.get(key, 0), self.clean_offsets.get(key, 0)) > end

    def on_truncated(self, key: PartitionKey, log_end_offset: int) -> None:
        """Writes the lower offsets of a truncated log, before anything is appended to it. Raises OSError."""
        self.capture_recovery_points()()
        self.capture_log_starts()()
        self.limit({key: log_end_offset})

    # -- capturing -------------------------------------------------------------------------------------

    def capture_recovery_points(self) -> Callable[[], None]:
        """Takes the recovery points of all logs."""
        current = {key: log.recovery_point for key, log in self._logs.items()}
        return self._recovery_points_file.capture({**self._kept(self._recovery_points), **current})

    def capture_log_starts(self) -> Callable[[], None]:
        """Takes the log start offsets of all logs.

        Includes offsets where the first segment begins: a power failure may bring removed segments back.
        """
        moved = {key: log.log_start_offset for key, log in self._logs.items() if log.log_start_offset > 0}
        return self._log_starts_file.capture({**self._kept(self._log_starts), **moved})

    def capture_high_watermarks(self, offsets: Mapping[PartitionKey, int]) -> Callable[[], None]:
        """Takes these high watermarks. Those of all other partitions stay as they are."""
        self.high_watermarks.update(offsets)
        return self._high_watermarks_file.capture(self.high_watermarks)

    def capture_clean_offsets(self) -> Callable[[], None]:
        """Takes the offsets that the cleaner reached in each log."""
        return self._clean_offsets_file.capture(self.clean_offsets)

    def _kept(self, offsets: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
        return {key: offset for key, offset in offsets.items() if key in self._failed}
