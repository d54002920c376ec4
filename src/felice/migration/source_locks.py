"""Keeps brokers off the directories that an import or an export reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from felice.env import DiskLocked
from felice.env.shared_files import SharedLock, hold_shared
from felice.log.directory import LOCK_NAME
from felice.migration.errors import MigrationError


@contextmanager
def held(sources: Sequence[Path], owner: str) -> Iterator[Callable[[], None]]:
    """Within, no broker can start on these directories. Raises `MigrationError` if one uses them now.

    Kafka removes its lock file when it stops, and nothing may be created in its directories. Call the function that
    this yields before the result counts: it raises `MigrationError` if a broker was started meanwhile.
    """
    locks: list[SharedLock] = []
    unlocked: list[Path] = []

    def check() -> None:
        for path in unlocked:
            if (path / LOCK_NAME).exists():
                raise MigrationError(f"{path} was used by {owner} meanwhile; stop it and begin again")

    try:
        for path in sources:
            try:
                lock = hold_shared(path / LOCK_NAME)
            except DiskLocked:
                raise MigrationError(f"{path} is in use by a running {owner}; stop it first") from None
            if lock is None:
                unlocked.append(path)
            else:
                locks.append(lock)
        yield check
    finally:
        for lock in locks:
            lock.release()
