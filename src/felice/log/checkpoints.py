"""Files of offsets by partition, one per log directory: recovery points, log starts, high watermarks.

Keeps true: the file holds the last content that was captured and written, whole;
            an older capture that is written late does not replace a newer one.

Text: a version (0), the number of entries, then `topic partition offset` a line.
Captured by the owner of the logs, written by any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

from felice.env import Disk
from felice.log.errors import LogDirectoryError

TopicPartition = tuple[str, int]

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"


def parse(text: str) -> dict[TopicPartition, int]:
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


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())]
    return "".join([f"0\n{len(lines)}\n", *lines])


class Checkpoint:
    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._lock = Lock()
        self._captured = 0
        self._written = 0
        self._content: bytes | None = None

    def read(self) -> dict[TopicPartition, int]:
        """The offsets in the file; none where there is no file."""
        if not self._disk.exists(self.path):
            return {}
        try:
            return parse(self._disk.read_bytes(self.path).decode("utf-8"))
        except ValueError as error:
            raise LogDirectoryError(
                self.path.parent, f"has a file {self.path.name} that is no checkpoint: {error}"
            ) from error

    def capture(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """What the file should hold as of now; the result writes it and may raise OSError."""
        data = format_offsets(offsets).encode("utf-8")
        self._captured += 1
        number = self._captured
        return lambda: self._write(number, data)

    def _write(self, number: int, data: bytes) -> None:
        with self._lock:
            if number > self._written and data != self._content:
                self._disk.write_atomic(self.path, data)
                self._content = data
            self._written = max(self._written, number)
