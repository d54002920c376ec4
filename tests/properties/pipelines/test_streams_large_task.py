"""A task with state on disk gives the results of one with state in memory, although workers end and files are lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("rocksdict")

from felice.pipelines.errors import OutsideError
from felice.pipelines.streams.formats import BYTES, FORMATS
from felice.pipelines.streams.on_spark import held_task, large_state, state
from felice.pipelines.streams.on_spark.application import Application
from felice.pipelines.streams.on_spark.handover import hold
from felice.pipelines.streams.on_spark.held_task import HeldTask
from felice.pipelines.streams.on_spark.large_state import LargeStates
from felice.pipelines.streams.on_spark.state import StateError, StateFiles
from felice.pipelines.streams.stores import KeyValueStore, Store
from felice.pipelines.streams.task import StreamsError, TopicRecord
from felice.streams import App

TASK = "state-0/0/0"


def application() -> Application:
    app = App("large", key="string", value="long")
    words = app.stream("words", key="string", value="long")
    words.group_by_key().count(name="counts").to_stream().to("out", value="long")
    words.group_by_key().tumbling(10, grace_ms=20).count(name="windows")
    rows = app.table("rows", key="string", value="long", name="table")
    words.join(rows, lambda word, row: row).to("joined", value="long")
    assert len(app.topology.parts()) == 1
    return Application(app.topology, None)


def records(keys: list[str], time: int) -> Iterator[TopicRecord]:
    """Each key as a word; and as a row of the table, which every third time deletes it."""
    for number, key in enumerate(keys):
        yield TopicRecord("words", key.encode(), bytes(8), time)
        row = None if number % 3 == time % 3 else time.to_bytes(8, "big")
        yield TopicRecord("rows", key.encode(), row, time)


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
        sent = [one for record in records(keys, time) for one in task.process(record)]
        held.save(self.batch)
        self.batch += 1
        self.may_run_again = True
        return sent

    def fail(self, worker: int, keys: list[str], time: int) -> None:
        """A batch that ends before it is saved."""
        self.may_run_again = False
        task = self.workers[worker].at(self.batch - 1)
        for record in records(keys, time):
            task.process(record)

    def run_again(self, worker: int, keys: list[str], time: int) -> list[TopicRecord]:
        """The last batch once more: it was saved, but Spark did not finish it. Its functions may give other results."""
        self.batch -= 1
        return self.run(worker, keys, time)

    def end(self, worker: int) -> None:
        """The worker's process ends."""
        self._close(worker)
        self.workers[worker] = self._new()

    def reset(self, worker: int) -> None:
        """The application begins again, with what is on the machine's disk."""
        for number in range(len(self.workers)):
            self.end(number)
        shutil.rmtree(self.files, ignore_errors=True)
        self.batch, self.may_run_again = 0, False

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
        if (large := self.workers[number]._large) is not None:
            large.close()


STEPS = ["run", "run", "run", "run", "run_again", "fail", "end", "reset", "lose_disk", "damage_disk"]


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1)), max_size=40),
    st.integers(0, 1 << 32),
    st.sampled_from([1, 5_000, 15_000]),
)
@settings(max_examples=150, deadline=None)
def test_state_on_disk_is_the_state_in_memory(
    steps: list[tuple[str, int]], seed: int, task_bytes: int
) -> None:
    random = Random(seed)
    with TemporaryDirectory() as one, TemporaryDirectory() as other, pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_state, "MOST_CHANGED", 6)
        patch.setattr(held_task, "MOST_CHANGED", 6)
        patch.setattr(large_state, "MOST_HELD", 8)
        patch.setattr(large_state, "MOST_BEHIND", 2)
        patch.setattr(large_state, "BATCHES_PER_BASE", 6)
        patch.setattr(state, "BATCHES_PER_BASE", 3)
        on_disk, in_memory = Workers(Path(one), task_bytes), Workers(Path(other), 0)
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
                    if step == "reset":
                        in_memory.reset(worker)
            assert on_disk.rows() == in_memory.rows()
        finally:
            on_disk.close()


