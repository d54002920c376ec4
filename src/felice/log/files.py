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
            if len(self._files) > self._limit:
                self._files.popitem(last=False)
            return file

    def forget(self, path: Path) -> None:
        """Lets `path` go: it was renamed, deleted, or is not needed for a while."""
        with self._lock:
            self._files.pop(path, None)

    def forget_under(self, directory: Path) -> None:
        with self._lock:
            for path in [path for path in self._files if path.parent == directory]:
                del self._files[path]

    def __len__(self) -> int:
        return len(self._files)
