"""Stray logs: logs with records that were set aside (`-stray`) for an operator to inspect.

Keeps true: when the broker sets a log with records aside, it logs an ERROR with name, path and end offset, and
            counts the log until an operator moves its directory away.
Leaves: the renaming to `LogDirectory`. Nothing deletes a stray.
"""

from __future__ import annotations

import logging
from pathlib import Path

from felice.env import Disk
from felice.log.log import Log
from felice.log.segment import LOG_SUFFIX

_log = logging.getLogger("felice.log")


class Strays:
    """The strays of one log directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: list[Path] = []

    def present(self) -> list[Path]:
        """The directories of stray logs with records that still exist."""
        self._paths = [path for path in self._paths if self._disk.exists(path)]
        return list(self._paths)

    def on_set_aside(self, name: str, log: Log | None, target: Path, reason: str) -> None:
        """A log has become a stray. `log` is None if it could not be loaded: then it may have records."""
        if log is not None and log.log_end_offset == log.log_start_offset:
            _log.info("an empty log was set aside", extra={"partition": name, "path": str(target)})
            return
        self._paths.append(target)
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
        if not self._has_records(path):
            return
        self._paths.append(path)
        _log.warning(
            "a log with records was set aside by an earlier run; inspect it and move it away",
            extra={"path": str(path)},
        )

    def _has_records(self, path: Path) -> bool:
        segments = (name for name in self._disk.listdir(path) if name.endswith(LOG_SUFFIX))
        return any(self._disk.size(path / name) > 0 for name in segments)