Pair = tuple[Workers, Workers]


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Workers with their state on disk, where few rows may be in memory, and workers with all of it in memory."""
    monkeypatch.setattr(large_state, "MOST_CHANGED", 6)
    monkeypatch.setattr(large_state, "MOST_HELD", 8)
    on_disk, in_memory = Workers(tmp_path / "a", 1), Workers(tmp_path / "b", 0)
    yield on_disk, in_memory
    on_disk.close()


def compared(on_disk: Workers, in_memory: Workers, worker: int, batches: int) -> None:
    for _ in range(batches):
        keys = [f"k{(on_disk.batch * 7 + number) % 30}" for number in range(5)]
        time = 5 * on_disk.batch
        assert on_disk.run(worker, keys, time) == in_memory.run(worker, keys, time)


def test_a_write_that_fails_in_a_handover_loses_nothing(workers: Pair) -> None:
    on_disk, in_memory = workers
    compared(on_disk, in_memory, 0, 4)
    large = on_disk.workers[0]._large
    assert large is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "write", Mock(side_effect=OSError("No space left on device")))
        compared(on_disk, in_memory, 1, 1)
    for worker in (0, 1, 1, 0):
        compared(on_disk, in_memory, worker, 3)
    assert on_disk.rows() == in_memory.rows()


@pytest.mark.parametrize("request_", [b"", b"rubbish", b"[1]"])
def test_a_worker_answers_after_a_request_that_it_cannot_read(
    workers: Pair, tmp_path: Path, request_: bytes
) -> None:
    on_disk, in_memory = workers
    compared(on_disk, in_memory, 0, 3)
    (directory,) = (tmp_path / "a" / "disk").glob("*/*")
    held = hold(directory, request_, lambda request: False)
    assert held.path.name == "1"
    compared(on_disk, in_memory, 1, 3)
    assert not (directory / "2").exists()
    assert on_disk.workers[0]._large is None, "the other worker has taken it over"
    held.release()


def test_a_damaged_file_stops_the_application_once(workers: Pair, tmp_path: Path) -> None:
    on_disk, in_memory = workers
    many = [f"k{number * 2654435761 % 4_000_000_000}" for number in range(20_000)]
    for one in (on_disk, in_memory):
        one.run(0, many, 5)
    compared(on_disk, in_memory, 0, 2)
    on_disk.end(0)
    for path in (tmp_path / "a" / "disk").rglob("*.sst"):
        data = bytearray(path.read_bytes())
        data[len(data) // 4] ^= 0xFF
        path.write_bytes(data)
    large_state._cache.cache_clear()  # It has the blocks as they were.
    with pytest.raises(
        (OutsideError, StreamsError), match=r"rows on this machine's disk in .* cannot be read"
    ):
        on_disk.run(0, many, 20)
    on_disk.end(0)
    assert on_disk.run(0, many, 20) == in_memory.run(0, many, 20)
    assert on_disk.rows() == in_memory.rows()


def test_an_application_that_begins_again_does_not_continue_an_earlier_base(workers: Pair) -> None:
    on_disk, in_memory = workers
    for _ in range(13):
        compared(on_disk, in_memory, 0, 1)
    for one in workers:
        one.reset(0)
    for _ in range(12):
        compared(on_disk, in_memory, 0, 1)
        assert on_disk.rows() == in_memory.rows()


ENDING = """
import os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], sys.argv[3]]
from test_streams_large_task import Workers
workers = Workers(Path(sys.argv[1]), 1)
for batch in range(30):
    workers.run(0, [f"k{number}" for number in range(20)], batch)
