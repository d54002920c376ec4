"""The source of many files: which are found, rotation, and where a new task goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect_contexts import StoredOffsets
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.connectors import files, lines
from felice.pipelines.connect.connectors.files import FilesSource, FilesSourceTask
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.offset_records import key_text


class Reader:
    """Tasks that the test polls. What they return is committed."""

    def __init__(
        self, place: Path, offsets: dict[str, Place] | None = None, *, tasks: int = 1, **more: str
    ) -> None:
        self.offsets: dict[str, Place] = {} if offsets is None else offsets
        config = {"files": f"{place}/*.log", "topic": "t", "scan.interval.ms": "1"}
        config.update((name.replace("_", "."), value) for name, value in more.items())
        errors = [error for one in FilesSource.validate(config) for error in one.errors]
        assert not errors, errors
        connector = FilesSource()
        connector.start(config)
        self.tasks = []
        for one in connector.task_configs(tasks):
            task = FilesSourceTask()
            task.context = StoredOffsets(self.offsets)
            task.start(one)
            self.tasks.append(task)
        _open.append(self)

    def lines(self, polls: int = 12) -> list[str]:
        found = []
        for task in self.tasks:
            task._scan_s = 0.0
            for _ in range(polls):
                for record in task.poll() or ():
                    self.offsets[key_text(record.source_partition)] = record.source_offset
                    found.append(record.value)
        return found

    def close(self) -> None:
        for task in self.tasks:
            task.stop()
            task.close()


_open: list[Reader] = []


@pytest.fixture(autouse=True)
def closed_at_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(files, "_SLICE_S", 0.001)
    yield
    while _open:
        _open.pop().close()


def append(path: Path, *lines: str, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines[:-1]) + lines[-1] + end)


def test_files_of_patterns_are_read_as_they_grow(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "a1", "a2")
    append(tmp_path / "b.log", "b1", end="")
    append(tmp_path / "c.txt", "no")
    append(tmp_path / "old.log", "no")
    reader = Reader(tmp_path, files_exclude="old*")
    assert reader.lines() == ["a1", "a2"]
    append(tmp_path / "b.log", "", "b2")
    append(tmp_path / "new.log", "n1")
    assert sorted(reader.lines()) == ["b1", "b2", "n1"]
    assert reader.lines() == []
    (tmp_path / "deep" / "er").mkdir(parents=True)
    append(tmp_path / "deep" / "er" / "d.log", "d1")
    deep = Reader(tmp_path, reader.offsets, files=f"{tmp_path}/**/*.log", files_exclude="old*")
    assert deep.lines() == ["d1"]


@pytest.mark.parametrize("stays", [True, False])
def test_a_rotated_file_is_read_on_and_not_again(tmp_path: Path, stays: bool) -> None:
    """`stays`: the old file keeps a name within the pattern. The task runs on, or another one goes on."""
    append(tmp_path / "a.log", "1", "2")
    reader = Reader(tmp_path)
    assert reader.lines() == ["1", "2"]
    append(tmp_path / "a.log", "3")
    (tmp_path / "a.log").rename(tmp_path / ("a.1.log" if stays else "a.log.1"))
    append(tmp_path / "a.log", "4")
    assert sorted(reader.lines()) == ["3", "4"]
    if stays:
        append(tmp_path / "a.log", "5")
        assert Reader(tmp_path, reader.offsets).lines() == ["5"]


def test_a_deleted_file_is_read_to_its_end(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "1")
    reader = Reader(tmp_path)
    assert reader.lines() == ["1"]
    append(tmp_path / "a.log", "2", "3")
    (tmp_path / "a.log").unlink()
    assert reader.lines() == ["2", "3"]
    reader.lines()
    assert reader.tasks[0]._files == {}


def test_an_inode_that_another_file_got_is_noticed(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "1", "2")
    reader = Reader(tmp_path)
    reader.lines()
    with (tmp_path / "a.log").open("r+") as file:  # the same inode, with other bytes
        file.write("7\n8\n9\n")
    assert Reader(tmp_path, reader.offsets).lines() == ["7", "8", "9"]


def test_a_file_that_became_shorter_begins_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path / "a.log", "first", "second")
    reader = Reader(tmp_path)
    reader.lines()
    os.truncate(tmp_path / "a.log", 0)
    append(tmp_path / "a.log", "x")
    assert reader.lines() == ["x"] and "fewer than" in caplog.text


def test_tasks_share_the_files(tmp_path: Path) -> None:
    for number in range(20):
        append(tmp_path / f"{number}.log", str(number))
    reader = Reader(tmp_path, tasks=3)
    assert sorted(map(int, reader.lines(30))) == list(range(20))
    assert sum(len(task._files) for task in reader.tasks) == 20
    # Another number of tasks goes on at the same places.
    append(tmp_path / "7.log", "more")
    assert Reader(tmp_path, reader.offsets, tasks=2).lines(30) == ["more"]


def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_OPEN", 3)
    for number in range(10):
        append(tmp_path / f"{number}.log", str(number))
    reader = Reader(tmp_path)
    assert sorted(map(int, reader.lines(30))) == list(range(10))
    for number in range(10):
        append(tmp_path / f"{number}.log", str(number), end="")
        append(tmp_path / f"{number}.log", "", end="\n")
    assert sorted(map(int, reader.lines(40))) == list(range(10))
    assert sum(one.opened is not None for one in reader.tasks[0]._files.values()) <= 3


def test_batches_headers_and_long_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "a.log", *map(str, range(10)))
    reader = Reader(tmp_path, batch_size="4", file_header="path")
    sizes = [len(reader.tasks[0].poll() or ()) for _ in range(3)]
    assert sizes == [4, 4, 2]
    append(tmp_path / "a.log", "x")
    [record] = reader.tasks[0].poll() or ()
    assert [(one.name, one.value) for one in record.headers] == [("path", f"{tmp_path}/a.log")]
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    append(tmp_path / "a.log", "y" * 11, end="")
    with pytest.raises(ConnectError, match="more than 10 bytes"):
        reader.lines()


def test_an_offset_of_another_kind_is_refused(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "1")
    inode = (tmp_path / "a.log").stat().st_ino
    with pytest.raises(ConnectError, match="has no 'position'"):
        Reader(tmp_path, {key_text({"inode": inode}): {"position": "x"}}).lines()
