"""Stores are read by key, range and window: in the TestDriver, and from a checkpoint at its last finished batch."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from felice.pipelines.streams.on_spark import stored_task
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError, Description
from felice.pipelines.streams.on_spark.state import BYTES_PER_ROW, KEPT_BASES, StateError, StateFiles
from felice.pipelines.streams.task import Task, TopicRecord
from felice.records.kernels import murmur2
from felice.streams import App, StoredState, TestDriver, TopologyError, Window, Windowed

PARTITIONS = 3


def counting(name: str = "counting") -> App:
    app = App(name, value="string")
    keyed = app.stream("in").group_by_key()
    keyed.count(name="counts").to("out")
    keyed.tumbling(10, grace_ms=1_000).count(name="windows").to("windowed")
    return app


class Running:
    """Writes a checkpoint as a running application does."""

    def __init__(self, path: Path, app: App) -> None:
        self.path, self.app = path, app
        self.checkpoint = Checkpoint(path)
        description = Description(app.name, app.describe(), PARTITIONS, {})
        self.checkpoint.describe(description)
        self.state = Path(self.checkpoint.state_location(description))
        (self.part,) = app.topology.parts()
        self.tasks = [Task(app.topology, self.part) for _ in range(PARTITIONS)]
        for log in ("offsets", "commits"):
            (path / log).mkdir()

    def batch(self, number: int, keys: str, *, is_done: bool = True) -> None:
        (self.path / "offsets" / str(number)).touch()
        for key in keys:
            task = self.tasks[murmur2(key.encode()) % PARTITIONS]
            task.process(TopicRecord("in", key.encode(), b"x", 10 * number))
        for place, task in enumerate(self.tasks):
            changes = {name: store.take_changes() for name, store in task.stores.items()}
            files = StateFiles(self.state / str(self.part.number) / str(place))
            files.write(number, changes, task.stores)
        if is_done:
            (self.path / "commits" / str(number)).touch()


def test_rows_are_found_by_key_range_and_window() -> None:
    driver = TestDriver(counting(), PARTITIONS)
    for timestamp, key in enumerate("abcabcaaad" * 3):
        driver.send("in", key, "x", timestamp)
    counts, windows = driver.store("counts"), driver.store("windows")
    assert (counts.get("a"), counts.get("z"), len(counts)) == (15, None, 4)
    assert counts.range("b", "cz") == [("b", 6), ("c", 6)]
    assert windows.windows("a", 10, 20) == [(Window(10, 20), 5), (Window(20, 30), 5)]
    assert windows.get(Windowed("d", Window(20, 30))) == 1
    with pytest.raises(TopologyError, match="counting has no store 'other'"):
        driver.store("other")


def test_a_checkpoint_is_read_at_its_last_finished_batch(tmp_path: Path) -> None:
    running = Running(tmp_path, counting())
    state = StoredState(counting(), tmp_path)
    assert state.last_batch == -1 and dict(state.store("counts").items()) == {}
    running.batch(0, "abca")
    running.batch(1, "ax", is_done=False)
    assert dict(state.store("counts").items()) == {"a": 2, "b": 1, "c": 1}
    counts = state.store("counts")
    (tmp_path / "commits" / "1").touch()
    assert (counts.batch, state.last_batch, state.store("counts").batch) == (0, 1, 1)
    assert dict(state.store("counts").items()) == {"a": 3, "b": 1, "c": 1, "x": 1}
    assert state.store("windows").windows("a", 0, 100) == [(Window(0, 10), 2), (Window(10, 20), 1)]


def test_a_reader_that_fell_behind_reads_anew(tmp_path: Path) -> None:
    running = Running(tmp_path, counting())
    state = StoredState(counting(), tmp_path)
    running.batch(0, "a")
    assert state.store("counts").get("a") == 1
    for number in range(1, 10 * (KEPT_BASES + 2)):
        running.batch(number, "ab")
    assert dict(state.store("counts").items()) == {"a": 40, "b": 39}


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    running = Running(tmp_path, counting())
    running.batch(0, "abc")
    other, changed = App("other"), App("counting")
    for one in (other, changed):
        one.stream("in").group_by_key().count(name="counted").to("out")
    with pytest.raises(CheckpointError, match="is no checkpoint of other"):
        StoredState(other, tmp_path).store("counted")
    with pytest.raises(CheckpointError, match=r"the state in .* belongs to another version of the program"):
        StoredState(changed, tmp_path).store("counted")
    with pytest.raises(TopologyError, match="has no store 'missing'"):
        StoredState(counting(), tmp_path).store("missing")
    (running.state / "0" / "1" / "0.delta").unlink()
    with pytest.raises(StateError, match="is missing"):
        StoredState(counting(), tmp_path).store("counts")


def test_a_large_state_is_read_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(tmp_path / "checkpoint", counting())
    monkeypatch.setattr(stored_task, "MIB", 1)  # so that the first rows are too many for memory
    local = tmp_path / "local"
    small = StoredState(counting(), running.path, state_memory_mb=1 << 30, local_state=local)
    large = StoredState(counting(), running.path, state_memory_mb=1, local_state=local)
    for number in range(12):
        running.batch(number, "abca" if number % 2 else "bxyz")
        for name in ("counts", "windows"):
            expected, found = small.store(name), large.store(name)
            assert dict(found.items()) == dict(expected.items()) and len(found) == len(expected)
            assert found.rows() == expected.rows()
    counts, windows = large.store("counts"), large.store("windows")
    assert (counts.get("a"), counts.get("none"), counts.range("a", "b")) == (12, None, [("a", 12), ("b", 12)])
    assert windows.windows("x", 0, 45) == [(Window(start, start + 10), 1) for start in (0, 20, 40)]
    assert [key for _, key, _ in counts.entries_from(b"b")] == ["b", "c", "x", "y", "z"]
    [directory] = local.iterdir()
    del counts, windows, found, large
    gc.collect()
    assert not directory.exists()


def test_a_state_that_grows_moves_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(tmp_path / "checkpoint", counting())
    monkeypatch.setattr(stored_task, "MIB", 1)
    share = 20 * BYTES_PER_ROW * PARTITIONS
    state = StoredState(counting(), running.path, state_memory_mb=share, local_state=tmp_path / "local")
    running.batch(0, "ab")
    assert state.store("counts").get("a") == 1 and not (tmp_path / "local").exists()
    for number in range(1, 40):
        running.batch(number, "abc")
    assert dict(state.store("counts").items()) == {"a": 40, "b": 40, "c": 39}
    assert (tmp_path / "local").exists()