os._exit(0)
"""


def test_a_restart_continues_with_what_is_on_disk(tmp_path: Path) -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-c", ENDING, str(tmp_path), str(here), str(here.parents[1])]
    subprocess.run(command, check=True, timeout=60)
    (directory,) = (tmp_path / "disk").glob("*/*")
    large = large_state.LargeState(hold(directory, b"", lambda request: False))
    assert large.version.number >= 29 - 2 * large_state.MOST_BEHIND
    large.close()


def test_what_other_tasks_left_is_removed(tmp_path: Path) -> None:
    large = LargeStates(str(tmp_path), 1)
    large.remove_others([])
    for location in ("state-0/0/0", "state-0/0/1", "state-1/0/0"):
        (large.of_task(location) / "0").mkdir(parents=True)
    large.remove_others(["state-1/0/0"])
    assert list(large.of_task("state-1/0/0").parent.iterdir()) == [large.of_task("state-1/0/0")]


def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    large = LargeStates(str(tmp_path), 1)
    (tmp_path / f"felice-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"felice-{os.getuid()}").chmod(0o777)
    with pytest.raises(StateError, match="is not a directory of this user alone"):
        large.of_task("state-0/0/0")
    with pytest.raises(StateError, match="is not a directory of this user alone"):
        large.remove_others([])


def test_the_last_batch_may_run_again_at_another_worker(workers: Pair) -> None:
    on_disk, in_memory = workers
    keys = ["k1", "k2"]
    for time in (1, 2, 3):
        assert on_disk.run(0, keys, time) == in_memory.run(0, keys, time)
    for time in (4, 5, 6):
        assert on_disk.run_again(1, keys, time) == in_memory.run_again(1, keys, time)
        assert on_disk.run(0, keys, time) == in_memory.run(0, keys, time)
    assert on_disk.rows() == in_memory.rows()


def test_old_files_are_removed_and_a_base_ends_in_time(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_state, "MOST_BEHIND", 2)
        patch.setattr(large_state, "BATCHES_PER_BASE", 20)
        on_disk = Workers(tmp_path, 1)
        on_disk.run(0, [f"k{number}" for number in range(200)], 0)
        seen = set()
        for batch in range(150):
            on_disk.run(0, ["k1"], batch)
            seen |= {path.name for path in on_disk.files.glob("*.last")}
        assert 5 <= len(seen) <= 10
        assert len(list(on_disk.files.iterdir())) < 100
        on_disk.close()


def test_a_version_has_one_piece(workers: Pair) -> None:
    on_disk, in_memory = workers
    compared(on_disk, in_memory, 0, 5)
    large = on_disk.workers[0]._large
    assert large is not None
    large._due = 100
    assert large.take_piece() is None, "the last batch has taken the piece of this version"


def test_a_base_of_a_batch_that_ran_in_memory_before_is_not_read(tmp_path: Path) -> None:
    files, store = StateFiles(tmp_path), KeyValueStore("rows", BYTES, FORMATS["long"])
    for number in range(state.BATCHES_PER_BASE):
        store.put(b"first", number)
        files.write(number, {"rows": store.take_changes()}, {"rows": store})
    again = KeyValueStore("rows", BYTES, FORMATS["long"])
    files.load(number - 1, {"rows": again})
    again.put(b"second", 1)
    files.write(number, {"rows": again.take_changes()}, {"rows": again}, with_base=False)
    found = KeyValueStore("rows", BYTES, FORMATS["long"])
    StateFiles(tmp_path).load(number, {"rows": found})
    assert found.rows == again.rows


def test_a_version_between_the_pieces_of_a_base_is_read_from_an_earlier_one(tmp_path: Path) -> None:
    files, store = StateFiles(tmp_path), KeyValueStore("rows", BYTES, FORMATS["long"])
    expected = []
    for number in range(8):
        store.put(f"k{number}".encode(), number)
        files.write(number, {"rows": store.take_changes()}, {"rows": store}, with_base=False)
        expected.append(dict(store.rows))
        if number in (2, 3, 5):
            rows = sorted(store.rows.items())[:: 1 if number == 5 else 2]
            files.write_piece(number, "2-ab", {"rows": rows}, {"rows": store}, is_last=number == 5)
    for number in range(8):
        found = KeyValueStore("rows", BYTES, FORMATS["long"])
        files.load(number, {"rows": found})
        assert found.rows == expected[number]
    (tmp_path / "1.delta").unlink()
    files.load(7, {"rows": KeyValueStore("rows", BYTES, FORMATS["long"])})


def test_a_worker_reads_many_rows_to_disk_at_once(tmp_path: Path) -> None:
    """As they are after a rescale, in one file: they must not be in memory first."""
    rows = KeyValueStore("rows", BYTES, FORMATS["long"])
    for number in range(50):
        rows.put(f"k{number}".encode(), number)
    StateFiles(tmp_path / "files").write_first(0, {"rows": rows})
    large = LargeStates(str(tmp_path / "local"), 40 * state.BYTES_PER_ROW)
    worker = HeldTask(
        lambda: {"rows": KeyValueStore("rows", BYTES, FORMATS["long"])},
        lambda stores: stores,
        StateFiles(tmp_path / "files"),
        large,
        TASK,
    )
    found = worker.at(0)["rows"]
    assert worker._large is not None and worker._large.version.number == 0
    assert dict(found.rows.items()) == rows.rows
    worker._large.close()
