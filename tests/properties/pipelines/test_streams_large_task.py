"""A task with its state on disk is the task with its state in memory, whatever happens to its workers and files."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("rocksdict")

from felice.pipelines.streams.on_spark import large_state, state
from felice.pipelines.streams.on_spark.held_task import HeldTask
from felice.pipelines.streams.on_spark.large_state import LargeStates
from felice.pipelines.streams.on_spark.stage import Application
from felice.pipelines.streams.on_spark.state import StateFiles
from felice.pipelines.streams.stores import Store
from felice.pipelines.streams.task import TopicRecord
from felice.streams import App

TASK = "state-0/0/0"


def application() -> Application:
    app = App("large", key="string", value="long")
    words = app.stream("words", key="string", value="long").group_by_key()
    words.count(name="counts").to_stream().to("out", value="long")
    words.tumbling(10, grace_ms=20).count(name="windows")
    return Application(app.topology, None)


class Workers:
    """Two workers that share a checkpoint. Each has its own directory on the machine's disk."""

    def __init__(self, directory: Path, task_bytes: int) -> None:
        self._directory, self._application = directory, application()
        self._large = LargeStates(str(directory / "disk"), task_bytes)
        self.files = directory / "checkpoint"
        self.workers = [self._new(), self._new()]
        self.batch = 0
        self.may_run_again = False
        """Whether the last batch may be unfinished for Spark: no later one has begun."""

    def run(self, worker: int, keys: list[str], time: int) -> list[TopicRecord]:
        """A batch of a worker."""
        held = self.workers[worker]
        task = held.at(self.batch - 1)
        sent = [
            one for key in keys for one in task.process(TopicRecord("words", key.encode(), bytes(8), time))
        ]
        held.save(self.batch)
        self.batch += 1
        self.may_run_again = True
        return sent

    def fail(self, worker: int, keys: list[str], time: int) -> None:
        """A batch that ends before it is saved."""
        self.may_run_again = False
        task = self.workers[worker].at(self.batch - 1)
        for key in keys:
            task.process(TopicRecord("words", key.encode(), bytes(8), time))

    def run_again(self, worker: int, keys: list[str], time: int) -> list[TopicRecord]:
        """The last batch once more: it was saved, but Spark did not finish it. Its functions may give other results."""
        self.batch -= 1
        return self.run(worker, keys, time)

    def end(self, worker: int) -> None:
        """The worker's process ends."""
        self._close(worker)
        self.workers[worker] = self._new()

    def lose_disk(self, worker: int) -> None:
        """The files on the machine's disk are lost; the workers end."""
        for number in range(len(self.workers)):
            self.end(number)
        shutil.rmtree(self._directory / "disk", ignore_errors=True)

    def damage_disk(self, worker: int) -> None:
        """The same, and what is left is rubbish."""
        for number in range(len(self.workers)):
            self.end(number)
        for path in (self._directory / "disk").rglob("CURRENT"):
            path.write_text("rubbish")

    def close(self) -> None:
        for number in range(len(self.workers)):
            self._close(number)

    def rows(self) -> dict[str, Any]:
        """What a reader of the checkpoint finds."""
        stores: dict[str, Store] = self._application.topology.made_stores(self._application.parts[0])
        if self.batch:
            StateFiles(self.files).load(self.batch - 1, stores)
        return {name: store.rows for name, store in stores.items()}

    def _new(self) -> HeldTask:
        application = self._application
        return HeldTask(
            lambda: application.topology.made_stores(application.parts[0]),
            lambda stores: application.task(0, stores),
            StateFiles(self.files),
            self._large,
            TASK,
        )

    def _close(self, number: int) -> None:
        self.workers[number].close()


STEPS = ["run", "run", "run", "run", "run_again", "fail", "end", "lose_disk", "damage_disk"]


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1)), max_size=40),
    st.integers(0, 1 << 32),
)
@settings(max_examples=60, deadline=None)
def test_state_on_disk_is_the_state_in_memory(steps: list[tuple[str, int]], seed: int) -> None:
    random = Random(seed)
    with TemporaryDirectory() as one, TemporaryDirectory() as other, pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_state, "MOST_CHANGED", 6)
        patch.setattr(large_state, "MOST_HELD", 8)
        patch.setattr(large_state, "MOST_BEHIND", 2)
        patch.setattr(large_state, "BATCHES_PER_BASE", 6)
        patch.setattr(state, "BATCHES_PER_BASE", 3)
        on_disk, in_memory = Workers(Path(one), 1), Workers(Path(other), 0)
        try:
            for step, worker in steps:
                keys = [f"k{random.randrange(30)}" for _ in range(random.randrange(8))]
                time = random.randrange(20) + 5 * on_disk.batch
                if step == "run_again" and not on_disk.may_run_again:
                    step = "run"
                if step.startswith("run"):
                    results = [getattr(one, step)(worker, keys, time) for one in (on_disk, in_memory)]
                    assert results[0] == results[1]
                elif step == "fail":
                    on_disk.fail(worker, keys, time)
                else:
                    getattr(on_disk, step)(worker)
            assert on_disk.rows() == in_memory.rows()
        finally:
            on_disk.close()
