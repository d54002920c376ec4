"""Opens the logs of one log directory, and creates the directory and the empty log of a new partition.

Keeps true: an attempt that fails leaves no directory that makes the next attempt fail.
            A directory that only has the name of a partition is no partition: it holds directories or the identity of
            a broker, and no file of a log.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from uuid import UUID

from felice.config import TopicConfig
from felice.env import Clock, Disk
from felice.log import epochs, meta_properties, partition_metadata, segment, snapshots
from felice.log.files import OpenFiles
from felice.log.log import Log
from felice.protocol.topic_partition import PartitionKey

# Of the files of a log, also those that are deleted or replaced (`.log.deleted`).
_LOG_SUFFIXES = frozenset((*segment.SUFFIXES, snapshots.SUFFIX))


class PartitionLogs:
    """See the module. All logs share the open files of their directory."""

    def __init__(self, disk: Disk, clock: Clock, files: OpenFiles, producer_id_expiration_ms: int) -> None:
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._disk = disk
        self._clock = clock
        self._files = files
        # Directories of new partitions that could be neither completed nor removed.
        self._incomplete: set[Path] = set()

    def open(
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
        """Opens an existing log, see `Log.open`. May run on any thread. Raises `CorruptLog` or OSError."""
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
            producer_id_expiration_ms=self.producer_id_expiration_ms,
        )

    def is_taken(self, path: Path) -> bool:
        """Whether a directory of that name exists, other than one that an earlier attempt left."""
        return path not in self._incomplete and self._disk.exists(path)

    def is_partition(self, path: Path) -> bool:
        """Whether a directory with the name of a partition may be one. An empty one may: a crash followed its creation.

        `felice start --brokers 3` has the log directories `broker-1` to `broker-3`, which also could be partitions of
        a topic `broker`. A directory that cannot be read may be one: opening its log tells the reason.
        """
        if self._disk.exists(path / partition_metadata.FILE_NAME):
            return True
        try:
            names = self._disk.listdir(path)
        except OSError:
            return True
        if any(name == epochs.FILE_NAME or _LOG_SUFFIXES.intersection(Path(name).suffixes) for name in names):
            return True
        return meta_properties.FILE_NAME not in names and not any(
            self._disk.is_dir(path / name) for name in names
        )

    def create(
        self,
        topic_partition: PartitionKey,
        path: Path,
        config: TopicConfig,
        topic_id: UUID | None,
    ) -> Log:
        """Creates directory and log. May run on any thread. Raises OSError."""
        if path in self._incomplete:
            with suppress(FileNotFoundError):
                self._disk.remove_tree(path)
            self._incomplete.discard(path)
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
                producer_id_expiration_ms=self.producer_id_expiration_ms,
            )
        except OSError:
            self._files.forget_under(path)
            self._remove_incomplete(path)
            raise

    def _remove_incomplete(self, path: Path) -> None:
        """Removes an incomplete partition directory, which would make the next attempt fail."""
        try:
            self._disk.remove_tree(path)
        except FileNotFoundError:
            pass
        except OSError:
            # Removing needs descriptors, too. The next attempt starts by removing the directory.
            self._incomplete.add(path)
