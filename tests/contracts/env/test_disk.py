"""The contract of `felice.env.Disk`, for the real and the simulated disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from felice.env import Disk, DiskLocked, FileSlice, SystemDisk
from felice.testing.simulation.disk import SimDisk


@pytest.fixture(params=[SystemDisk, SimDisk])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    made: Disk = request.param()
    made.mkdir(tmp_path)
    return made


def test_a_file_opened_again_knows_its_size(disk: Disk, tmp_path: Path) -> None:
    first = disk.open(tmp_path / "a", create=True)
    first.pwrite(b"x" * 10, 0)
    first.truncate(6)
    first.close()
    second = disk.open(tmp_path / "a")
    assert second.size_bytes == 6
    second.pwrite(b"y", 6)
    assert second.size_bytes == 7
    second.close()


def test_overwriting_inside_does_not_move_the_end(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a", create=True)
    file.pwrite(b"abcdef", 0)
    file.pwrite(b"ZZ", 1)
    assert file.size_bytes == 6
    assert FileSlice(file, 0, 4).read() == b"aZZd"
    file.close()


def test_a_write_beyond_the_end_and_a_longer_truncation_leave_zeros(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a", create=True)
    file.pwrite(b"b", 3)
    file.truncate(6)
    assert file.pread(10, 2) == b"\0b\0\0"
    assert file.pread(10, 6) == b""
    assert disk.size(tmp_path / "a") == 6
    file.close()


def test_an_atomic_write_replaces_the_whole_file(disk: Disk, tmp_path: Path) -> None:
    disk.write_atomic(tmp_path / "a", b"old content")
    disk.write_atomic(tmp_path / "a", b"new")
    assert disk.read_bytes(tmp_path / "a") == b"new"
    assert disk.listdir(tmp_path) == ["a"]


def test_a_lock_has_one_holder(disk: Disk, tmp_path: Path) -> None:
    lock = disk.lock(tmp_path / ".lock")
    with pytest.raises(DiskLocked, match="locked by another process"):
        disk.lock(tmp_path / ".lock")
    lock.release()
    disk.lock(tmp_path / ".lock").release()


def test_an_open_file_stays_after_its_name_is_removed(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a", create=True)
    file.pwrite(b"content", 0)
    disk.rename(tmp_path / "a", tmp_path / "b")
    assert disk.read_bytes(tmp_path / "b") == b"content"
    disk.remove(tmp_path / "b")
    file.pwrite(b"!", 7)
    assert file.pread(20, 0) == b"content!"
    assert not disk.exists(tmp_path / "b")
    file.close()


def test_directories_are_made_with_their_parents_and_renamed_and_removed_whole(
    disk: Disk, tmp_path: Path
) -> None:
    disk.mkdir(tmp_path / "d" / "e")
    disk.mkdir(tmp_path / "d" / "e")
    disk.open(tmp_path / "d" / "e" / "f", create=True).close()
    disk.rename(tmp_path / "d", tmp_path / "g")
    assert disk.listdir(tmp_path) == ["g"]
    assert disk.is_dir(tmp_path / "g" / "e")
    assert not disk.is_dir(tmp_path / "g" / "e" / "f")
    disk.remove_tree(tmp_path / "g")
    assert disk.listdir(tmp_path) == []


def full_directory(disk: Disk, path: Path) -> None:
    disk.mkdir(path / "sub" / "sub")
    disk.open(path / "file", create=True).close()


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda disk, path: disk.open(path / "none"), FileNotFoundError),
        (lambda disk, path: disk.open(path / "none" / "x", create=True), FileNotFoundError),
        (lambda disk, path: disk.open(path / "sub"), IsADirectoryError),
        (lambda disk, path: disk.remove(path / "none"), FileNotFoundError),
        (lambda disk, path: disk.rename(path / "none", path / "x"), FileNotFoundError),
        (lambda disk, path: disk.rename(path / "file", path / "sub"), IsADirectoryError),
        (lambda disk, path: disk.rename(path / "sub", path / "file"), NotADirectoryError),
        (lambda disk, path: disk.mkdir(path / "file"), FileExistsError),
        (lambda disk, path: disk.listdir(path / "none"), FileNotFoundError),
        (lambda disk, path: disk.listdir(path / "file"), NotADirectoryError),
        (lambda disk, path: disk.remove_tree(path / "none"), FileNotFoundError),
        (lambda disk, path: disk.size(path / "none"), FileNotFoundError),
        (lambda disk, path: disk.read_bytes(path / "none"), FileNotFoundError),
        (lambda disk, path: disk.write_atomic(path / "none" / "x", b""), FileNotFoundError),
        (lambda disk, path: disk.sync_dir(path / "none"), FileNotFoundError),
        (lambda disk, path: disk.open(path / "file", read_only=True).pwrite(b"x", 0), OSError),
    ],
)
def test_a_failed_operation_names_its_reason(
    disk: Disk, tmp_path: Path, act: Callable[[Disk, Path], Any], expected: type[OSError]
) -> None:
    full_directory(disk, tmp_path)
    with pytest.raises(expected):
        act(disk, tmp_path)
    assert disk.listdir(tmp_path) == ["file", "sub"]
