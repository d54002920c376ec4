"""A small file that is replaced as a whole: its owner captures the content, any thread writes it.

Keeps true: the file holds the content that was captured last among those written; an
            older capture that is written late does not replace a newer one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from felice.env import Disk


class CapturedFile:
    """One small file in `directory`. See the module."""

    __slots__ = ("_captured", "_content", "_directory", "_disk", "_lock", "_name", "_written")

    def __init__(self, disk: Disk, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._disk = disk
        self._lock = Lock()
        self._captured = 0
        self._written = 0
        self._content: bytes | None = None

    @property
    def path(self) -> Path:
        """The file's path."""
        # Built when needed: every partition has such a file and hardly ever writes it, and a stored path would
        # take as much memory as all the rest.
        return self._directory / self._name

    def read(self) -> bytes | None:
        """The file's content; None if there is no file."""
        try:
            return self._disk.read_bytes(self.path)
        except FileNotFoundError:
            return None

    def assume_on_disk(self, data: bytes) -> None:
        """The disk already has this content, or no file, which means the same: writing `data` is unnecessary."""
        self._content = data

    def capture(self, data: bytes, *, sync_name: bool = True) -> Callable[[], None]:
        """Takes `data` as the content as of now. The result writes it, on any thread; it may raise OSError.

        Without `sync_name` the caller syncs the directory.
        """
        self._captured += 1
        number = self._captured
        return lambda: self._write(number, data, sync_name)

    def _write(self, number: int, data: bytes, sync_name: bool) -> None:
        with self._lock:
            if number > self._written and data != self._content:
                self._disk.write_atomic(self.path, data, sync_name=sync_name)
                self._content = data
            self._written = max(self._written, number)
