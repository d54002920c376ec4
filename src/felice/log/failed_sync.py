"""What a failed sync leaves: pages that the page cache has and the disk may not, and that no later sync writes.

Keeps true: where a sync of a log failed, `.felice-failed-sync` stands in the log directory before anybody else can
            begin there, until everything above the recovery points was written once more, and synced.

Linux calls the pages clean after it told of the error once, and serves them as if they were on disk. After a loss of
power that is over. After the end of the process alone it is not: the next one would find whole batches, build on
them, and promise what comes after them. Written again, the pages are dirty again, and a sync counts for them.

The mark need not reach the disk: whatever takes it away takes the page cache, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from felice.env import Disk, File

_log = logging.getLogger("felice.log")

MARK_NAME = ".felice-failed-sync"
_WINDOW_BYTES = 1024 * 1024


def sync(disk: Disk, log_directory: Path, files: Iterable[File]) -> None:
    """Brings files to disk. Raises OSError, and then the mark says so."""
    try:
        for file in files:
            file.sync()
    except OSError:
        _mark(disk, log_directory)
        raise


def _mark(disk: Disk, log_directory: Path) -> None:
    try:
        disk.open(log_directory / MARK_NAME, create=True).close()
    except OSError as error:
        _log.error(
            "a sync in %s failed, and that cannot be noted there (%s): restart the machine before the broker, or "
            "what it acknowledges later may be lost with the power",
            log_directory,
            error,
        )


def is_marked(disk: Disk, log_directory: Path) -> bool:
    return disk.exists(log_directory / MARK_NAME)


def unmark(disk: Disk, log_directory: Path) -> None:
    disk.remove(log_directory / MARK_NAME)


def write_again(disk: Disk, log_directory: Path, file: File, position: int = 0) -> None:
    """Writes what the file holds from `position` on where it is already, and brings it to disk, as `sync`."""
    for start in range(position, file.size_bytes, _WINDOW_BYTES):
        file.pwrite(file.pread(_WINDOW_BYTES, start), start)
    sync(disk, log_directory, [file])
