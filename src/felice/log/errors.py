"""Errors of the log's own files. Errors of clients are `ApiError`s of `records` or `producers`."""

from __future__ import annotations

import errno
from pathlib import Path

from felice.protocol.errors import ApiError, ErrorCode

_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


def is_shortage(error: OSError) -> bool:
    """Whether there was no room or no free descriptor: the call failed, but the disk is sound and may recover."""
    return error.errno in _SHORTAGES


class LogOffline(ApiError):
    """The partition cannot be read or written here. Clients look for another leader and try again."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class FlushPostponed(LogOffline):
    """The disk had no room for the files of a flush. Nothing is lost; the flush is tried again."""


class CorruptLog(LogOffline):
    """Bytes on disk differ from what was written. Names file and position, so that an operator can look."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LogDirectoryError(Exception):
    """A log directory cannot be used: not writable, in use, or another broker's. `__cause__` is the disk's error."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"log directory {path} {reason}")
        self.path = path
        self.reason = reason

    @property
    def is_passing(self) -> bool:
        """Whether the operation may succeed later, for example once there is room or a free descriptor."""
        return isinstance(self.__cause__, OSError) and is_shortage(self.__cause__)


class StrayComesBack(LogDirectoryError):
    """The log exists as a stray, which is opened on a thread first. An empty log must not replace it."""

    @property
    def is_passing(self) -> bool:
        """The broker tries again soon."""
        return True
