"""Open files of a log directory, few at a time.

Keeps true: at most `limit` files are held open here, however many partitions and
            segments there are; the least recently used goes first.

A file that is let go is not closed while somebody still reads it: a `FileSlice`
under way holds it, and its descriptor goes with the last reference. So old
segments may be evicted or deleted in the middle of a fetch.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock

from felice.env import Disk, File

DEFAULT_LIMIT = 512


class OpenFiles:
    """Files by path. Shared by the partitions of a directory, and by the threads that load them."""

    def __init__(self, disk: Disk, limit: int = DEFAULT_LIMIT) -> None:
        self.disk = disk
        self._limit = limit
        self._files: OrderedDict[Path, File] = OrderedDict()
        # A partition that is closed lets its files go, and need not look at those of all others for them.
        self._by_directory: dict[Path, set[Path]] = {}
        self._lock = Lock()

    def get(self, path: Path, *, create: bool = False) -> File:
        """The file at `path`, opened if need be."""
        with self._lock:
            file = self._files.get(path)
            if file is not None:
                self._files.move_to_end(path)
                return file
            file = self.disk.open(path, create=create)
            self._files[path] = file
            self._by_directory.setdefault(path.parent, set()).add(path)
            if len(self._files) > self._limit:
                self._drop(next(iter(self._files)))
            return file

    def size(self, path: Path) -> int | None:
        """Of the file on disk; None where there is none."""
        try:
            return self.disk.size(path)
        except FileNotFoundError:
            return None

    def forget(self, path: Path) -> None:
        """Lets `path` go: it was renamed, deleted, or is not needed for a while."""
        with self._lock:
            if path in self._files:
                self._drop(path)

    def forget_under(self, directory: Path) -> None:
        with self._lock:
            for path in self._by_directory.pop(directory, ()):
                del self._files[path]

    def _drop(self, path: Path) -> None:
        del self._files[path]
        siblings = self._by_directory[path.parent]
        siblings.discard(path)
        if not siblings:
            del self._by_directory[path.parent]

    def __len__(self) -> int:
        return len(self._files)
