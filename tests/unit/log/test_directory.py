"""A log directory: its owner, its partitions and their checkpoints, and its failures."""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from felice.config import TopicConfig
from felice.env import SystemDisk
from felice.log import CorruptLog, LogDirectoryError, LogOffline
from felice.log.directory import LogDirectory
from felice.testing.simulation.disk import SimDisk
from unit.log.directories import DIRECTORY_ID, TOPIC_ID, create, opened
from unit.log.logs import NOW, FailingDisk, ManualClock, append, values_in


def text(path: Path) -> str:
    return path.read_text()


def test_a_new_directory_is_claimed_by_this_broker(tmp_path: Path) -> None:
    opened(tmp_path / "new").close()
    lines = set(text(tmp_path / "new" / "meta.properties").split())
    assert lines == {"version=1", "node.id=1", "cluster.id=cluster", "directory.id=_-7dzLuqmYh3ZlVEMyIRAA"}
    assert opened(tmp_path / "new").directory_id == DIRECTORY_ID


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"node_id": 2}, "belongs to node 1"), ({"cluster_id": "x"}, "belongs to cluster cluster")],
)
def test_another_brokers_or_clusters_directory_is_refused(tmp_path: Path, fields: Any, reason: str) -> None:
    opened(tmp_path).close()
    with pytest.raises(LogDirectoryError, match=reason):
        opened(tmp_path, **fields)
    opened(tmp_path).close()


def test_a_zookeeper_era_directory_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=cluster\n")
    assert opened(tmp_path).directory_id is None


def test_meta_properties_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=9\n")
    with pytest.raises(LogDirectoryError, match=r"damaged meta\.properties \(version 9 is not 0 or 1\)"):
        opened(tmp_path)


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(LogDirectoryError, match="in use by another broker"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_a_path_that_is_no_directory_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogDirectoryError, match="cannot be used"):
        opened(tmp_path / "file")


