"""Files that an interrupted cleaner left, and a disk that fails while a cleaned segment is swapped in."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from felice.log import Log
from felice.log.directory import LogDirectory
from felice.log.errors import LogOffline
from felice.log.segment import SUFFIXES
from unit.log.cleaning import COMPACT, clean, compacted, make_pass, pairs_in, put
from unit.log.logs import NOW, FailingDisk, ManualClock

LATEST = [(2, "b", "1"), (3, "a", "2"), (4, "c", "1")]


def filled(directory: Path, **options: object) -> Log:
    log = compacted(directory, **options)
    put(log, ("a", "0"), ("a", "1"))
    log.roll()
    put(log, ("b", "1"), ("a", "2"))
    log.roll()
    put(log, ("c", "1"))
    return log


def cleaned_files(directory: Path, tmp_path: Path) -> dict[str, bytes]:
    """Files, by suffix, of the segment that a pass makes from the log's two closed segments."""
    log = filled(tmp_path / "other")
    clean(log)
    stem = f"{0:020d}"
    return {s: p.read_bytes() for s in SUFFIXES if (p := tmp_path / "other" / f"{stem}{s}").exists()}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log = filled(tmp_path / "log")
    log.close()
    return tmp_path / "log"


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_whole_swap_is_completed(directory: Path, tmp_path: Path) -> None:
    for suffix, data in cleaned_files(directory, tmp_path).items():
        (directory / f"{0:020d}{suffix}.swap").write_bytes(data)
    log = compacted(directory, clean_shutdown=False)
    assert pairs_in(log) == LATEST
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    assert not [name for name in names(directory) if name.endswith(".swap")]


def test_a_swap_that_has_not_begun_is_dropped(directory: Path, tmp_path: Path) -> None:
    for number, (suffix, data) in enumerate(cleaned_files(directory, tmp_path).items()):
        ending = ".swap" if number else ".cleaned"
        (directory / f"{0:020d}{suffix}{ending}").write_bytes(data)
    log = compacted(directory, clean_shutdown=False)
    assert len(pairs_in(log)) == 5
    assert not [name for name in names(directory) if name.endswith((".swap", ".cleaned"))]


def test_indexes_without_a_log_swap_file_are_used_or_rebuilt(directory: Path, tmp_path: Path) -> None:
    """Kafka, which renames the log first, leaves them so."""
    for suffix, data in cleaned_files(directory, tmp_path).items():
        if suffix == ".log":
            (directory / f"{0:020d}.log").write_bytes(data)
            for path in directory.glob(f"{2:020d}.*"):
                path.unlink()
        else:
            (directory / f"{0:020d}{suffix}.swap").write_bytes(data)
    assert pairs_in(compacted(directory, clean_shutdown=False)) == LATEST


@pytest.mark.parametrize("operation", ["write", "sync", "create"])
def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, operation: str) -> None:
    disk = FailingDisk()
    log = filled(tmp_path, disk=disk)
    work = make_pass(log)
    work.index()
    disk.suffix = ".cleaned"
    disk.failing.add(operation)
    with pytest.raises(OSError, match="no"):
        work.clean(work.groups()[0])
    assert not [name for name in names(tmp_path) if name.endswith(".cleaned")]
    disk.failing.clear()
    assert log.offline_reason is None
    clean(log)
    assert pairs_in(log) == LATEST


def test_a_disk_that_fails_in_the_swap_takes_the_log_offline_and_the_next_start_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk()
    log = filled(tmp_path, disk=disk)
    work = make_pass(log)
    work.index()
    group = work.groups()[0]
    segment = work.clean(group)
    assert segment is not None
    rename = disk.rename

    def fail_late(source: Path, target: Path) -> None:
        if target.name.endswith(".deleted"):
            raise OSError(errno.EIO, "the disk says no")
        rename(source, target)

    monkeypatch.setattr(disk, "rename", fail_late)
    with pytest.raises(LogOffline):
        work.swap_in(group, segment)
    assert log.offline_reason is not None
    assert pairs_in(compacted(tmp_path, clean_shutdown=False)) == LATEST


def directory_of(path: Path) -> LogDirectory:
    found = LogDirectory(FailingDisk(), ManualClock(), path)
    found.load(lambda _: COMPACT)
    return found


def test_the_checkpoint_follows_truncations_and_deletions(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    directory = directory_of(path)
    for topic in ("t", "u"):
        log = directory.create(topic, 0, COMPACT, None)
        for _ in range(5):
            put(log, ("a", "1"))
        directory.checkpoints.clean_offsets[topic, 0] = 4
    directory.checkpoints.capture_clean_offsets()()
    directory.logs["t", 0].truncate_to(2)
    checkpoint = path / "cleaner-offset-checkpoint"
    assert checkpoint.read_text() == "0\n2\nt 0 2\nu 0 4\n"
    directory.delete("u", 0)
    directory.create("u", 0, COMPACT, None)
    assert checkpoint.read_text() == "0\n1\nt 0 2\n"
    assert directory_of(path).checkpoints.clean_offsets == {("t", 0): 2}


def test_a_checkpoint_above_the_end_that_a_recovery_left_is_lowered(tmp_path: Path) -> None:
    path = tmp_path / "data"
    (path / "t-0").mkdir(parents=True)
    (path / "cleaner-offset-checkpoint").write_text("0\n2\ngone 0 7\nt 0 9\n")
    log = compacted(path / "t-0")
    put(log, ("a", "1"), at=NOW)
    log.close()
    assert directory_of(path).checkpoints.clean_offsets == {("t", 0): 1}
    shutil.rmtree(path)
