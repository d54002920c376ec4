"""Open files and held locks of a simulated disk, as `felice.env` defines them.

Keeps true: a handle is valid until it is closed or the process that opened it ends, which `generation` counts. Then
            every operation raises EBADF.
"""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Protocol

from felice.env import Buffer
from felice.testing.simulation.disk_faults import disk_error


class OpenNodes(Protocol):
    """The disk, as far as open files and locks use it. `number` is that of a node, `path` is for errors and faults."""

    generation: int

    def read_at(self, number: int, path: Path, size_bytes: int, position: int) -> bytes:
        """Reads up to `size_bytes`."""
        ...

    def write_at(self, number: int, path: Path, data: bytes, position: int) -> None:
        """Writes all of `data`, or raises with a part written."""
        ...

    def truncate(self, number: int, path: Path, size_bytes: int) -> None:
        """Sets the size."""
        ...

    def sync(self, number: int, path: Path) -> None:
        """Makes the data durable."""
        ...

    def size_of(self, number: int) -> int:
        """The size in bytes."""
        ...

    def close(self, number: int, generation: int) -> None:
        """Closes one handle of the process."""
        ...

    def unlock(self, number: int, generation: int) -> None:
        """Releases a lock of the process."""
        ...


class SimFile:
    """An open file of a `SimDisk`, valid until it is closed or its process ends."""

    __slots__ = ("_disk", "_generation", "_number", "_open", "_read_only", "path")

    # There is no descriptor for `sendfile`.
    has_descriptor = False

    def __init__(self, disk: OpenNodes, path: Path, number: int, read_only: bool) -> None:
        self.path = path
        self._disk = disk
        self._number = number
        self._read_only = read_only
        self._generation = disk.generation
        self._open = True

    def _check(self, *, writes: bool = False) -> None:
        if not self._open or self._generation != self._disk.generation or (writes and self._read_only):
            raise disk_error(errno.EBADF, self.path)

    @property
    def size_bytes(self) -> int:
        """The size in the page cache. Raises EBADF after the file was closed or its process ended."""
        self._check()
        return self._disk.size_of(self._number)

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Reads up to `size_bytes` from `position` on; fewer at the end of the file."""
        self._check()
        return self._disk.read_at(self._number, self.path, size_bytes, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Writes all of `data` at `position`, or raises with a part written."""
        self._check(writes=True)
        self._disk.write_at(self._number, self.path, bytes(data), position)

    def truncate(self, size_bytes: int) -> None:
        """Sets the size; raises EBADF on a read-only file."""
        self._check(writes=True)
        self._disk.truncate(self._number, self.path, size_bytes)

    def sync(self) -> None:
        """Makes the data durable; raises the error of a matching fault."""
        self._check()
        self._disk.sync(self._number, self.path)

    def close(self) -> None:
        """Closes the file; has no effect if it is closed already."""
        if self._open:
            self._open = False
            self._disk.close(self._number, self._generation)

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """Raises `UnsupportedOperation`, so that callers read the data instead of calling sendfile."""
        raise io.UnsupportedOperation(f"{self.path} is in memory and has no descriptor")


class SimLock:
    """A lock file that its holder has locked, until `release` or the end of the process."""

    def __init__(self, disk: OpenNodes, number: int) -> None:
        self._disk = disk
        self._number = number
        self._generation = disk.generation

    def release(self) -> None:
        """Lets other processes lock the file."""
        self._disk.unlock(self._number, self._generation)
