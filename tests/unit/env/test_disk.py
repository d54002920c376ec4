"""The system's disk keeps the promises that its docstrings make."""

from pathlib import Path

import pytest

from felice.env import DiskLocked, FileSlice, SystemDisk


def test_append_returns_where_the_data_begins(tmp_path: Path) -> None:
    file = SystemDisk().open(tmp_path / "a", create=True)
    assert file.append(b"abc") == 0
    assert file.append([b"de", bytearray(b"f"), memoryview(b"g")]) == 3
    assert file.size_bytes == 7
    assert file.pread(100, 0) == b"abcdefg"
    file.close()


def test_many_buffers_are_written_in_order(tmp_path: Path) -> None:
    file = SystemDisk().open(tmp_path / "a", create=True)
    buffers = [bytes([number % 251]) for number in range(3000)]
    file.append(buffers)
    assert file.pread(3000, 0) == b"".join(buffers)
    file.close()


def test_a_file_opened_again_knows_its_size(tmp_path: Path) -> None:
    disk = SystemDisk()
    first = disk.open(tmp_path / "a", create=True)
    first.append(b"x" * 10)
    first.truncate(6)
    first.close()
    second = disk.open(tmp_path / "a")
    assert second.size_bytes == 6
    assert second.append(b"y") == 6
    second.close()


def test_overwriting_inside_does_not_move_the_end(tmp_path: Path) -> None:
    file = SystemDisk().open(tmp_path / "a", create=True)
    file.append(b"abcdef")
    file.pwrite(b"ZZ", 1)
    assert file.size_bytes == 6
    assert FileSlice(file, 0, 4).read() == b"aZZd"
    file.close()


def test_an_atomic_write_replaces_the_whole(tmp_path: Path) -> None:
    disk = SystemDisk()
    disk.write_atomic(tmp_path / "a", b"old content")
    disk.write_atomic(tmp_path / "a", b"new")
    assert disk.read_bytes(tmp_path / "a") == b"new"
    assert disk.listdir(tmp_path) == ["a"]


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    disk = SystemDisk()
    lock = disk.lock(tmp_path / ".lock")
    with pytest.raises(DiskLocked, match="locked by another process"):
        disk.lock(tmp_path / ".lock")
    lock.release()
    disk.lock(tmp_path / ".lock").release()
