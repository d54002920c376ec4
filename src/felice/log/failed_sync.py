"""Repairs the effect of a failed sync: the page cache holds pages that the disk may lack and no later sync writes.

Keeps true: after a failed sync of a log, `.felice-failed-sync` exists in the log directory before any process can
            start there again, until everything above the recovery points was written and synced once more.

Linux reports the error once. Then it marks the pages clean and serves them as if they were on disk. A power failure
ends this state, because the page cache is lost. A restart of the process does not: the new process would find whole
batches, append after them and acknowledge records that follow a hole on disk. Writing the pages again makes them
dirty again, so that a sync covers them.

The marker file itself need not reach the disk: a power failure that removes it also removes the page cache.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from felice.env import Disk, File

_log = logging.getLogger("felice.log")

MARKER_NAME = ".felice-failed-sync"
_WINDOW_BYTES = 1024 * 1024


def sync(disk: Disk, log_directory: Path, files: Iterable[File]) -> None:
    """Syncs files. Raises OSError after it created the marker file."""
    try:
        for file in files:
            file.sync()
    except OSError:
        _create_marker(disk, log_directory)
        raise


def _create_marker(disk: Disk, log_directory: Path) -> None:
    try:
        disk.open(log_directory / MARKER_NAME, create=True).close()
    except OSError as error:
        _log.error(
            "a sync failed and that could not be recorded: restart the machine before the broker, or a power failure "
            "may lose records that it acknowledges later",
            extra={"log_dir": str(log_directory), "reason": str(error)},
        )


def has_marker(disk: Disk, log_directory: Path) -> bool:
    """Whether a sync in the log directory failed and the files were not written again since."""
    return disk.exists(log_directory / MARKER_NAME)


def remove_marker(disk: Disk, log_directory: Path) -> None:
    """Removes the marker file, after everything above the recovery points was written again."""
    disk.remove(log_directory / MARKER_NAME)


def write_again(disk: Disk, log_directory: Path, file: File, position: int = 0) -> None:
    """Writes the file's content from `position` on once more, in place, and syncs it as `sync` does."""
    for start in range(position, file.size_bytes, _WINDOW_BYTES):
        file.pwrite(file.pread(_WINDOW_BYTES, start), start)
    sync(disk, log_directory, [file])
