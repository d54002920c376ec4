"""Logs with records that were set aside (`-stray`): what a person has to look at.

Keeps true: a log with records leaves the broker's hands with an ERROR that has name, path and end offset, and is
            counted until somebody moves its directory away.
Leaves out: the renaming, which is `LogDirectory`'s. Strays are never deleted here.
"""

from __future__ import annotations

import logging
from pathlib import Path

from felice.env import Disk
from felice.log.log import Log

_log = logging.getLogger("felice.log")

_SEGMENT_SUFFIX = ".log"


class Strays:
    """The strays of one log directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: list[Path] = []

    def present(self) -> list[Path]:
        """The directories of strays with records that are still there."""
        self._paths = [path for path in self._paths if self._disk.exists(path)]
        return list(self._paths)

    def on_set_aside(self, name: str, log: Log | None, target: Path, reason: str) -> None:
        """A log has become a stray. `log` is None where it could not be loaded: then it may have records."""
        if log is not None and log.log_end_offset == log.log_start_offset:
            _log.info("an empty log was set aside", extra={"partition": name, "path": str(target)})
            return
        self._paths.append(target)
        _log.error(
            "a log with records was set aside; its records are served no more",
            extra={
                "partition": name,
                "path": str(target),
                "log_start_offset": "unknown" if log is None else log.log_start_offset,
                "log_end_offset": "unknown" if log is None else log.log_end_offset,
                "reason": reason,
            },
        )

    def on_found(self, path: Path) -> None:
        """A start met a stray of an earlier one."""
        if not self._has_records(path):
            return
        self._paths.append(path)
        _log.warning(
            "a log with records was set aside at an earlier time; move it away when it has been looked at",
            extra={"path": str(path)},
        )

    def _has_records(self, path: Path) -> bool:
        segments = (name for name in self._disk.listdir(path) if name.endswith(_SEGMENT_SUFFIX))
        return any(self._disk.size(path / name) > 0 for name in segments)
