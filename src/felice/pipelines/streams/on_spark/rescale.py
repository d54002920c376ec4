"""Changes the number of partitions of a stopped application: redistributes its state.

Keeps true: a row is in the partition that its record key chooses. The new state is complete and durable before the
            description names it; the old state is removed after that. So after a crash there is one complete state.
Refused:    stores whose rows are not partitioned by their record keys; keys whose original bytes are not known (JSON);
            an unfinished last batch, because its results depend on the partitions.
Changed:    every partition continues with the smallest stream time of all old partitions. So no window closes earlier
            than before, and a record that was late in one partition may now count. The numbers that operators give to
            records continue after the greatest one of all old partitions.
"""

from __future__ import annotations

from dataclasses import replace

from felice.pipelines.streams.app import App
from felice.pipelines.streams.on_spark.checkpoint_copy import describe
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError, Description
from felice.pipelines.streams.on_spark.places import place_at
from felice.pipelines.streams.on_spark.state import NOTHING, files_of_task
from felice.pipelines.streams.stores import Clocks, Rows, Store
from felice.pipelines.streams.topology import SubTopology
from felice.records.kernels import murmur2


def rescale(app: App, checkpoint: Checkpoint, description: Description, partitions: int) -> Description:
    """Redistribute the state over `partitions`. The caller holds the lock. Raises `CheckpointError` on refusal."""
    planned, done = checkpoint.last_batches()
    if planned > done:
        raise CheckpointError(
            f"batch {planned} of {app.name} is planned and not done; finish it first: felice run FILE --until-caught-up"
        )
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


def _deal_out(
    app: App,
    part: SubTopology,
    checkpoint: Checkpoint,
    version: int,
    before: Description,
    after: Description,
) -> None:
    new = [app.topology.made_stores(part) for _ in range(after.partitions)]
    for place in range(before.partitions):
        stores = app.topology.made_stores(part)
        files_of_task(checkpoint, before, part.number, place).load(version, stores)
        for name, store in stores.items():
            if isinstance(store, Clocks):
                _continue([made[name] for made in new], store)
            else:
                _move(store, place, before.partitions, [made[name] for made in new])
    for place, stores in enumerate(new):
        files_of_task(checkpoint, after, part.number, place).write_first(version, stores)


def _move(store: Store, place: int, places: int, targets: list[Store]) -> None:
    if store.placed is Rows.EVERYWHERE:
        for target in targets:
            target.load(store.rows.items())
        return
    for key, row in store.rows.items():
        owner = store.owner(key)
        if owner is None or murmur2(owner) % places != place:
            raise CheckpointError(
                f"store {store.name!r} has a row {key!r} whose record key is not known, so its partitions cannot be "
                "changed; reset the application, and start it with another number"
            )
        targets[murmur2(owner) % len(targets)].load([(key, row)])


def _continue(targets: list[Store], clocks: Clocks) -> None:
    for name, time in clocks.rows.items():
        for target in targets:
            target.load([(name, clocks.of_several_tasks(time, target.rows.get(name, time)))])
