"""Files as an argument.

Keeps true: a write is in the page cache when `append` or `pwrite` returns and on
            disk when `sync` returns; a name is on disk when `sync_dir` returns.
            `write_atomic` leaves either the old or the new content, never a mix.

A `File` knows its own size, so that an append costs one system call. Only one
object may append to a path at a time; the log directory's lock ensures that.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
from pathlib import Path
from typing import Protocol, TypeAlias

from felice.dataclass import dataclass

# `collections.abc.Buffer` exists from Python 3.12 on.
Buffer: TypeAlias = bytes | bytearray | memoryview


class DiskLocked(Exception):
    """Another process (or another object of this one) holds the lock."""


class File(Protocol):
    """An open file, read and written by position. Operations raise OSError."""

    path: Path

    @property
    def has_descriptor(self) -> bool:
        """Whether the kernel can send from the file (`fileno`). Otherwise senders read it in this process."""
        ...

    @property
    def size_bytes(self) -> int:
        """Current size, known without a system call."""
        ...

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Reads up to `size_bytes`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Writes all of `data` at `position`. Beyond the end the file grows."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Sets the size."""
        ...

    def sync(self) -> None:
        """Brings the content to disk (fdatasync)."""
        ...

    def close(self) -> None:
        """Closes the descriptor."""
        ...

    def fileno(self) -> int:
        """The descriptor, for `sendfile`."""
        ...


class Lock(Protocol):
    """An exclusive lock on a file."""

    def release(self) -> None:
        """Releases the lock."""
        ...


class Disk(Protocol):
    """A file system. Operations raise OSError."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        """Opens a file. With `create` it is created if it does not exist."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory at `path`."""
        ...

    def is_dir(self, path: Path) -> bool:
        """Whether there is a directory at `path`."""
        ...

    def listdir(self, path: Path) -> list[str]:
        """Names in a directory, sorted, so that their order is deterministic."""
        ...

    def mkdir(self, path: Path) -> None:
        """Creates the directory and its parents, if they do not exist."""
        ...

    def restrict(self, path: Path) -> None:
        """Lets only the user of this process read and change a file or a directory."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Renames a file or directory. A file at `target` is replaced."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Removes a directory and everything in it."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Brings the names in a directory to disk."""
        ...

    def read_bytes(self, path: Path) -> bytes:
        """The whole content of a file."""
        ...

    def write_atomic(self, path: Path, data: bytes, *, sync_name: bool = True) -> None:
        """Replaces a file's content and syncs it. Without `sync_name` the caller syncs the directory."""
        ...

    def lock(self, path: Path) -> Lock:
        """Takes an exclusive lock, or raises `DiskLocked` at once."""
        ...

    def size(self, path: Path) -> int:
        """Size of a file in bytes."""
        ...

    def mtime_ms(self, path: Path) -> int:
        """Time of the last modification, in milliseconds since the Unix epoch."""
        ...

    def volume(self, path: Path) -> Volume:
        """The file system that holds `path`."""
        ...


@dataclass(frozen=True, slots=True)
class Volume:
    """Total size of a file system and the bytes that this process may still use."""

    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A range of a file that can be sent without passing through Python."""

    file: File
    position: int
    size_bytes: int

    def read(self) -> bytes:
        """Reads the slice into memory."""
        return self.file.pread(self.size_bytes, self.position)


class SystemFile:
    """A `File` of the operating system."""

    __slots__ = ("_fd", "_size_bytes", "path")

    has_descriptor = True

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._size_bytes = os.fstat(fd).st_size

    @property
    def size_bytes(self) -> int:
        """The size that this object wrote or found; other writers of the path do not count."""
        return self._size_bytes

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Repeats short reads, so that fewer bytes come back only at the end of the file."""
        data = os.pread(self._fd, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]
        missing = size_bytes - len(data)
        while missing and (data := os.pread(self._fd, missing, position + size_bytes - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Repeats short writes until all bytes are in the page cache."""
        written = os.pwrite(self._fd, data, position)
        view = memoryview(data).cast("B") if written < memoryview(data).nbytes else None
        end = position + written
        while view is not None and end - position < view.nbytes:
            end += os.pwrite(self._fd, view[end - position :], end)
        self._size_bytes = max(self._size_bytes, end)

    def truncate(self, size_bytes: int) -> None:
        """Shortens the file, or extends it with zeros."""
        os.ftruncate(self._fd, size_bytes)
        self._size_bytes = size_bytes

    def sync(self) -> None:
        """`fdatasync`: content and size reach the disk, timestamps may not."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Closes the descriptor. Closing twice has no effect."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # The file stays open for slices of it that are still being sent, and is closed here at last.
        self.close()

    def fileno(self) -> int:
        """The kernel's descriptor; -1 after `close`."""
        return self._fd


class _SystemLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SystemDisk:
    """The machine's file system as a `Disk`."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> SystemFile:
        """Opens for reading and writing, unless `read_only`. Child processes do not inherit the descriptor."""
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        return SystemFile(path, os.open(path, flags | os.O_CLOEXEC, 0o644))

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory at `path`; a path below a file counts as missing."""
        # A start asks this for every partition. `Path.exists` and `Path.iterdir` take three times as long.
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: Path) -> bool:
        """Whether there is a directory at `path`."""
        return path.is_dir()

    def listdir(self, path: Path) -> list[str]:
        """The names in a directory, sorted, so that every run sees the same order."""
        return sorted(os.listdir(path))

    def mkdir(self, path: Path) -> None:
        """Creates a directory and its parents; an existing one is left as it is."""
        path.mkdir(parents=True, exist_ok=True)

    def restrict(self, path: Path) -> None:
        """Removes the rights of group and others."""
        path.chmod(0o700 if path.is_dir() else 0o600)

    def rename(self, source: Path, target: Path) -> None:
        """Renames within a file system; an existing target is replaced."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Deletes a file."""
        path.unlink()

    def remove_tree(self, path: Path) -> None:
        """Deletes a directory with all its content."""
        shutil.rmtree(path)

    def sync_dir(self, path: Path) -> None:
        """Brings the names in a directory to disk: creations, renames and deletions."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_bytes(self, path: Path) -> bytes:
        """The whole content of a file."""
        with io.FileIO(path) as file:
            return file.readall()

    def write_atomic(self, path: Path, data: bytes, *, sync_name: bool = True) -> None:
        """Writes `<name>.tmp`, syncs it, and renames it over `path`. `sync_name` brings the new name to disk too."""
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
        if sync_name:
            self.sync_dir(path.parent)

    def lock(self, path: Path) -> _SystemLock:
        """An exclusive `flock`, without waiting. Raises `DiskLocked` if another process has it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise DiskLocked(f"{path} is locked by another process") from error
        return _SystemLock(fd)

    def size(self, path: Path) -> int:
        """Size in bytes, from the file system."""
        return os.stat(path).st_size

    def mtime_ms(self, path: Path) -> int:
        """Time of the last modification, in milliseconds since 1970."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def volume(self, path: Path) -> Volume:
        """Total size of the file system, and the space that an ordinary user may still fill."""
        usage = os.statvfs(path)
        return Volume(usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize)
