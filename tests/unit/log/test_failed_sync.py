"""Acknowledged records survive a failed sync and a restart, although the page cache holds pages that the disk lacks."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from felice.config import TopicConfig
from felice.log import Log, LogOffline
from felice.log.directory import LogDirectory
from felice.log.failed_sync import MARKER_NAME
from felice.testing.simulation.disk import SimDisk
from unit.log.logs import ManualClock, append, values_in

DATA = Path("/data")
KEY = ("events", 0)
LARGE = "b" * 9000  # several pages that are not written again


def opened(disk: SimDisk) -> LogDirectory:
    directory = LogDirectory(disk, ManualClock(), DATA, recovery_threads=1)
    directory.acquire(node_id=1, cluster_id="c", new_directory_id=UUID(int=3))
    directory.load(lambda topic: TopicConfig())
    return directory


def begun() -> tuple[SimDisk, LogDirectory, Log]:
    disk = SimDisk()
    disk.mkdir(DATA)
    disk.sync_dir(DATA.parent)
    directory = opened(disk)
    log = directory.create(*KEY, TopicConfig(), UUID(int=7))
    append(log, "a")
    log.flush()
    directory.checkpoints.capture_recovery_points()()
    return disk, directory, log


def after_losses(disk: SimDisk) -> list[list[str]]:
    found = []
    for seed in range(40):
        after = disk.copy()
        after.crash(Random(seed))
        found.append(values_in(opened(after).logs[KEY]))
    return found


@pytest.mark.parametrize("is_known", [True, False], ids=["offline", "killed at once"])
def test_records_flushed_after_a_failed_sync_and_a_restart_survive_a_power_failure(is_known: bool) -> None:
    disk, directory, log = begun()
    append(log, LARGE)
    disk.fail("sync", path="*.log", times=1)
    flush = log.begin_flush()
    flush.run()
    if is_known:
        with pytest.raises(LogOffline):
            log.end_flush(flush)
        assert directory.offline_reason is not None
    disk.kill()

    log = opened(disk).logs[KEY]
    assert values_in(log) == ["a", LARGE]
    assert not disk.exists(DATA / MARKER_NAME)
    append(log, "c")
    log.flush()
    assert after_losses(disk) == [["a", LARGE, "c"]] * 40


def test_a_failed_sync_of_a_truncation_is_repaired_too() -> None:
    disk, _, log = begun()
    append(log, LARGE)
    append(log, "cut")
    disk.fail("sync", path="*.log", times=1)
    with pytest.raises(LogOffline):
        log.truncate_to(2)
    disk.kill()

    log = opened(disk).logs[KEY]
    append(log, "c")
    log.flush()
    assert after_losses(disk) == [["a", LARGE, "c"]] * 40


def test_the_topic_id_of_a_partition_whose_first_flush_failed_is_repaired_too() -> None:
    disk = SimDisk()
    disk.mkdir(DATA)
    disk.sync_dir(DATA.parent)
    log = opened(disk).create(*KEY, TopicConfig(), UUID(int=7))
    append(log, "a")
    disk.fail("sync", times=1)
    with pytest.raises(LogOffline):
        log.flush()
    disk.kill()

    opened(disk).logs[KEY].flush()
    for seed in range(40):
        after = disk.copy()
        after.crash(Random(seed))
        assert opened(after).logs[KEY].topic_id == UUID(int=7)


def test_a_partition_that_was_never_written_needs_no_repair() -> None:
    disk, directory, log = begun()
    directory.create("empty", 0, TopicConfig(), UUID(int=8))
    append(log, LARGE)
    disk.fail("sync", path="*.log", times=1)
    with pytest.raises(LogOffline):
        log.flush()
    disk.kill()

    directory = opened(disk)
    assert directory.failed == {}
    assert values_in(directory.logs["empty", 0]) == []


def test_a_second_failure_keeps_the_partition_offline_and_the_marker_in_place() -> None:
    disk, _, log = begun()
    append(log, LARGE)
    disk.fail("sync", path="*.log", times=2)
    with pytest.raises(LogOffline):
        log.flush()
    disk.kill()

    assert "Input/output error" in opened(disk).failed[KEY]
    assert disk.exists(DATA / MARKER_NAME)
    disk.kill()
    assert values_in(opened(disk).logs[KEY]) == ["a", LARGE]


def test_a_failed_sync_while_a_log_is_reopened_creates_the_marker_too() -> None:
    disk, directory, log = begun()
    append(log, LARGE)
    disk.fail("sync", errno.ENOSPC, path="*.log", times=1)
    assert directory.reopen(KEY)()() is None
    disk.kill()

    log = opened(disk).logs[KEY]
    append(log, "c")
    log.flush()
    assert after_losses(disk) == [["a", LARGE, "c"]] * 40


def test_a_marker_that_cannot_be_created_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk, _, log = begun()
    append(log, LARGE)
    disk.fail("sync", path="*.log", times=1)
    disk.fail("create", path=f"*{MARKER_NAME}", times=1)
    with pytest.raises(LogOffline):
        log.flush()
    assert "restart the machine before the broker" in caplog.text
