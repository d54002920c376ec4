"""Open files of a log directory, few at a time.

Keeps true: at most `limit` files are held open here, however many partitions and
            segments there are. The least recently used file is dropped first.

A dropped file is not closed while a reader still uses it: a `FileSlice` in progress
references it, and its descriptor is closed with the last reference. So old segments
may be dropped or deleted in the middle of a fetch.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock

from felice.env import Disk, File

DEFAULT_LIMIT = 512


class OpenFiles:
    """Open files by path, shared by the partitions of a directory and by the threads that load them."""

    def __init__(self, disk: Disk, limit: int = DEFAULT_LIMIT) -> None:
        self.disk = disk
        self._limit = limit
        self._files: dict[Path, File] = {}
        # By the file, not its path: `Path` computes its hash in Python, and each append would call it once more.
        self._least_recent_first: OrderedDict[File, Path] = OrderedDict()
        # Lets a closing partition drop its files without a search through those of all partitions.
        self._by_directory: dict[Path, set[Path]] = {}
        self._lock = Lock()

    def get(self, path: Path, *, create: bool = False) -> File:
        """Returns the file at `path`, opening it if necessary. Raises OSError."""
        with self._lock:
            file = self._files.get(path)
            if file is not None:
                self._least_recent_first.move_to_end(file)
                return file
            file = self.disk.open(path, create=create)
            self._files[path] = file
            self._least_recent_first[file] = path
            self._by_directory.setdefault(path.parent, set()).add(path)
            if len(self._files) > self._limit:
                self._drop(next(iter(self._least_recent_first.values())))
            return file

    def size(self, path: Path) -> int | None:
        """Size in bytes of the file on disk; None if there is no file."""
        try:
            return self.disk.size(path)
        except FileNotFoundError:
            return None

    def forget(self, path: Path) -> None:
        """Drops `path`, which was renamed, deleted, or is not needed for a while."""
        with self._lock:
            if path in self._files:
                self._drop(path)

    def forget_under(self, directory: Path) -> None:
        """Drops all files in `directory`."""
        with self._lock:
            for path in self._by_directory.pop(directory, ()):
                del self._least_recent_first[self._files.pop(path)]

    def _drop(self, path: Path) -> None:
        del self._least_recent_first[self._files.pop(path)]
        siblings = self._by_directory[path.parent]
        siblings.discard(path)
        if not siblings:
            del self._by_directory[path.parent]

    def __len__(self) -> int:
        return len(self._files)
