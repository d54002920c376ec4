"""A task in a worker between the batches: its stores in memory or on disk, and the version that they have.

Keeps true: a batch begins with the state after the batch before it, whichever worker ran that, and however the last
            batch of this worker has ended.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

from felice.pipelines.streams.on_spark.handover import hold
from felice.pipelines.streams.on_spark.large_state import (
    ALL_IN_MEMORY,
    MOST_CHANGED,
    LargeState,
    LargeStates,
    Piece,
)
from felice.pipelines.streams.on_spark.state import (
    BYTES_PER_ROW,
    EMPTY,
    NOTHING,
    StateError,
    StateFiles,
    Version,
    row_count,
)
from felice.pipelines.streams.stores import Store

Task = TypeVar("Task")


class HeldTask(Generic[Task]):
    """A task in a worker, or several that share files. Its rows are in memory, or in a `LargeState` once they take
    too much of it.

    Between batches, a thread of this process can hand the `LargeState` over to another worker process.
    """

    def __init__(
        self,
        make_stores: Callable[[], dict[str, Store]],
        make_task: Callable[[dict[str, Store]], Task],
        files: StateFiles,
        large: LargeStates = ALL_IN_MEMORY,
        location: str = "",
        *,
        has_own_query: bool = True,
    ) -> None:
        self._make_stores, self._make_task, self._files = make_stores, make_task, files
        self._large_states, self._location, self._has_own_query = large, location, has_own_query
        self._stores = make_stores()
        self._task: Task | None = make_task(self._stores)
        """None after the state was handed over."""
        self._version: Version | None = EMPTY
        """That of the stores; None in a batch."""
        self._large: LargeState | None = None
        self._is_in_batch = False
        self._in_use = threading.Lock()
        """Held in a batch, and while the state is handed over."""

    def at(self, version: int) -> Task:
        """The task with this version of its state."""
        if not self._is_in_batch:  # Otherwise the last batch has failed.
            self._in_use.acquire()
            self._is_in_batch = True
        try:
            self._catch_up(version)
        except StateError as error:
            if self._has_own_query:
                raise
            reason = "a query that reads a Stream must read each of its batches to the end"
            raise StateError(f"{error}; {reason}") from None
        self._version = None
        assert self._task is not None, "a task was made when its state was read"
        return self._task

    def renew(self, keeps: Callable[[str], bool]) -> None:
        """Between batches: make the stores and the task again, for another program. Stores that it keeps stay as they
        are; others of the same name get their rows.
        """
        assert self._large is None, "stores on disk cannot be renewed"
        if self._version is None:
            return  # The last batch has failed, so all is made again when the next one begins.
        before, self._stores = self._stores, self._make_stores()
        for name in before.keys() & self._stores.keys():
            if keeps(name):
                self._stores[name] = before[name]
            else:
                self._stores[name].load(before[name].rows.items())
        self._task = self._make_task(self._stores)

    def save(self, batch_id: int, *, is_first: bool = False) -> None:
        """Write what the batch changed. `is_first`: there are no files of earlier batches."""
        changes = {name: store.take_changes() for name, store in self._stores.items()}
        changes = {name: rows for name, rows in changes.items() if rows}
        if is_first:
            self._version = self._files.write_first(batch_id, self._stores)
        else:
            self._version = self._files.write(batch_id, changes, self._stores, with_base=self._large is None)
        if self._large is not None:
            self._large.note(changes)
        self._is_in_batch = False
        self._in_use.release()

    def _catch_up(self, number: int) -> None:
        version = self._reached(number, self._version)
        if (
            self._large is None
            and self._large_states.task_bytes
            and self._memory() > self._large_states.task_bytes
        ):
            if self._files.has_pieces:  # Another worker has moved the rows.
                version = self._reached(number, None)
            else:
                self._move(version)
        if self._large is not None:
            self._large.reach(version, self._stores)
            if (piece := self._large.take_piece()) is not None:
                self._write(self._large.version, piece)

    def _reached(self, number: int, mine: Version | None) -> Version:
        """Bring the stores to the version of a batch: from `mine`, if that leads there."""
        version = mine if mine is not None and self._follows(mine, number) else self._loaded(number)
        return self._files.catch_up(version, number, self._stores, self._reach)

    def _loaded(self, number: int) -> Version:
        """Begin with another task, whose state is read."""
        if self._large is None and self._is_large(number):
            self._large = self._taken_over(number)
        version = EMPTY
        self._stores = stores = self._make_stores()
        if self._large is not None:
            if self._large.has(stores) and self._follows(self._large.version, number):
                version = self._large.version
            else:
                self._large.clear()
            self._large.keep(stores)
        self._task = self._make_task(stores)
        if version == EMPTY:
            version = self._files.load(number, stores, self._reach)
            if self._large is not None:
                self._large.write(version, stores)
        return version

    def _is_large(self, number: int) -> bool:
        """Whether a version is too large for memory."""
        most = self._large_states.task_bytes
        return bool(most) and (self._files.has_pieces or self._files.rows(number) * BYTES_PER_ROW > most)

    def _taken_over(self, number: int) -> LargeState:
        """The `LargeState` of the task: handed over by another worker, or read from the directory."""
        wanted = Version(number, self._files.identity(number) or EMPTY.identity)
        directory = self._large_states.of_task(self._location)
        held = hold(directory, json.dumps(wanted).encode(), self._give_up)
        try:
            return LargeState(held)
        except BaseException:
            held.release()
            raise

    def _give_up(self, request: bytes) -> bool:
        """Hand the state on disk over to a worker that runs the batch after the requested version. Spark has finished
        that version.
        """
        wanted = Version(*json.loads(request)) if request else EMPTY
        if not request or not self._in_use.acquire(blocking=False):
            return False
        try:
            assert self._large is not None, "what is handed over is held"
            try:
                if self._version == wanted:
                    self._large.write(wanted, self._stores)
            finally:  # If it cannot be written, the earlier version is handed over.
                self._large.close()
                self._large = self._version = None
                self._stores, self._task = {}, None  # Frees the rows in memory.
            return True
        finally:
            self._in_use.release()

    def _reach(self, version: Version) -> None:
        if self._large is not None:
            self._large.reach(version, self._stores)

    def _memory(self) -> int:
        """About how many bytes the rows take in memory."""
        return round(row_count(self._stores) * (BYTES_PER_ROW + self._files.row_bytes))

    def _move(self, version: Version) -> None:
        """Move the rows from memory to disk, for the rest of the task's life."""
        before = self._stores
        self._large = self._taken_over(version.number)
        self._large.clear()
        self._stores = stores = self._make_stores()
        self._large.keep(stores)
        self._task = self._make_task(stores)
        for name, store in stores.items():
            rows = iter(before[name].rows.items())
            while some := list(islice(rows, MOST_CHANGED)):
                store.load(some)
                self._reach(EMPTY)
        self._large.write(version, stores)
        self._write(version, self._large.take_base())

    def _write(self, version: Version, piece: Piece) -> None:
        """Write rows of a version that Spark has finished to the checkpoint."""
        self._files.write_piece(version.number, piece.base, piece.rows, self._stores, is_last=piece.is_last)

    def _follows(self, mine: Version, number: int) -> bool:
        """Whether a version is that of a batch, or comes before it."""
        if mine.number > number:
            return False
        if mine.number == NOTHING:
            return number == NOTHING
        return self._files.identity(mine.number) == mine.identity
