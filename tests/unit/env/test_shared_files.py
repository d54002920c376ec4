"""Copies and second names of files, and locks that change nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from felice.env import SystemDisk
from felice.env.disk import DiskLocked
from felice.env.shared_files import copy, hold_shared, link


def failing(number: int) -> Callable[..., int]:
    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [None, errno.EXDEV, errno.ENOSYS])
def test_a_copy_has_content_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(os.urandom(100_000))
    os.utime(source, ns=(5, 7_000_000_123))
    if number is not None:
        monkeypatch.setattr(os, "copy_file_range", failing(number))
    copy(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert (target.stat().st_mtime_ns, target.stat().st_nlink) == (7_000_000_123, 1)


def test_a_copy_replaces_nothing_and_reports_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        copy(tmp_path / "a", tmp_path / "b")
    monkeypatch.setattr(os, "copy_file_range", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        copy(tmp_path / "a", tmp_path / "c")
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    with pytest.raises(OSError, match="another size than the file"):
        copy(tmp_path / "a", tmp_path / "d")


def test_a_link_is_refused_quietly_only_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").touch()
    assert link(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").stat().st_nlink == 2
    with pytest.raises(FileExistsError):
        link(tmp_path / "a", tmp_path / "b")
    monkeypatch.setattr(os, "link", failing(errno.EXDEV))
    assert not link(tmp_path / "a", tmp_path / "c")


def test_a_lock_is_shared_with_readers_and_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert hold_shared(path) is None
    assert not path.exists()
    path.touch()
    first, second = hold_shared(path), hold_shared(path)
    assert first is not None
    assert second is not None
    with pytest.raises(DiskLocked):
        SystemDisk().lock(path)
    first.release()
    second.release()
    lock = SystemDisk().lock(path)
    with pytest.raises(DiskLocked):
        hold_shared(path)
    lock.release()
