"""Checkpoint files of a log directory, offsets by partition: recovery points, log starts, high watermarks,
and the offsets that the cleaner reached.

Text: a version (0), the number of entries, then `topic partition offset` a line.
The owner of the logs captures them, any thread writes them (`captured_file`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from felice.env import Disk
from felice.log.captured_file import CapturedFile
from felice.log.errors import LogDirectoryError
from felice.protocol.topic_partition import PartitionKey

_log = logging.getLogger("felice.log")


RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_OFFSETS = "cleaner-offset-checkpoint"

# Consequences of a start without the file. Kafka 4.3 takes the directory offline if any but the cleaner's is damaged.
_COSTS = {
    RECOVERY_POINTS: "every log is then scanned from its first record, which takes longer, and a damaged batch is cut "
    "off with all behind it, as the end of a write that was cut short would be",
    LOG_START_OFFSETS: "records that DeleteRecords removed are then served again until their segments are deleted",
    HIGH_WATERMARKS: "high watermarks then begin at the start of each log, so consumers wait until the leaders have "
    "heard from all in-sync replicas; no record is lost",
}


def parse(text: str) -> dict[PartitionKey, int]:
    """Parses the file's text. Raises ValueError if it is damaged."""
    lines = text.split("\n")
    if lines[0] != "0" or len(lines) < 2:
        raise ValueError(f"version {lines[0]!r} is not 0")
    offsets = {}
    for line in lines[2:]:
        if line:
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = int(offset)
    if len(offsets) != int(lines[1]):
        raise ValueError(f"{lines[1]} entries announced, {len(offsets)} found")
    return offsets


def format_offsets(offsets: Mapping[PartitionKey, int]) -> str:
    """The file's text for these offsets, sorted by partition."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())]
    return "".join([f"0\n{len(lines)}\n", *lines])


class Checkpoint:
    """One checkpoint file."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._file = CapturedFile(disk, path.parent, path.name)

    def read(self) -> dict[PartitionKey, int]:
        """The offsets in the file; empty if there is no file. Raises `LogDirectoryError` if it is damaged."""
        data, path = self._file.read(), self._file.path
        if data is None:
            return {}
        try:
            return parse(data.decode("utf-8"))
        except ValueError as error:
            reason = f"has a damaged {path.name} ({error})"
            if path.name in _COSTS:
                raise LogDirectoryError(
                    path.parent,
                    f"{reason}; restore the file, or delete it and start again: {_COSTS[path.name]}",
                ) from error
            _log.warning(
                "the cleaner's checkpoint is damaged: logs are cleaned from their starts again",
                extra={"path": str(path), "reason": str(error)},
            )
            return {}

    def capture(self, offsets: Mapping[PartitionKey, int]) -> Callable[[], None]:
        """Takes `offsets` as the content as of now. The result writes them; it may raise OSError."""
        return self._file.capture(format_offsets(offsets).encode("utf-8"))
