"""Faults of the log's own files. What a client did wrong is an `ApiError` of `records` or `producers`."""

from __future__ import annotations

import errno
from pathlib import Path

from felice.protocol.errors import ApiError, ErrorCode

_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


def is_shortage(error: OSError) -> bool:
    """No room or no free descriptor: the call fails, but the disk is sound and may serve the next one."""
    return error.errno in _SHORTAGES


class LogOffline(ApiError):
    """The partition cannot be read or written here; clients look for another leader and try again."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class FlushPostponed(LogOffline):
    """The disk had no room for what belongs to a flush: nothing is lost, and it is tried again."""


class CorruptLog(LogOffline):
    """Bytes that were on disk are not what was written. Says where, so that a person can look."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LogDirectoryError(Exception):
    """A log directory cannot be used: not writable, in use, or another broker's. With `__cause__` where it has one."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"log directory {path} {reason}")
        self.path = path
        self.reason = reason

    @property
    def wants_room(self) -> bool:
        """What failed may be done once there is room, or a free descriptor."""
        return isinstance(self.__cause__, OSError) and is_shortage(self.__cause__)
