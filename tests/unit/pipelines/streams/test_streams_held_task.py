"""A task in a worker after a failed batch, and after another worker has run its batch again."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from felice.pipelines.streams.on_spark.held_task import HeldTask
from felice.pipelines.streams.on_spark.stage import Plan
from felice.pipelines.streams.on_spark.state import StateFiles
from felice.pipelines.streams.task import TopicRecord
from felice.streams import App


def held_task(directory: Path) -> HeldTask:
    app = App("held", value="string")
    app.stream("in").group_by_key().count(name="n").to("out")
    pickled = cloudpickle.dumps(app.topology)  # type: ignore[no-untyped-call]
    application = Plan(pickled, 1, ()).application()
    return HeldTask(
        lambda: application.topology.made_stores(application.parts[0]),
        lambda stores: application.task(0, stores),
        StateFiles(directory),
    )


def count(held: HeldTask, version: int, keys: str) -> dict[object, object]:
    task = held.at(version)
    for key in keys:
        task.process(TopicRecord("in", key.encode(), b"1", 5))
    return {key.decode(): value for key, (value, _) in task.stores["n"].rows.items()}


def test_a_batch_that_failed_in_the_middle_leaves_nothing_in_the_worker(tmp_path: Path) -> None:
    held = held_task(tmp_path)
    assert count(held, -1, "ab") == {"a": 1, "b": 1}  # and is not saved
    assert count(held, -1, "a") == {"a": 1}
    held.save(0)
    assert count(held, 0, "aa") == {"a": 3}
    assert count(held, 0, "a") == {"a": 2}


def test_a_worker_drops_what_another_worker_computed_again(tmp_path: Path) -> None:
    mine = held_task(tmp_path)
    other = held_task(tmp_path)
    count(mine, -1, "aaa")
    mine.save(0)
    count(other, -1, "b")
    other.save(0)
    assert count(mine, 0, "b") == {"b": 2}
