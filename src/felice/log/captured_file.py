"""A small file that is replaced whole: captured by its owner, written by any thread.

Keeps true: the file holds the last content that was captured and written, whole;
            an older capture that is written late does not replace a newer one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from felice.env import Disk


class CapturedFile:
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
        # Every partition has such a file and hardly ever writes it; a path is as large as all the rest.
        return self._directory / self._name

    def read(self) -> bytes | None:
        """What the file holds; None where there is no file."""
        try:
            return self._disk.read_bytes(self.path)
        except FileNotFoundError:
            return None

    def is_as_good_as(self, data: bytes) -> None:
        """The disk has a file that says this, or none, which says the same: it need not be written again."""
        self._content = data

    def capture(self, data: bytes, *, sync_name: bool = True) -> Callable[[], None]:
        """What the file should hold as of now; the result writes it and may raise OSError.

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
