"""Changes the number of partitions of a stopped application: redistributes its state.

Keeps true: a row is in the partition that its record key chooses. The new state is complete and durable before the
            description names it; the old state is removed after that. So after a crash there is one complete state.
Refused:    stores whose rows are not partitioned by their record keys; keys whose original bytes are not known (JSON);
            an unfinished last batch, because its results depend on the partitions.
Memory:     only some rows of each partition are in memory, and the others on this machine's disk.
Changed:    every partition continues with the smallest stream time of all old partitions. So no window closes earlier
            than before, and a record that was late in one partition may now count. The numbers that operators give to
            records continue after the greatest one of all old partitions.
"""

from __future__ import annotations

import marshal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import BinaryIO

from felice.pipelines.streams.app import App
from felice.pipelines.streams.on_spark.checkpoint_copy import describe
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError, Description
from felice.pipelines.streams.on_spark.places import place_at
from felice.pipelines.streams.on_spark.state import (
    NOTHING,
    Changes,
    files_of_task,
    latest_time,
    row_count,
)
from felice.pipelines.streams.on_spark.stored_task import ReadersMemory, StoredTask
from felice.pipelines.streams.stores import Clocks, Row, Rows, Store
from felice.pipelines.streams.topology import SubTopology
from felice.records.kernels import murmur2

_HELD_ROWS = 10_000
"""The most rows of each new task in memory."""


def rescale(app: App, checkpoint: Checkpoint, description: Description, partitions: int) -> Description:
    """Redistribute the state over `partitions`. The caller holds the lock. Raises `CheckpointError` on refusal."""
    planned, done = checkpoint.last_batches()
    if planned > done:
        raise CheckpointError(
            f"batch {planned} of {app.name} is planned and not done; finish it first: felice run FILE --until-caught-up"
        )
    for part in app.topology.parts():
        _check_placed_by_key(part)
    changed = replace(description, partitions=partitions, state=_next(description.state))
    # What an attempt before this one left.
    place_at(checkpoint.state_location(changed)).remove_all()
    if done != NOTHING:
        for part in app.topology.parts():
            if part.is_placed:
                _deal_out(app, part, checkpoint, done, description, changed)
    describe(checkpoint, changed)
    place_at(checkpoint.state_location(description)).remove_all()
    return changed


def _next(state: str) -> str:
    name, _, number = state.rpartition("-")
    return f"{name}-{int(number) + 1}"


def _check_placed_by_key(part: SubTopology) -> None:
    chosen = [one.topic for one in part.sources if one.is_repartition and one.partition_of is not None]
    if chosen and part.stores:
        raise CheckpointError(
            f"a function chooses the partitions of {chosen[0]}, so those of the stores {', '.join(part.stores)} cannot "
            "be changed; reset the application, and start it with another number"
        )


def _deal_out(
    app: App,
    part: SubTopology,
    checkpoint: Checkpoint,
    version: int,
    before: Description,
    after: Description,
) -> None:
    memory = ReadersMemory(1)
    with ExitStack() as stack:
        new = [_NewTask(stack.enter_context(tempfile.TemporaryFile())) for _ in range(after.partitions)]
        clocks = [
            {name: one for name, one in app.topology.made_stores(part).items() if isinstance(one, Clocks)}
            for _ in new
        ]
        for place in range(before.partitions):
            files = files_of_task(checkpoint, before, part.number, place)
            old = StoredTask(lambda: app.topology.made_stores(part), files, memory)
            for name, store in old.at(version).items():
                if isinstance(store, Clocks):
                    _continue([made[name] for made in clocks], store)
                else:
                    _move(store, place, before.partitions, new)
            old.close()
        for place, (task, times) in enumerate(zip(new, clocks, strict=True)):
            rows = task.count + row_count(times)
            files = files_of_task(checkpoint, after, part.number, place)
            files.write_rows(version, task.rows(times), rows, latest_time(times))


class _NewTask:
    """The rows of a task of the new state, in a temporary file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held: list[Row] = []
        self._store = ""
        self.count = 0

    def add(self, store: str, row: Row) -> None:
        """One more row."""
        if store != self._store or len(self._held) == _HELD_ROWS:
            self._write()
            self._store = store
        self._held.append(row)
        self.count += 1

    def rows(self, clocks: Mapping[str, Store]) -> Iterator[Changes]:
        """All rows, in several parts."""
        yield {name: list(store.rows.items()) for name, store in clocks.items()}
        self._write()
        end = self._file.tell()
        self._file.seek(0)
        while self._file.tell() < end:
            store, rows = marshal.load(self._file)
            yield {store: rows}

    def _write(self) -> None:
        if self._held:
            marshal.dump((self._store, self._held), self._file)
            self._held = []


def _move(store: Store, place: int, places: int, targets: list[_NewTask]) -> None:
    if store.placed is Rows.EVERYWHERE:
        if place == 0:  # Each partition has all rows.
            for row in store.rows.items():
                for target in targets:
                    target.add(store.name, row)
        return
    for key, row in store.rows.items():
        owner = store.owner(key)
        if owner is None or murmur2(owner) % places != place:
            raise CheckpointError(
                f"store {store.name!r} has a row {key!r} whose record key is not known, so its partitions cannot be "
                "changed; reset the application, and start it with another number"
            )
        targets[murmur2(owner) % len(targets)].add(store.name, (key, row))


def _continue(targets: list[Store], clocks: Clocks) -> None:
    for name, time in clocks.rows.items():
        for target in targets:
            target.load([(name, clocks.of_several_tasks(time, target.rows.get(name, time)))])
