"""A worker is killed at each step of writing its state: no version before is lost, and the batch can run again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.formats import FORMATS
from felice.pipelines.streams.on_spark.state import BATCHES_PER_BASE, KEPT_BASES, StateFiles
from felice.pipelines.streams.stores import KeyValueStore, Store

Rows = dict[str, dict[object, object]]
REMOVES = (KEPT_BASES + 1) * BATCHES_PER_BASE - 1
"""A batch that writes its delta and a base, and removes older files."""


class Killed(BaseException):
    """The end of the process: nothing that follows in it happens."""


class Killer:
    """Counts the steps that change files, and ends the process in place of one of them."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.kill_at: int | None = None

    def step(self, name: str) -> None:
        if self.kill_at == len(self.steps):
            raise Killed(name)
        self.steps.append(name)


KILLER = Killer()


class KillablePath(type(Path())):  # type: ignore[misc]
    """A path whose changes are steps."""

    def open(self, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if "w" not in mode:
            return super().open(mode, *arguments, **options)
        KILLER.step(f"open {self.suffix}")
        return KillableFile(super().open(mode, *arguments, **options))

    def replace(self, target: Any) -> Any:
        KILLER.step("rename")
        return super().replace(target)

    def unlink(self, missing_ok: bool = False) -> None:
        KILLER.step("remove")
        super().unlink(missing_ok)

    def mkdir(self, *arguments: Any, **options: Any) -> None:
        KILLER.step("make directory")
        super().mkdir(*arguments, **options)


class KillableFile:
    """Half of what is written is in the file if the process ends meanwhile."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __enter__(self) -> KillableFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._file.write(data[: len(data) // 2])
        KILLER.step("write")
        self._file.write(data[len(data) // 2 :])

    def seek(self, offset: int) -> None:
        self._file.seek(offset)

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return int(self._file.fileno())


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fsync = os.fsync

    def killable_fsync(descriptor: int) -> None:
        KILLER.step("sync")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", killable_fsync)
    KILLER.steps, KILLER.kill_at = [], None
    yield
    KILLER.kill_at = None


def stores() -> dict[str, Store]:
    return {name: KeyValueStore(name, FORMATS["string"], FORMATS["json"]) for name in ("a", "b")}


def rows_of(found: dict[str, Store]) -> Rows:
    return {name: dict(store.rows) for name, store in found.items()}


def version(directory: Path, number: int) -> Rows:
    found = stores()
    StateFiles(directory).load(number, found)
    return rows_of(found)


def run_batch(directory: Path, number: int) -> Rows:
    """As a worker does that knows nothing: from the version before, on to this one."""
    found = stores()
    files = StateFiles(directory)
    files.load(number - 1, found)
    for name, store in found.items():
        assert isinstance(store, KeyValueStore)
        store.put(f"k{number % 4}", [name, number], number)
        store.put(f"k{(number + 1) % 4}", None, number)
    files.write(number, {name: store.take_changes() for name, store in found.items()}, found)
    return rows_of(found)


def steps_of(work: Callable[[], object]) -> list[str]:
    KILLER.steps, KILLER.kill_at = [], None
    work()
    return KILLER.steps


def kill(work: Callable[[], object], at: int) -> None:
    KILLER.steps, KILLER.kill_at = [], at
    with pytest.raises(Killed):
        work()
    KILLER.kill_at = None


@pytest.mark.parametrize("number", [0, 5, BATCHES_PER_BASE - 1, REMOVES])
def test_a_worker_that_is_killed_at_any_step_loses_no_version(tmp_path: Path, number: int) -> None:
    history = KillablePath(tmp_path / "history" / "1" / "0")
    after = [run_batch(history, one) for one in range(number)]
    # The first batch also makes the task's directory.
    (tmp_path / "history").mkdir(exist_ok=True)
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "history", before)
    done = steps_of(lambda: after.append(run_batch(history, number)))
    assert {"write", "sync", "rename"} <= set(done)
    assert ("remove" in done) == (number == REMOVES)
    assert ("make directory" in done) == (number == 0)
    readable = range(max(-1, number - BATCHES_PER_BASE + 1), number)
    for at in range(len(done)):
        directory = KillablePath(tmp_path / str(at) / "1" / "0")
        shutil.copytree(before, tmp_path / str(at))
        kill(lambda directory=directory: run_batch(directory, number), at)
        for one in readable:
            assert version(directory, one) == (after[one] if one >= 0 else {"a": {}, "b": {}}), (done[at], at)
        # Spark has not noted the batch as done, so it runs again. The next batch follows.
        assert run_batch(directory, number) == after[number]
        assert version(directory, number) == after[number]
        following = run_batch(directory, number + 1)
        assert version(directory, number + 1) == following


def test_two_workers_that_are_killed_at_different_steps_of_one_batch_leave_a_whole_version(
    tmp_path: Path,
) -> None:
    """As a task that Spark runs again while the first attempt still writes: their files aside have different names."""
    history = KillablePath(tmp_path / "history" / "1" / "0")
    after = [run_batch(history, one) for one in range(BATCHES_PER_BASE)]
    last = BATCHES_PER_BASE - 1
    count = len(steps_of(lambda: run_batch(history, last)))
    for first in range(count):
        for second in (first // 2, count - 1):
            kill(lambda: run_batch(history, last), first)
            kill(lambda: run_batch(history, last), second)
            assert version(history, last - 1) == after[last - 1]
            assert version(history, last) == after[last]
