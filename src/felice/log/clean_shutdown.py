"""The clean stop of a log directory: a marker file says that every partition was whole and on disk."""

from __future__ import annotations

import logging
from pathlib import Path

from felice.env import Disk
from felice.log.log import Log
from felice.protocol.errors import ApiError

_log = logging.getLogger("felice.log")

MARKER_NAME = ".kafka_cleanshutdown"
_CONTENT = b'{"version":0,"brokerEpoch":"-1"}'


def take_marker(disk: Disk, log_directory: Path) -> bool:
    """Whether the last stop was clean. Removes the marker: a crash while the logs are loaded must count as unclean."""
    marker = log_directory / MARKER_NAME
    was_clean = disk.exists(marker)
    if was_clean:
        disk.remove(marker)
        disk.sync_dir(log_directory)
    return was_clean


def write_marker(disk: Disk, log_directory: Path) -> None:
    """Call it at the end of a stop that left every partition whole and on disk."""
    disk.write_atomic(log_directory / MARKER_NAME, _CONTENT)


def close(log: Log) -> bool:
    """Closes a log of a directory that is synced afterwards. Returns whether the log is whole and on disk."""
    try:
        log.close(parent_follows=True)
    except (ApiError, OSError) as error:
        _log.error("a partition could not be closed", extra={"partition": log.name, "reason": str(error)})
    return log.was_closed_cleanly
