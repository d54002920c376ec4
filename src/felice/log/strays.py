"""Stray logs: logs that were set aside (`-stray`), to come back with their topic or to be inspected by an operator.

Keeps true: when the broker sets a log with records aside, it logs an ERROR with name, path and end offset, and
            counts the log until its topic is back or an operator moves its directory away.
Leaves:     the renaming to `LogDirectory`. A stray is deleted only with the record that its topic's deletion was
            requested.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from felice.dataclass import dataclass
from felice.env import Disk
from felice.log import directory_names, partition_metadata
from felice.log.log import Log
from felice.log.segment import LOG_SUFFIX
from felice.protocol.topic_partition import PartitionKey

_log = logging.getLogger("felice.log")


@dataclass(frozen=True, slots=True)
class Stray:
    """One stray. `key` and `topic_id` are None where its name or files do not tell them."""

    path: Path
    has_records: bool
    key: PartitionKey | None
    topic_id: UUID | None


class Strays:
    """The strays of one log directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # In the order in which they were set aside.
        self._strays: dict[Path, Stray] = {}

    def __iter__(self) -> Iterator[Stray]:
        return iter(list(self._strays.values()))

    def present(self) -> list[Path]:
        """The directories of stray logs with records that still exist."""
        self._strays = {path: stray for path, stray in self._strays.items() if self._disk.exists(path)}
        return [stray.path for stray in self if stray.has_records]

    def of(self, key: PartitionKey, topic_id: UUID) -> Stray | None:
        """The log of this partition that was set aside last and still exists."""
        found = [stray for stray in self if (stray.key, stray.topic_id) == (key, topic_id)]
        return next((stray for stray in reversed(found) if self._disk.exists(stray.path)), None)

    def forget(self, stray: Stray) -> None:
        """The log is no stray any more."""
        self._strays.pop(stray.path, None)

    def on_set_aside(self, key: PartitionKey, log: Log | None, target: Path, reason: str) -> None:
        """A log has become a stray. `log` is None if it could not be loaded: then it may have records."""
        name = "{}-{}".format(*key)
        has_records = log is None or log.log_end_offset > log.log_start_offset
        topic_id = partition_metadata.look(self._disk, target) if log is None else log.topic_id
        self._strays[target] = Stray(target, has_records, key, topic_id)
        if not has_records:
            _log.info("an empty log was set aside", extra={"partition": name, "path": str(target)})
            return
        _log.error(
            "a log with records was set aside; its records are no longer served",
            extra={
                "partition": name,
                "path": str(target),
                "log_start_offset": "unknown" if log is None else log.log_start_offset,
                "log_end_offset": "unknown" if log is None else log.log_end_offset,
                "reason": reason,
            },
        )

    def on_found(self, path: Path) -> None:
        """The broker found the stray of an earlier run when it started."""
        has_records, key = self._has_records(path), directory_names.set_aside_partition_of(path.name)
        self._strays[path] = Stray(path, has_records, key, partition_metadata.look(self._disk, path))
        if not has_records:
            return
        _log.warning(
            "a log with records was set aside by an earlier run; it comes back with its topic. "
            "If the topic is gone for good, inspect the log and move it away",
            extra={"path": str(path)},
        )

    def _has_records(self, path: Path) -> bool:
        segments = (name for name in self._disk.listdir(path) if name.endswith(LOG_SUFFIX))
        return any(self._disk.size(path / name) > 0 for name in segments)
