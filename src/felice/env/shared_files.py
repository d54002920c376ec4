"""Directories of another program: its locks, and copies of its files that share their data where that is possible."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

from felice.env.disk import DiskLocked

_CHUNK_BYTES = 64 * 1024 * 1024
# Between these file systems, or files, the kernel cannot copy by itself.
_WITHOUT_KERNEL = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
# The file system has no hard links, or not for a file of this owner, or not so many.
_WITHOUT_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)


class SharedLock:
    """Keeps others from an exclusive lock until `release`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Gives the lock back."""
        os.close(self._fd)


def hold_shared(path: Path) -> SharedLock | None:
    """Locks an existing file without changing it; None if there is no such file. Raises `DiskLocked` if it is in use.

    Java's `FileChannel` locks with fcntl, and Felice with flock. The two do not see each other.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise DiskLocked(f"{path} is locked by another process") from error
    return SharedLock(fd)


def can_link(source: Path, target: Path) -> bool:
    """Whether two directories are on one file system."""
    return os.stat(source).st_dev == os.stat(target).st_dev


def link(source: Path, target: Path) -> bool:
    """Gives a file a second name; False if this file system, or the owner of the file, does not allow that."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        return False
    return True


def copy(source: Path, target: Path) -> None:
    """Copies content and time of change, and brings the content to disk. The kernel shares the blocks where it can."""
    with source.open("rb", buffering=0) as old, target.open("xb", buffering=0) as new:
        try:
            while os.copy_file_range(old.fileno(), new.fileno(), _CHUNK_BYTES):
                pass
        except OSError as error:
            if error.errno not in _WITHOUT_KERNEL:
                raise
            # Only the first call can raise such an error, so nothing was copied yet.
            shutil.copyfileobj(old, new, _CHUNK_BYTES)
        # On some file systems the kernel copies nothing, and reports no error.
        if os.fstat(new.fileno()).st_size != os.fstat(old.fileno()).st_size:
            raise OSError(errno.EIO, "the copy has another size than the file", str(source))
        os.fsync(new.fileno())
    times = os.stat(source)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
