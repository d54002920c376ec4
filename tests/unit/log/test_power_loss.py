"""Regressions: power failures and kills at moments that once left a wrong log."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from felice.config import TopicConfig
from felice.log import AppendOrigin, Log
from felice.log.directory import LogDirectory
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.replay import moments
from unit.log.logs import NOW, ManualClock, append, batch, marker, values_in

DATA = Path("/data")
KEY = ("events", 0)
TOPIC_ID = UUID(int=7)


def opened(disk: SimDisk, config: TopicConfig | None = None) -> LogDirectory:
    directory = LogDirectory(disk, ManualClock(), DATA, recovery_threads=1)
    directory.acquire(node_id=1, cluster_id="c", new_directory_id=UUID(int=3))
    directory.load(lambda topic: config or TopicConfig())
    assert directory.failed == {}
    return directory


def begun(config: TopicConfig | None = None) -> tuple[SimDisk, LogDirectory, Log]:
    disk = SimDisk()
    disk.mkdir(DATA)
    disk.sync_dir(DATA.parent)
    directory = opened(disk)
    log = directory.create(*KEY, config or TopicConfig(), TOPIC_ID)
    return disk, directory, log


def test_partition_metadata_of_zeros_does_not_keep_the_partition_offline() -> None:
    disk, _, log = begun()
    append(log, "a")
    for directory in (DATA, DATA / "events-0"):
        disk.sync_dir(directory)
    path = DATA / "events-0" / "partition.metadata"
    contents = set()
    for seed in range(60):
        after = disk.copy()
        after.crash(Random(seed))
        contents.add(after.read_bytes(path).strip(b"\0"))
        opened(after)
    assert contents == {b"", disk.read_bytes(path)}


@pytest.mark.parametrize("had", ["a flush", "a clean stop"])
def test_the_first_batch_of_a_log_that_was_on_disk_without_files_survives_its_flush(had: str) -> None:
    disk, directory, log = begun()
    assert disk.listdir(DATA / "events-0") == ["partition.metadata"]
    if had == "a flush":
        log.flush()
    else:
        directory.close()
        directory = opened(disk)
        log = directory.logs[KEY]
    append(log, "a", leader_epoch=-1)  # without an epoch, no epoch file causes a sync of the directory
    log.flush()
    for seed in range(60):
        after = disk.copy()
        after.crash(Random(seed))
        found = opened(after).logs[KEY]
        assert (found.topic_id, values_in(found)) == (TOPIC_ID, ["a"])


def test_an_empty_log_is_on_disk_after_a_clean_stop() -> None:
    disk, directory, log = begun()
    log.epochs.assign(3, 0)
    directory.close()
    for seed in range(60):
        after = disk.copy()
        after.crash(Random(seed))
        again = opened(after)
        assert (again.was_clean, again.logs[KEY].topic_id) == (True, TOPIC_ID)


def test_a_log_opens_after_a_kill_during_a_truncation() -> None:
    disk, directory, log = begun()
    for value in "abc":
        append(log, value)
        log.roll()
    append(log, "d")
    append(log, "e")
    log.flush()
    directory.checkpoints.capture_recovery_points()()
    start, disk.journal = disk.copy(), []
    log.truncate_to(1)
    for moment in moments(start, disk.journal):
        found = values_in(opened(moment.after_kill()).logs[KEY])
        assert found[:1] == ["a"] and found == list("abcde")[: len(found)]


def test_batches_that_a_recovery_cut_off_do_not_reappear_under_later_ones() -> None:
    disk, _, log = begun()
    append(log, "a")
    log.roll()
    append(log, "b")
    for directory in (DATA, DATA / "events-0"):
        disk.sync_dir(directory)
    log.segments[1].log_file().sync()
    cuts = 0
    for seed in range(20):
        first = disk.copy()
        first.crash(Random(seed))
        log = opened(first).logs[KEY]
        if values_in(log):
            continue
        cuts += 1
        append(log, "A", leader_epoch=1)
        log.roll()
        append(log, "B", leader_epoch=1)
        for again in range(40):
            after = first.copy()
            after.crash(Random(again))
            assert values_in(opened(after).logs[KEY]) in ([], ["A"], ["A", "B"])
    assert cuts


def test_truncated_batches_do_not_reappear_under_later_ones() -> None:
    disk, _, log = begun()
    append(log, "a")
    append(log, "b")
    append(log, "c")
    log.flush()
    log.truncate_to(1)
    log.roll()
    append(log, "B", leader_epoch=1)
    for seed in range(60):
        after = disk.copy()
        after.crash(Random(seed))
        assert values_in(opened(after).logs[KEY]) in (["a"], ["a", "B"])


def test_a_log_whose_first_segment_was_lost_does_not_begin_with_its_second() -> None:
    disk, _, log = begun()
    append(log, "a")
    log.roll()
    append(log, "b")
    disk.sync_dir(DATA)
    disk.sync_dir(DATA / "events-0")
    log.segments[-1].log_file().sync()
    seen = set()
    for seed in range(60):
        after = disk.copy()
        after.crash(Random(seed))
        found = opened(after).logs[KEY]
        assert found.log_start_offset == 0
        seen.add(tuple(values_in(found)))
    assert seen == {(), ("a", "b")}


def test_an_aborted_transaction_of_a_segment_that_ends_at_the_recovery_point_stays_aborted() -> None:
    disk, directory, log = begun()
    data = batch(["x"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW)
    log.append(marker(1, commit=False), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    log.flush()
    directory.checkpoints.capture_recovery_points()()
    log.roll()
    append(log, "next")
    expected = log.aborted_transactions(0, 2)
    assert len(expected) == 1
    for seed in range(60):
        after = disk.copy()
        after.crash(Random(seed))
        assert opened(after).logs[KEY].aborted_transactions(0, 2) == expected


@pytest.mark.parametrize("checkpointed", [False, True])
def test_segments_that_reappear_after_retention_are_not_reported_as_damage(checkpointed: bool) -> None:
    config = TopicConfig(segment_bytes=100, retention_bytes=100)
    disk, directory, log = begun(config)
    for value in "abcd":
        append(log, value)
    log.apply_retention(NOW, log.log_end_offset)
    directory.checkpoints.capture_recovery_points()()
    if checkpointed:
        directory.checkpoints.capture_log_starts()()
    assert log.log_start_offset > 0
    for seed in range(60):
        after = disk.copy()
        after.crash(Random(seed))
        found = opened(after, config).logs.get(KEY)
        if found is not None and checkpointed:
            assert found.log_start_offset == log.log_start_offset


def test_a_log_start_beyond_the_end_after_a_clean_stop_is_damage_and_removes_nothing() -> None:
    disk, directory, log = begun()
    append(log, "a")
    append(log, "b")
    log.delete_records_before(1)
    directory.close({})
    checkpoint = DATA / "log-start-offset-checkpoint"
    content = disk.read_bytes(checkpoint)
    disk.write_atomic(checkpoint, content.replace(b" 1\n", b" 5\n"))
    again = LogDirectory(disk, ManualClock(), DATA, recovery_threads=1)
    again.load(lambda topic: TopicConfig())
    assert "its checkpoint lets it begin at 5" in again.failed[KEY]
    disk.write_atomic(checkpoint, content)
    assert values_in(opened(disk).logs[KEY], 1) == ["b"]


@pytest.mark.parametrize("then", ["is killed", "stops", "writes"])
def test_a_transaction_index_rebuilt_below_the_recovery_point_is_on_disk_again(then: str) -> None:
    disk, directory, log = begun()
    data = batch(["x"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW)
    log.append(marker(1, commit=False), leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    for value in "ab":
        log.roll()
        append(log, value)
    expected = log.aborted_transactions(0, 2)
    directory.close()
    damaged = disk.open(DATA / "events-0" / f"{0:020d}.txnindex")
    damaged.pwrite(b"\xff" * 8, 2)
    damaged.sync()

    start, disk.journal = disk.copy(), []
    directory = opened(disk)
    log = directory.logs[KEY]
    assert log.aborted_transactions(0, 2) == expected
    if then == "stops":
        directory.close()
    elif then == "writes":
        append(log, "c")
        log.flush()
        directory.checkpoints.capture_recovery_points()()
    for moment in moments(start, disk.journal) if then == "is killed" else ():
        for seed in range(10):
            after = moment.after_power_failure(Random(seed))
            assert opened(after).logs[KEY].aborted_transactions(0, 2) == expected
    for seed in range(60):
        after = disk.copy()
        after.crash(Random(seed))
        assert opened(after).logs[KEY].aborted_transactions(0, 2) == expected
