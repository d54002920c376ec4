"""A partition's log on disks that are full or fail."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from felice.config import TopicConfig
from felice.log import AppendOrigin, LogOffline
from felice.protocol.errors import ErrorCode
from unit.log.logs import (
    LAST,
    NOW,
    FailingDisk,
    append,
    code_of,
    headers_of,
    open_log,
    replicate,
    replicated,
    values_in,
)


def test_a_full_disk_fails_the_append_and_the_log_continues_once_there_is_room(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    failures: list[Exception] = []
    log.on_failure = lambda _, error: failures.append(error)
    append(log, "a")
    disk.failing = {"write"}
    with pytest.raises(LogOffline) as caught:
        append(log, "b", producer_id=1, producer_epoch=0, base_sequence=0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(caught.value.__cause__, OSError)
    assert len(failures) == 1
    assert values_in(log) == ["a"]
    disk.failing = set()
    assert append(log, "b", producer_id=1, producer_epoch=0, base_sequence=0) == 1
    log.close(clean=False)
    assert values_in(open_log(tmp_path, clean_shutdown=False)) == ["a", "b"]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_first_append_that_finds_no_room_for_its_files_leaves_none(tmp_path: Path, suffix: str) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    assert list(tmp_path.iterdir()) == []
    disk.failing, disk.suffix = {"create"}, suffix
    assert code_of(append, log, "a") is ErrorCode.KAFKA_STORAGE_ERROR
    assert (list(tmp_path.iterdir()), log.offline_reason, log.log_end_offset) == ([], None, 0)
    disk.failing = set()
    assert append(log, "a") == 0
    assert values_in(log) == ["a"]


def test_a_full_disk_after_a_gap_leaves_a_log_that_continues_once_there_is_room(tmp_path: Path) -> None:
    """The segment for a follower's batch begins at the batch, where the leader's log was compacted."""
    disk = FailingDisk()
    log = open_log(tmp_path, TopicConfig(segment_bytes=150), disk=disk)
    assert replicate(log, replicated((0, 0, ["a" * 50]))) == 1
    after_the_gap = replicated((100, 0, ["b" * 50]))
    disk.failing, disk.suffix = {"write"}, ".log"
    assert code_of(replicate, log, after_the_gap) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    log.flush()
    assert replicate(log, after_the_gap) == 101
    assert [len(value) for value in values_in(log)] == [50, 50]
    log.close(clean=False)
    reopened = open_log(tmp_path, TopicConfig(segment_bytes=150), clean_shutdown=False)
    assert len(values_in(reopened)) == 2


def test_a_partial_append_that_cannot_be_cut_off_takes_the_log_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, "a")
    disk.failing = {"write", "truncate"}
    assert code_of(append, log, "b") is ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    assert code_of(append, log, "b") is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(log.read, 0, 100, end_offset=LAST) is ErrorCode.KAFKA_STORAGE_ERROR
    assert values_in(open_log(tmp_path, clean_shutdown=False)) == ["a"]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_roll_that_fails_leaves_the_old_segment_active(tmp_path: Path, suffix: str) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, "a")
    disk.failing, disk.suffix = {"create"}, suffix
    assert code_of(log.roll) is ErrorCode.KAFKA_STORAGE_ERROR
    append(log, "b")
    append(log, "c")
    disk.failing = set()
    log.roll()
    append(log, "d")
    assert values_in(log) == ["a", "b", "c", "d"]
    log.close(clean=False)
    assert values_in(open_log(tmp_path, clean_shutdown=False)) == ["a", "b", "c", "d"]


def test_a_failed_sync_takes_the_log_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, "a")
    disk.failing, disk.errno = {"sync"}, errno.EIO
    assert code_of(log.flush) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0
    assert code_of(append, log, "b") is ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    assert code_of(log.flush) is ErrorCode.KAFKA_STORAGE_ERROR, "what the disk lost cannot be synced later"


def test_several_batches_are_appended_all_or_none(tmp_path: Path) -> None:
    for value in "ab":
        log = open_log(tmp_path, TopicConfig(index_interval_bytes=0))
        append(log, value)
        log.close()
    disk = FailingDisk()
    log = open_log(tmp_path, TopicConfig(index_interval_bytes=100), disk=disk)
    data = replicated((2, 0, ["c"]), (3, 0, ["d"]))
    options: dict[str, Any] = {"leader_epoch": 0, "now_ms": NOW, "origin": AppendOrigin.REPLICATION}
    for path in tmp_path.glob("*index"):
        log._files.forget(path)
    disk.failing, disk.suffix, disk.errno = {"open"}, "index", errno.EMFILE
    assert code_of(log.append, data, **options) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    log.append(data, **options)
    assert values_in(log) == ["a", "b", "c", "d"]


def test_a_read_without_a_free_descriptor_fails_alone(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    append(log, "a")
    log._files.forget_under(tmp_path)
    disk.failing, disk.errno = {"open"}, errno.EMFILE
    assert code_of(log.read, 0, 100, end_offset=1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(log.offset_for_timestamp, NOW, end_offset=1) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    assert values_in(log) == ["a"]


def test_a_log_file_that_another_process_truncated_takes_the_partition_offline(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(index_interval_bytes=0))
    for _ in range(3):
        append(log, "a")
    (tmp_path / f"{0:020d}.log").write_bytes(b"")
    assert code_of(log.read, 2, 100, end_offset=3) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline_reason is not None


def test_damage_found_by_a_read_takes_the_partition_offline_with_file_and_position(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    append(log, "a")
    append(log, "b")
    log.close()
    path = tmp_path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    log = open_log(tmp_path)
    second = headers_of(log)[1].position
    assert log.offset_for_timestamp(NOW, end_offset=LAST) is not None
    log.delete_records_before(1)
    with pytest.raises(LogOffline, match=rf"00\.log is corrupt at byte {second}: the CRC"):
        log.offset_for_timestamp(NOW, end_offset=LAST)
    assert log.offline_reason is not None
    assert code_of(log.read, 1, 100, end_offset=LAST) is ErrorCode.KAFKA_STORAGE_ERROR
