"""The checkpoints of a log directory: no offset outlives the records for which it was written."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from felice.config import TopicConfig
from felice.log import LogOffline
from felice.log.directory import LogDirectory
from felice.testing.simulation.disk import SimDisk
from unit.log.directories import TOPIC_ID, create, opened
from unit.log.logs import append, values_in


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_partition_does_not_inherit_the_checkpoints_of_a_deleted_one_with_its_name(
    tmp_path: Path, restarts: bool
) -> None:
    directory = opened(tmp_path)
    log = create(directory)
    append(log, "a", "b", "c")
    log.flush()
    log.delete_records_before(2)
    directory.checkpoints.capture_recovery_points()()
    directory.checkpoints.capture_log_starts()()
    directory.delete("events", 0)
    if restarts:
        directory.abandon()
        directory = opened(tmp_path)
    append(create(directory), "x")
    directory.abandon()
    again = opened(tmp_path).logs["events", 0]
    assert (again.log_start_offset, values_in(again)) == (0, ["x"])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_partition_does_not_inherit_the_high_watermark_of_a_deleted_one(
    tmp_path: Path, restarts: bool
) -> None:
    directory = opened(tmp_path)
    append(create(directory), "a", "b", "c")
    append(create(directory, "others"), "d")
    directory.checkpoints.capture_high_watermarks({("events", 0): 3, ("others", 0): 1})()
    directory.delete("events", 0)
    if restarts:
        directory.abandon()
        directory = opened(tmp_path)
    append(create(directory), "not", "committed")
    directory.abandon()
    assert opened(tmp_path).checkpoints.high_watermarks == {("others", 0): 1}


def checkpointed(directory: LogDirectory) -> Any:
    """A log of four records with high watermark and clean offset 4, on disk."""
    log = create(directory)
    append(log, "a")
    append(log, "b")
    log.flush()
    append(log, "c", "d")
    directory.checkpoints.capture_high_watermarks({("events", 0): 4})()
    directory.checkpoints.clean_offsets["events", 0] = 4
    directory.checkpoints.capture_clean_offsets()()
    return log


def shorten(disk: SimDisk) -> None:
    """Takes a byte of the last batch, which a recovery then removes."""
    directory = Path("/data/events-0")
    (segment,) = [name for name in disk.listdir(directory) if name.endswith(".log")]
    disk.write_atomic(directory / segment, bytes(disk.read_bytes(directory / segment))[:-1])


def marks(directory: LogDirectory) -> tuple[int, int]:
    checkpoints = directory.checkpoints
    return checkpoints.high_watermarks["events", 0], checkpoints.clean_offsets["events", 0]


@pytest.mark.parametrize("is_emptied", [False, True])
def test_records_in_place_of_truncated_ones_are_neither_committed_nor_clean_after_a_crash(
    tmp_path: Path, is_emptied: bool
) -> None:
    directory = opened(tmp_path)
    log = checkpointed(directory)
    if is_emptied:
        log.truncate_fully_and_start_at(1)
    else:
        log.truncate_to(1)
    append(log, "B", "C", "D", "E")
    directory.abandon()
    assert marks(opened(tmp_path)) == (1, 1)


def test_records_in_place_of_those_that_a_recovery_removed_are_neither_committed_nor_clean(
    tmp_path: Path,
) -> None:
    directory = opened(tmp_path)
    checkpointed(directory)
    directory.abandon()
    (segment,) = (tmp_path / "events-0").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-1])
    directory = opened(tmp_path)
    append(directory.logs["events", 0], "C", "D")
    directory.abandon()
    assert marks(opened(tmp_path)) == (2, 2)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("fails", ["replication-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_a_log_whose_checkpoints_cannot_be_lowered_at_the_start_waits_for_room(fails: str, code: int) -> None:
    disk = SimDisk()
    directory = opened(Path("/data"), disk=disk)
    checkpointed(directory)
    append(create(directory, "others"), "a")
    directory.abandon()
    shorten(disk)
    fault = disk.fail("write", code, path=f"*{fails}*")
    directory = opened(Path("/data"), disk=disk)
    assert fault.fired and directory.offline_reason is None
    assert {key: log.lacks_room for key, log in directory.logs.items()} == {
        ("events", 0): True,
        ("others", 0): False,
    }
    append(directory.logs["others", 0], "b")
    with pytest.raises(LogOffline):
        append(directory.logs["events", 0], "C", "D")
    assert directory.reopen(("events", 0))()() is None
    disk.heal()
    again = directory.reopen(("events", 0))()()
    assert again is not None
    append(again, "C", "D")
    directory.abandon()
    assert marks(opened(Path("/data"), disk=disk)) == (2, 2)


def test_a_checkpoint_that_cannot_be_lowered_on_a_broken_disk_is_an_error() -> None:
    disk = SimDisk()
    directory = opened(Path("/data"), disk=disk)
    checkpointed(directory)
    directory.abandon()
    shorten(disk)
    disk.fail("write", path="*checkpoint*")
    with pytest.raises(OSError, match="error"):
        opened(Path("/data"), disk=disk)


def test_a_log_that_is_reopened_shorter_takes_its_checkpoints_along() -> None:
    disk = SimDisk()
    directory = opened(Path("/data"), disk=disk)
    checkpointed(directory)
    look = directory.reopen(("events", 0))
    shorten(disk)
    take_back = look()
    fault = disk.fail("write", errno.ENOSPC, path="*checkpoint*")
    assert take_back() is None and fault.fired
    disk.heal(fault)
    again = directory.reopen(("events", 0))()()
    assert again is not None
    append(again, "C", "D")
    directory.abandon()
    assert marks(opened(Path("/data"), disk=disk)) == (2, 2)


def test_a_checkpoint_keeps_the_high_watermarks_of_partitions_without_a_role(tmp_path: Path) -> None:
    """Such as those of a broker that stops again before it has seen the metadata."""
    directory = opened(tmp_path)
    append(create(directory), "a")
    directory.close({("events", 0): 1})
    opened(tmp_path).close({})
    assert opened(tmp_path).checkpoints.high_watermarks == {("events", 0): 1}


def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline_before_logs_are_made() -> None:
    disk = SimDisk()
    directory = opened(Path("/data"), disk=disk)
    create(directory)
    directory.delete("events", 0)
    disk.fail("sync", path="*checkpoint*")
    directory.create_many([(("events", 0), TopicConfig(), TOPIC_ID)])()()
    assert (directory.offline_reason is not None, directory.logs) == (True, {})


def test_the_names_of_deleted_partitions_are_not_kept_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("felice.log.directory_checkpoints.MOST_FORGOTTEN", 5)
    directory = opened(tmp_path)
    create(directory, "stays")
    for number in range(12):
        create(directory, "goes", number)
        directory.checkpoints.capture_recovery_points()()
        directory.delete("goes", number)
    assert len(directory.checkpoints._forgotten) <= 5
    directory.checkpoints.capture_recovery_points()()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nstays 0 0\n"
    directory.close()
