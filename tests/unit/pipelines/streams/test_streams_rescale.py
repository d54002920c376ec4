"""Another number of partitions: every row goes to the partition of its key, or the change is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.on_spark import rescale as rescale_module
from felice.pipelines.streams.on_spark import stored_task
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError, Description
from felice.pipelines.streams.on_spark.rescale import rescale
from felice.pipelines.streams.stores import Clocks, Rows
from felice.records.kernels import murmur2
from felice.streams import App
from streams.comparison import random_rows, topics_of
from streams.tasks_in_memory import TasksInMemory
from streams.topologies import TOPOLOGIES

VERSION = 4


def app_of(name: str) -> App:
    app = App("scaled", key="string", value="string")
    TOPOLOGIES[name](app)
    return app


def checkpoint_at(path: Path, planned: int = VERSION) -> Checkpoint:
    for name, last in (("offsets", planned), ("commits", VERSION)):
        (path / name).mkdir()
        (path / name / str(last)).touch()
    return Checkpoint(path)


def rescaled(tasks: TasksInMemory, path: Path, partitions: int) -> TasksInMemory:
    checkpoint, app = checkpoint_at(path), tasks.app
    before = Description(app.name, app.describe(), len(tasks.tasks), {})
    tasks.save(checkpoint, before, VERSION)
    checkpoint.describe(before)
    after = rescale(app, checkpoint, before, partitions)
    assert checkpoint.description() == after and after.partitions == partitions
    assert not Path(checkpoint.state_location(before)).exists()
    made = TasksInMemory(app, partitions)
    made.load(checkpoint, VERSION)
    return made


def rows_in_order(name: str, seed: int) -> list[Any]:
    """By timestamp, so that no partition is ahead of a record: stream time then changes nothing."""
    return sorted(random_rows(Random(seed), topics_of(name), 80), key=lambda row: row[3])


# Windows close by the stream time of a partition, which depends on the other keys there.
BY_KEY = [
    name
    for name in TOPOLOGIES
    if name.startswith(
        ("count", "table", "join_t", "outer_join_t", "outer_of", "aggregate", "reduce", "cogroup")
    )
]


@pytest.mark.parametrize("partitions", [(1, 3), (3, 2), (2, 5)])
@pytest.mark.parametrize("name", BY_KEY)
def test_results_are_those_of_one_run_without_the_change(
    tmp_path: Path, name: str, partitions: tuple[int, int]
) -> None:
    app, rows = app_of(name), rows_in_order(name, 10)
    before, after = partitions
    plain = TasksInMemory(app, after).run(rows)
    tasks = TasksInMemory(app, before)
    first = tasks.run(rows[:50])
    changed = first + rescaled(tasks, tmp_path, after).run(rows[50:])
    assert sorted(changed, key=repr) == sorted(plain, key=repr)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_row_goes_to_one_partition(tmp_path: Path, name: str) -> None:
    app, rows = app_of(name), rows_in_order(name, 10)
    tasks = TasksInMemory(app, 2)
    tasks.run(rows)

    def kept(tasks: TasksInMemory) -> list[str]:
        stores = [store for parts in tasks.tasks for task in parts for store in task.stores.values()]
        found = [
            (store, repr((store.name, key, row)))
            for store in stores
            if not isinstance(store, Clocks)
            for key, row in store.rows.items()
        ]
        everywhere = {row for store, row in found if store.placed is Rows.EVERYWHERE}
        return sorted([row for store, row in found if store.placed is not Rows.EVERYWHERE] + [*everywhere])

    before = kept(tasks)
    assert bool(before) == any(part.stores for part in app.topology.parts())
    assert kept(rescaled(tasks, tmp_path, 3)) == before


@pytest.mark.parametrize("name", [*BY_KEY[:3], *(name for name in TOPOLOGIES if "session" in name)][:5])
def test_rows_that_memory_has_no_room_for_are_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made: list[Path] = []

    class Noted(stored_task.LargeState):
        def __init__(self, held: stored_task.Directory) -> None:
            made.append(held.path)
            super().__init__(held)

    monkeypatch.setattr(stored_task, "LargeState", Noted)
    monkeypatch.setattr(stored_task, "MIB", 0)
    monkeypatch.setattr(rescale_module, "_HELD_ROWS", 2)
    test_every_row_goes_to_one_partition(tmp_path, name)
    assert made and not any(path.exists() for path in made)


def test_the_new_stream_times_are_the_least_of_the_old(tmp_path: Path) -> None:
    app = App("scaled", value="string")
    app.stream("in").group_by_key().tumbling(10).count(name="n").to("out")
    tasks = TasksInMemory(app, 4)
    keys = {murmur2(key.encode()) % 4: key for key in map(str, range(40))}
    tasks.run([("in", keys[place], "x", 100 + place) for place in (1, 2, 3)])
    times = [task.stores["clocks"].rows for (task,) in rescaled(tasks, tmp_path, 2).tasks]
    assert [max(rows.values()) for rows in times] == [101, 101]


def test_numbers_continue_behind_the_greatest_of_the_old(tmp_path: Path) -> None:
    app = App("scaled", value="string")
    app.stream("in").numbered(lambda key, value, number: f"{number}", name="numbers").to("out")
    tasks = TasksInMemory(app, 4)
    keys = {murmur2(key.encode()) % 4: key for key in map(str, range(40))}
    tasks.run([("in", keys[place], "x", 5) for place in (1, 2, 2, 2, 3)])
    made = rescaled(tasks, tmp_path, 3)
    [record] = made.run([("in", "a", "x", 5)])
    assert record.value == b"3"
    assert sorted(task.stores["numbers"].rows["last"] for (task,) in made.tasks) == [2, 2, 3]


def test_a_batch_that_is_not_done_is_refused(tmp_path: Path) -> None:
    app = app_of(BY_KEY[0])
    checkpoint = checkpoint_at(tmp_path, planned=VERSION + 1)
    with pytest.raises(CheckpointError, match="batch 5 of scaled is planned and not done"):
        rescale(app, checkpoint, Description(app.name, app.describe(), 2, {}), 3)


def test_keys_whose_bytes_are_not_known_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    app = App("scaled", key="json", value="string")
    app.stream("in").group_by_key().count(name="n").to("out")
    tasks = TasksInMemory(app, 2)
    tasks.run([("in", '{"a": 1}', "x", 1)])
    checkpoint = checkpoint_at(tmp_path)
    before = Description(app.name, app.describe(), 2, {})
    tasks.save(checkpoint, before, VERSION)
    checkpoint.describe(before)
    with pytest.raises(CheckpointError, match="store 'n' has a row .* whose record key is not known"):
        rescale(app, checkpoint, before, 3)
    assert checkpoint.description() == before
    TasksInMemory(app, 2).load(checkpoint, VERSION)


def test_rows_in_partitions_that_a_function_chose_stay_there(tmp_path: Path) -> None:
    app = App("scaled", value="string")
    chosen = app.stream("in").repartition(name="chosen", partition=lambda key, value: 0)
    chosen.group_by_key().count(name="counts")
    with pytest.raises(
        CheckpointError,
        match="a function chooses the partitions of scaled-chosen-repartition, so those of the stores",
    ):
        rescaled(TasksInMemory(app, 2), tmp_path, 3)
