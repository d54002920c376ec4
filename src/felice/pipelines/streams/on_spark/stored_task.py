"""The stores of one task, for a process that reads them but does not run the task.

Keeps true: nothing is written to the checkpoint. Rows that would take too much memory are in RocksDB, in a directory
            that belongs to this reader.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

from felice.pipelines.errors import PlainError
from felice.pipelines.streams.on_spark.large_state import MIB, STATE_MEMORY_MB, Directory, LargeState
from felice.pipelines.streams.on_spark.state import BYTES_PER_ROW, EMPTY, NOTHING, StateFiles, Version
from felice.pipelines.streams.stores import Store


class ReadersMemory:
    """The memory and the disk that the tasks of one reader share."""

    def __init__(
        self, tasks: int, state_memory_mb: int = STATE_MEMORY_MB, local_state: Path | None = None
    ) -> None:
        if state_memory_mb < 1:
            raise PlainError(f"state_memory_mb is {state_memory_mb}, but must be at least 1")
        self.task_bytes = state_memory_mb * MIB // (tasks or 1)
        self._below, self._made = local_state, 0
        self._directory: Path | None = None

    def directory(self) -> Path:
        """A new directory. It is removed at the end of the process, or with this object."""
        if self._directory is None:
            if self._below is not None:
                self._below.mkdir(parents=True, exist_ok=True)
            self._directory = Path(tempfile.mkdtemp(prefix="felice-state-", dir=self._below))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        self._made += 1
        return self._directory / str(self._made)


class _Own(Directory):
    """A directory that only this reader knows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def release(self) -> None:
        """Remove the directory: a later reader begins with the checkpoint."""
        shutil.rmtree(self.path, ignore_errors=True)


class StoredTask:
    """The stores of a task, which can move to later versions."""

    def __init__(
        self, make_stores: Callable[[], dict[str, Store]], files: StateFiles, memory: ReadersMemory
    ) -> None:
        self._make_stores, self._files, self._memory = make_stores, files, memory
        self._stores: dict[str, Store] | None = None
        self._version = EMPTY
        self._large: LargeState | None = None

    def at(self, number: int) -> dict[str, Store]:
        """The stores with the rows of this version: the same objects as those of the last call, unless the task had to
        be read anew.

        Raises `StateError` if files of the version are missing or damaged. The next call then reads the task anew.
        """
        stores = self._stores
        if stores is None or self._version.number != number:
            self._stores = None  # After an error the rows may be those of no version.
            stores = self._later(stores, number) or self._loaded(number)
            for store in stores.values():
                store.forget_changes()
            self._stores = stores
        self._reach(stores, self._version)
        return stores

    def _later(self, stores: dict[str, Store] | None, number: int) -> dict[str, Store] | None:
        """Bring the stores of an earlier version to this one; None if the version must be read anew."""
        if (
            stores is None
            or self._version.number > number
            or (self._large is None and self._is_large(number))
        ):
            return None
        self._version = self._files.catch_up(self._version, number, stores, partial(self._reach, stores))
        return stores

    def _loaded(self, number: int) -> dict[str, Store]:
        self.close()
        stores = self._make_stores()
        if self._is_large(number):
            self._large = LargeState(_Own(self._memory.directory()))
            self._large.keep(stores)
        if number != NOTHING:
            self._version = self._files.load(number, stores, partial(self._reach, stores))
        return stores

    def _is_large(self, number: int) -> bool:
        return self._files.rows(number) * BYTES_PER_ROW > self._memory.task_bytes

    def close(self) -> None:
        """Release memory and disk. The stores must not be used after that."""
        if self._large is not None:
            self._large.close()
        self._stores = self._large = None
        self._version = EMPTY

    def _reach(self, stores: dict[str, Store], version: Version) -> None:
        """Bound the memory for rows that were read from disk, and for changes that are not on disk yet."""
        if self._large is not None:
            self._large.reach(version, stores)
