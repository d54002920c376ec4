"""New log directories that appear whole or not at all.

Keeps true: a kill leaves nothing at the name of a new directory, or the whole directory. Until then
            everything lies beside them, under names that begin with a dot and end with `.felice-new`.
            What was there before is never changed: the names must be free, or those of empty directories.
How:        each directory is built and synced under its temporary name. Then they are renamed, the first one last,
            because it has the metadata. A kill between two renames leaves directories that do not start: the metadata
            of their cluster is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from felice.env import Disk, DiskLocked, Lock
from felice.log.directory import LOCK_NAME
from felice.migration.errors import MigrationError, explained

_SUFFIX = ".felice-new"


def check_free(disk: Disk, targets: Sequence[Path], sources: Sequence[Path]) -> None:
    """Raises `MigrationError` unless directories can be created at these paths."""
    known = [path.resolve() for path in sources]
    resolved = [path.resolve() for path in targets]
    if len(set(resolved)) != len(resolved):
        raise MigrationError("two of the new directories are the same")
    for path, target in zip(targets, resolved, strict=True):
        if any(target == one or one in target.parents or target in one.parents for one in known):
            raise MigrationError(f"{path} overlaps with a directory that is read; choose another one")
        with explained(str(path), OSError):
            if path.is_mount():
                raise MigrationError(f"{path} is the root of a file system; name a new directory in it")
            if disk.exists(path) and (not disk.is_dir(path) or disk.listdir(path)):
                raise MigrationError(f"{path} exists already and is not empty; choose a new directory")


@contextmanager
def being_built(disk: Disk, targets: Sequence[Path]) -> Iterator[list[Path]]:
    """Directories to fill; they become the targets if the block ends without an error, and are removed otherwise."""
    temporary = [path.with_name(f".{path.name}{_SUFFIX}") for path in targets]
    locks: list[Lock] = []
    try:
        with explained("the new directories cannot be created", OSError):
            for path in temporary:
                locks.append(_begin(disk, path))
        yield temporary
        with explained("the new directories cannot be completed", OSError):
            for path in temporary:
                disk.sync_dir(path)
            for path, target in reversed(list(zip(temporary, targets, strict=True))):
                disk.rename(path, target)
                disk.sync_dir(target.parent)
    except BaseException:
        # Directories that were renamed already stay. They do not start without the first one.
        for path, _ in zip(temporary, locks, strict=False):
            with suppress(OSError):
                disk.remove_tree(path)
        raise
    finally:
        for lock in locks:
            lock.release()


def _begin(disk: Disk, path: Path) -> Lock:
    """Creates a temporary directory, and first removes one that a killed import left."""
    if disk.exists(path):
        try:
            disk.lock(path / LOCK_NAME).release()
        except DiskLocked:
            raise MigrationError(f"{path} is in use: another import or export is under way") from None
        disk.remove_tree(path)
    disk.mkdir(path)
    return disk.lock(path / LOCK_NAME)