def test_partitions_come_back_after_a_clean_stop(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = create(directory, "my-topic.x", 12)
    append(log, "a")
    append(log, "b")
    log.delete_records_before(1)
    directory.close({("my-topic.x", 12): 2})
    assert text(tmp_path / "recovery-point-offset-checkpoint") == "0\n1\nmy-topic.x 12 2\n"
    assert text(tmp_path / "replication-offset-checkpoint") == "0\n1\nmy-topic.x 12 2\n"
    assert text(tmp_path / "log-start-offset-checkpoint") == "0\n1\nmy-topic.x 12 1\n"
    assert (
        text(tmp_path / "my-topic.x-12" / "partition.metadata")
        == "version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w"
    )
    directory = opened(tmp_path)
    log = directory.logs["my-topic.x", 12]
    assert (directory.was_clean, directory.checkpoints.high_watermarks) == (True, {("my-topic.x", 12): 2})
    assert (log.topic_id, log.log_start_offset, values_in(log)) == (TOPIC_ID, 1, ["b"])


class SyncingDisk(SystemDisk):
    """Records which directories are synced."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync_dir(self, path: Path) -> None:
        super().sync_dir(path)
        self.synced.append(path.name)


def test_a_clean_stop_brings_each_directory_to_disk_once(tmp_path: Path) -> None:
    """The number of new files and of new partitions does not matter."""
    disk = SyncingDisk()
    directory = opened(tmp_path, disk=disk)
    checkpoints = 3
    for partition in range(5):
        append(create(directory, partition=partition), "a")
    disk.synced.clear()
    directory.close()
    # The partitions first, then the directory with their names, then the checkpoints, then the marker.
    assert sorted(disk.synced[:5]) == [f"events-{partition}" for partition in range(5)]
    assert disk.synced[5:] == [tmp_path.name] * (1 + checkpoints + 1)


def test_a_new_partition_is_named_on_disk_with_its_first_flush_only(tmp_path: Path) -> None:
    disk = SyncingDisk()
    directory = opened(tmp_path, disk=disk)
    log = create(directory)
    append(log, "a")
    disk.synced.clear()
    log.flush()
    assert disk.synced == ["events-0", tmp_path.name]
    log.roll()
    append(log, "b")
    disk.synced.clear()
    log.flush()
    assert disk.synced == ["events-0"]
    directory.close()


def test_a_crash_leaves_no_clean_marker(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(create(directory), "a")
    directory.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    directory = opened(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    directory.abandon()
    directory = opened(tmp_path)
    assert not directory.was_clean
    assert values_in(directory.logs["events", 0]) == ["a"]


def test_a_damaged_partition_is_offline_alone_and_keeps_its_recovery_point(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for topic in ("bad", "good"):
        log = create(directory, topic)
        append(log, "a")
        log.flush()
    directory.checkpoints.capture_recovery_points()()
    directory.abandon()
    path = tmp_path / "bad-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    for _ in range(2):
        directory = opened(tmp_path)
        assert list(directory.logs) == [("good", 0)]
        assert str(path) in directory.failed["bad", 0]
        directory.close()
        assert "bad 0 1" in text(tmp_path / "recovery-point-offset-checkpoint")
        assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_deleted_partition_frees_its_name_and_is_removed_after_the_delay(tmp_path: Path) -> None:
    clock = ManualClock()
    directory = opened(tmp_path, clock=clock)
    log = create(directory, file_delete_delay_ms=1000)
    append(log, "a")
    log.flush()
    directory.checkpoints.capture_recovery_points()()
    directory.delete("events", 0)
    again = create(directory)
    assert "events" not in text(tmp_path / "recovery-point-offset-checkpoint")
    assert append(again, "b") == 0
    [set_aside] = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
    assert directory.collect_deleted(NOW + 999) == []
    directory.remove_paths(directory.collect_deleted(NOW + 1000))
    assert not set_aside.exists()


def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    create(directory)
    directory.delete("events", 0)
    directory.abandon()
    directory = opened(tmp_path)
    assert directory.logs == {}
    directory.remove_paths(directory.collect_deleted(NOW))
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_stray_partition_with_records_is_kept_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = opened(tmp_path)
    append(create(directory), "a")
    directory.set_aside_as_stray("events", 0, "the test wants it")
    assert directory.logs == {}
    (stray,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert stray.name.startswith("events-0.") and stray.name.endswith("-stray")
    (record,) = [found for found in caplog.records if found.levelno == logging.ERROR]
    fields = vars(record)
    assert (fields["partition"], fields["path"]) == ("events-0", str(stray))
    assert (fields["log_start_offset"], fields["log_end_offset"]) == (0, 1)
    assert fields["reason"] == "the test wants it"
    assert directory.strays.present() == [stray]
    directory.close()
    again = opened(tmp_path)
    assert (again.logs, again.strays.present()) == ({}, [stray])
    assert str(stray) in [vars(found).get("path") for found in caplog.records if found.levelname == "WARNING"]
    shutil.rmtree(stray)
    assert again.strays.present() == []
    again.close()


def test_an_empty_stray_is_not_logged_as_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = opened(tmp_path)
    create(directory)
    directory.set_aside_as_stray("events", 0, "the test wants it")
    assert directory.strays.present() == []
    directory.close()
    assert opened(tmp_path).strays.present() == []
    assert not [found for found in caplog.records if found.levelno > logging.INFO]


def test_a_stray_that_could_not_be_loaded_may_have_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = opened(tmp_path)
    create(directory)
    directory.close()
    (tmp_path / "events-0" / "partition.metadata").write_text("nonsense")
    again = opened(tmp_path)
    assert ("events", 0) in again.failed
    again.set_aside_as_stray("events", 0, "the test wants it")
    assert len(again.strays.present()) == 1
    assert "unknown" in [vars(found).get("log_end_offset") for found in caplog.records]
    again.close()


def test_a_name_of_the_longest_topic_can_still_be_set_aside(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    create(directory, "t" * 249)
    directory.delete("t" * 249, 0)
    assert [len(path.name) for path in tmp_path.iterdir() if path.is_dir()] == [255]


_HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "name",
    [
        *("events-00", "events-01", "events-+0", "events-\u0663", "events-2147483648", "events-99999999999"),
        *("events", "events-", "-0", "events-x", "events-0 ", "events -0", "my events-0", "..-0", ".-0"),
        *(
            f"{'e' * 250}-0",
            ".snapshots",
            "events-0.bak",
            f"events-0.{_HEX}",
            f"events-0.{_HEX.upper()}-delete",
        ),
        *(f"events-00.{_HEX}-delete", f"backup.{_HEX}-delete", f"events-00.{_HEX}-stray"),
        *(f"events.{_HEX}-future", f"events-00.{_HEX}-future", f".{_HEX}-future"),
    ],
)
def test_a_directory_that_is_no_partitions_is_named_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    directory = opened(tmp_path)
    append(create(directory), "a")
    directory.close()
    other = tmp_path / name
    other.mkdir()
    (other / "00000000000000000000.log").write_bytes(b"of somebody else")
    again = opened(tmp_path)
    assert (list(again.logs), again.failed, again.unfinished_moves) == ([("events", 0)], {}, [])
    assert values_in(again.logs["events", 0]) == ["a"]
    assert [vars(found)["path"] for found in caplog.records if found.levelname == "WARNING"] == [str(other)]
    append(again.logs["events", 0], "b")
    again.remove_paths(again.collect_deleted(NOW + 10**9))
    assert (again.strays.present(), [path.name for path in other.iterdir()]) == (
        [],
        ["00000000000000000000.log"],
    )
    again.close()


def paths_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.parametrize("content", ["a broker", "a broker without topics", "directories"])
def test_a_directory_with_a_partitions_name_that_holds_no_log_is_named_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    """As `felice start` in the directory of `felice start --brokers 3`, which holds `broker-1` to `broker-3`."""
    other = tmp_path / "broker-1"
    if content == "directories":
        (other / "archive" / "2024").mkdir(parents=True)
        (other / "readme").write_text("of somebody")
    else:
        inner = opened(other)
        if content == "a broker":
            append(create(inner), "a")
        inner.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nbroker 1 0\n")
    before = paths_below(other)
    directory = opened(tmp_path)
    append(create(directory), "b")
    assert (list(directory.logs), directory.failed) == ([("events", 0)], {})
    assert [vars(found)["path"] for found in caplog.records if found.levelname == "WARNING"] == [str(other)]
    for make in (directory.create, directory.create_future):
        with pytest.raises(LogDirectoryError, match="has a directory broker-1 already"):
            make("broker", 1, TopicConfig(), TOPIC_ID)
    assert directory.offline_reason is None
    directory.remove_paths(directory.collect_deleted(NOW + 10**9))
    directory.close()
    assert paths_below(other) == before


@pytest.mark.parametrize(
    "files", [[], ["partition.metadata"], ["00000000000000000000.log"], ["leader-epoch-checkpoint", "notes/"]]
)
def test_a_partitions_directory_may_lack_files_and_hold_others(tmp_path: Path, files: list[str]) -> None:
    (tmp_path / "events-0").mkdir()
    for name in files:
        path = tmp_path / "events-0" / name
        path.mkdir() if name.endswith("/") else path.touch()
    directory = opened(tmp_path)
    assert list(directory.logs) == [("events", 0)]
    directory.close()


@pytest.mark.parametrize("name", ["metadata", "lost+found", "remote-log-index-cache"])
def test_directories_that_are_often_beside_partitions_are_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (tmp_path / name).mkdir()
    opened(tmp_path).close()
    assert not [found for found in caplog.records if found.levelno > logging.INFO]


def test_a_partition_is_not_created_over_another(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    create(directory)
    with pytest.raises(LogDirectoryError, match="has a directory events-0 already"):
        create(directory)


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("recovery-point-offset-checkpoint", "every log is then scanned"),
        ("log-start-offset-checkpoint", "served again"),
        ("replication-offset-checkpoint", "no record is lost"),
    ],
)
@pytest.mark.parametrize("content", ["0\n2\nx 0 1\n", "garbage\n", "", "0\n1\nx 0\n", "0\n1\nx 0 a\n"])
def test_a_damaged_checkpoint_stops_the_start_and_the_error_says_what_deleting_it_costs(
    tmp_path: Path, name: str, cost: str, content: str
) -> None:
    directory = opened(tmp_path)
    append(create(directory), "a", "b")
    directory.close()
    (tmp_path / name).write_text(content)
    with pytest.raises(LogDirectoryError, match=f"damaged {name} .*delete it and start again: .*{cost}"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"],
)
def test_a_checkpoint_may_be_deleted_without_losing_a_record(tmp_path: Path, name: str) -> None:
    directory = opened(tmp_path)
    append(create(directory), "a", "b")
    directory.close({("events", 0): 2})
    (tmp_path / name).write_text("garbage")
    refused = opened(tmp_path, load=False)
    with pytest.raises(LogDirectoryError):
        refused.load(lambda _: TopicConfig())
    refused.abandon()
    (tmp_path / name).unlink()
    again = opened(tmp_path)
    assert values_in(again.logs["events", 0]) == ["a", "b"]
    again.close()


def test_a_damaged_cleaner_checkpoint_only_costs_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("garbage\n")
    directory = opened(tmp_path)
    assert directory.checkpoints.clean_offsets == {}
    assert "cleaned from their starts again" in caplog.text
    directory.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [("garbage\n", "version is missing"), ("version=1\nnode.id=x\n", "invalid literal")],
)
def test_the_error_for_damaged_meta_properties_says_how_to_write_the_file_again(
    tmp_path: Path, content: str, reason: str
) -> None:
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(LogDirectoryError, match=f"{reason}.*write it again with the lines version=1"):
        opened(tmp_path)


def test_a_late_write_of_an_older_capture_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = create(directory)
    older = directory.checkpoints.capture_recovery_points()
    append(log, "a")
    log.flush()
    newer = directory.checkpoints.capture_recovery_points()
    newer()
    older()
    assert text(tmp_path / "recovery-point-offset-checkpoint") == "0\n1\nevents 0 1\n"


def test_an_io_error_takes_the_whole_directory_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    directory = opened(tmp_path, disk=disk)
    first, second = create(directory, partition=0), create(directory, partition=1)
    reported: list[LogDirectory] = []
    directory.on_offline = reported.append
    disk.failing, disk.errno = {"write"}, errno.EIO
    with pytest.raises(LogOffline):
        append(first, "a")
    disk.failing = set()
    with pytest.raises(LogOffline, match="offline"):
        append(second, "b")
    assert reported == [directory]
    with pytest.raises(LogDirectoryError, match="is offline"):
        create(directory, "other")
    directory.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OSError(errno.EIO, "broken"), "a log directory is offline"),
        (OSError(errno.ENOSPC, "no room"), "a partition is offline"),
        (CorruptLog(Path("x.log"), 7, "damaged"), "a partition is offline"),
    ],
)
def test_a_failure_is_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: Exception, message: str
) -> None:
    directory = opened(tmp_path)
    log = create(directory)
    log._fail(fault)
    log._fail(fault)
    (line,) = [found for found in caplog.records if found.levelno == logging.ERROR]
    assert line.message.startswith(message) and line.__dict__["reason"] == str(fault)


def test_a_full_disk_leaves_the_directory_online(tmp_path: Path) -> None:
    disk = FailingDisk()
    directory = opened(tmp_path, disk=disk)
    first, second = create(directory, partition=0), create(directory, partition=1)
    append(second, "b")
    disk.failing = {"write"}
    with pytest.raises(LogOffline, match="the disk says no"):
        append(first, "a")
    assert values_in(second) == ["b"]
    disk.failing = set()
    assert append(first, "a") == 0
    directory.close()
    assert opened(tmp_path).was_clean


def test_many_partitions_keep_few_files_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    directory = LogDirectory(SystemDisk(), ManualClock(), tmp_path, max_open_files=10)
    directory.acquire(node_id=1, cluster_id="cluster", new_directory_id=DIRECTORY_ID)
    directory.load(lambda topic: TopicConfig())
    logs = [create(directory, partition=number) for number in range(30)]
    for round_ in range(3):
        assert [append(log, "a") for log in logs] == [round_] * 30
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 15
    directory.close()
    again = opened(tmp_path)
    assert [len(values_in(log)) for log in again.logs.values()] == [3] * 30


def test_a_partition_that_found_no_room_can_be_created_once_there_is_room(tmp_path: Path) -> None:
    disk = FailingDisk()
    directory = opened(tmp_path, disk=disk)
    disk.failing = {"write"}
    with pytest.raises(LogDirectoryError, match="cannot take a new partition"):
        create(directory)
    disk.failing = set()
    assert append(create(directory), "a") == 0


def test_a_partition_created_again_after_its_directory_was_removed_begins_at_zero(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = create(directory)
    append(log, "a", "b")
    log.delete_records_before(1)
    directory.close()
    shutil.rmtree(tmp_path / "events-0")
    again = create(opened(tmp_path))
    assert (again.log_start_offset, again.recovery_point) == (0, 0)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_running_out_of_descriptors_leaves_the_directory_online(tmp_path: Path, number: int) -> None:
    disk = FailingDisk()
    directory = opened(tmp_path, disk=disk)
    log = create(directory, segment_bytes=100)
    append(log, "a")
    disk.failing, disk.errno = {"create"}, number
    with pytest.raises(LogOffline):
        append(log, "b")
    disk.failing = set()
    assert append(log, "b") == 1
    assert directory.offline_reason is None


def test_deleting_partitions_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = opened(tmp_path)
    create(directory)
    monkeypatch.setattr(SystemDisk, "write_atomic", lambda *_: pytest.fail("the event loop was held up"))
    directory.delete("events", 0)


def test_files_that_a_reopened_log_has_removed_may_be_missing() -> None:
    disk = SimDisk()
    directory = opened(Path("/data"), disk=disk)
    log = create(directory, segment_bytes=100, retention_bytes=100, file_delete_delay_ms=0)
    for value in "abcd":
        append(log, value)
    log.apply_retention(NOW, log.log_end_offset)
    due = directory.collect_deleted(NOW)
    assert due
    # As if another thread had just removed each of them.
    ahead = disk.fail("remove", errno.ENOENT, path="*.deleted")
    directory.remove_paths(due)
    again = directory.reopen(("events", 0))()()
    assert again is not None and values_in(again, again.log_start_offset)[-1] == "d"
    assert ahead.fired == 2 * len(due)
    assert directory.offline_reason is None


def test_a_log_deleted_while_it_is_reopened_affects_nothing_else(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(create(directory), "a")
    append(create(directory, "others"), "b")
    look = directory.reopen(("events", 0))
    directory.delete("events", 0)
    assert look()() is None
    assert directory.offline_reason is None
    assert values_in(directory.logs["others", 0]) == ["b"]


def test_each_partition_is_loaded_with_the_configuration_of_its_topic(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for topic in ("short", "long"):
        create(directory, topic)
    directory.close()
    directory = opened(tmp_path, load=False)
    configs = {"short": TopicConfig(retention_ms=5), "long": TopicConfig(retention_ms=7)}
    directory.load(lambda topic: configs[topic])
    assert {key[0]: log.config.retention_ms for key, log in directory.logs.items()} == {"short": 5, "long": 7}
    directory.close()


# -- copies of replicas that move here ------------------------------------------------------------------------


def copied(directory: LogDirectory) -> Any:
    copy = directory.create_future("events", 0, TopicConfig(), TOPIC_ID)
    append(copy, "a")
    append(copy, "b")
    return copy


def test_a_copy_becomes_the_replica_under_its_name(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    copy = copied(directory)
    assert not directory.logs, "an incomplete copy is not loaded as the replica"
    replica = directory.adopt_future("events", 0, clean_offset=1)
    assert (directory.futures, directory.checkpoints.clean_offsets) == ({}, {("events", 0): 1})
    assert replica is directory.logs["events", 0] and replica is not copy
    assert (values_in(replica), replica.recovery_point, replica.topic_id) == (["a", "b"], 2, TOPIC_ID)
    assert append(replica, "c") == 2
    directory.close()
    assert values_in(opened(tmp_path).logs["events", 0]) == ["a", "b", "c"]


def test_a_dropped_copy_is_removed_after_the_delay(tmp_path: Path) -> None:
    clock = ManualClock()
    directory = opened(tmp_path, clock=clock)
    copied(directory)
    directory.drop_future("events", 0)
    assert not directory.futures
    [left] = tmp_path.glob("events-0.*")
    assert left.name.endswith("-delete") and left in directory.collect_deleted(clock.now_ms())
    directory.close()


def test_a_stop_closes_the_copies_and_the_next_start_does_not_load_them_as_replicas(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    copy = copied(directory)
    directory.close()
    with pytest.raises(LogOffline):
        append(copy, "after the stop")
    directory = opened(tmp_path)
    assert not directory.logs and not directory.futures
    directory.close()


def test_a_directory_that_fails_takes_its_copies_offline(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    copy = copied(directory)
    directory.fail(OSError("dead"))
    assert copy.offline_reason is not None
    with pytest.raises(LogOffline):
        append(copy, "c")
