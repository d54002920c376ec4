"""Another number of partitions: every row goes to the partition of its key, or the change is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError, Description
from felice.pipelines.streams.on_spark.rescale import rescale
from felice.pipelines.streams.on_spark.state import StateFiles
from felice.pipelines.streams.stores import Clocks, Rows
from felice.pipelines.streams.task import Task, TopicRecord
from felice.records.kernels import murmur2
from felice.streams import App
from streams.comparison import random_rows, topics_of
from streams.topologies import TOPOLOGIES

VERSION = 4


def app_of(name: str) -> App:
    app = App("scaled", key="string", value="string")
    TOPOLOGIES[name](app)
    return app


def run(app: App, tasks: list[list[Task]], rows: list[Any]) -> list[TopicRecord]:
    """Each record through the tasks of its partition, and what follows from it."""
    out = []
    sources = [one for part in app.topology.parts() for one in part.sources]
    everywhere = {one.topic for one in sources if one.is_global}
    for topic, key, value, timestamp in rows:
        waiting = [
            TopicRecord(topic, *(None if one is None else one.encode() for one in (key, value)), timestamp)
        ]
        while waiting:
            record = waiting.pop(0)
            place = 0 if record.key is None else murmur2(record.key) % len(tasks)
            places = range(len(tasks)) if record.topic in everywhere else [place]
            reading = [task for one in places for task in tasks[one] if record.topic in task.topics]
            out += [] if reading else [record]
            waiting += [sent for task in reading for sent in task.process(record)]
    return out


def new_tasks(app: App, partitions: int) -> list[list[Task]]:
    return [[Task(app.topology, part) for part in app.topology.parts()] for _ in range(partitions)]


def save(app: App, tasks: list[list[Task]], state: Path) -> None:
    for place, parts in enumerate(tasks):
        for part, task in zip(app.topology.parts(), parts, strict=True):
            if part.is_placed:
                StateFiles(state / str(part.number) / str(place)).write_first(VERSION, task.stores)


def load(app: App, tasks: list[list[Task]], state: Path) -> None:
    for place, parts in enumerate(tasks):
        for part, task in zip(app.topology.parts(), parts, strict=True):
            if part.is_placed:
                StateFiles(state / str(part.number) / str(place)).load(VERSION, task.stores)


def checkpoint_at(path: Path, planned: int = VERSION) -> Checkpoint:
    for name, last in (("offsets", planned), ("commits", VERSION)):
        (path / name).mkdir()
        (path / name / str(last)).touch()
    return Checkpoint(path)


def rescaled(app: App, tasks: list[list[Task]], path: Path, partitions: int) -> list[list[Task]]:
    checkpoint = checkpoint_at(path)
    before = Description(app.name, app.describe(), len(tasks), {})
    save(app, tasks, Path(checkpoint.state_location(before)))
    checkpoint.describe(before)
    after = rescale(app, checkpoint, before, partitions)
    assert checkpoint.description() == after and after.partitions == partitions
    assert not Path(checkpoint.state_location(before)).exists()
    made = new_tasks(app, partitions)
    load(app, made, Path(checkpoint.state_location(after)))
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
    plain = run(app, new_tasks(app, after), rows)
    tasks = new_tasks(app, before)
    first = run(app, tasks, rows[:50])
    changed = first + run(app, rescaled(app, tasks, tmp_path, after), rows[50:])
    assert sorted(changed, key=repr) == sorted(plain, key=repr)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_row_goes_to_one_partition(tmp_path: Path, name: str) -> None:
    app, rows = app_of(name), rows_in_order(name, 10)
    tasks = new_tasks(app, 2)
    run(app, tasks, rows)

    def kept(tasks: list[list[Task]]) -> list[str]:
        stores = [store for parts in tasks for task in parts for store in task.stores.values()]
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
    assert kept(rescaled(app, tasks, tmp_path, 3)) == before


def test_the_new_stream_times_are_the_least_of_the_old(tmp_path: Path) -> None:
    app = App("scaled", value="string")
    app.stream("in").group_by_key().tumbling(10).count(name="n").to("out")
    tasks = new_tasks(app, 4)
    keys = {murmur2(key.encode()) % 4: key for key in map(str, range(40))}
    run(app, tasks, [("in", keys[place], "x", 100 + place) for place in (1, 2, 3)])
    times = [task.stores["clocks"].rows for (task,) in rescaled(app, tasks, tmp_path, 2)]
    assert [max(rows.values()) for rows in times] == [101, 101]


def test_a_batch_that_is_not_done_is_refused(tmp_path: Path) -> None:
    app = app_of(BY_KEY[0])
    checkpoint = checkpoint_at(tmp_path, planned=VERSION + 1)
    with pytest.raises(CheckpointError, match="batch 5 of scaled is planned and not done"):
        rescale(app, checkpoint, Description(app.name, app.describe(), 2, {}), 3)


def test_keys_whose_bytes_are_not_known_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    app = App("scaled", key="json", value="string")
    app.stream("in").group_by_key().count(name="n").to("out")
    tasks = new_tasks(app, 2)
    run(app, tasks, [("in", '{"a": 1}', "x", 1)])
    checkpoint = checkpoint_at(tmp_path)
    before = Description(app.name, app.describe(), 2, {})
    save(app, tasks, Path(checkpoint.state_location(before)))
    checkpoint.describe(before)
    with pytest.raises(CheckpointError, match="store 'n' has a row .* whose record key is not known"):
        rescale(app, checkpoint, before, 3)
    assert checkpoint.description() == before
    load(app, new_tasks(app, 2), Path(checkpoint.state_location(before)))
