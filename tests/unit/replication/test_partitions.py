"""The registry follows the image: which logs it creates, keeps, deletes and sets aside."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from felice.config import TopicConfig
from felice.env import SystemClock, SystemDisk
from felice.log.directory import LogDirectory
from felice.metadata import ClusterImage, PartitionImage, TopicImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.replication.dependencies import PartitionDependencies
from felice.replication.partition import Partition
from felice.replication.partitions import Partitions

from .test_partition import NOW_MS, batch

FIRST, SECOND = UUID(int=1 | 1 << 100), UUID(int=2)


def open_directory(path: Path) -> LogDirectory:
    directory = LogDirectory(SystemDisk(), SystemClock(), path)
    directory.acquire(node_id=1, cluster_id="c", new_directory_id=UUID(int=7))
    directory.load(lambda topic: TopicConfig())
    return directory


def registry(*directories: LogDirectory) -> Partitions:
    return Partitions(
        1, directories, lambda image, topic: TopicConfig(), PartitionDependencies(SystemClock())
    )


def image(*topics: TopicImage, deleted: Sequence[UUID] = (), reading: int = 0) -> ClusterImage:
    """`deleted`: topics whose deletion was requested. `reading`: other numbers are not known to follow each other."""
    return ClusterImage(
        topics={topic.name: topic for topic in topics},
        deleted_topics={topic_id: {1: 0} for topic_id in deleted},
        reading=reading,
    )


def of_kind(path: Path, kind: str) -> list[str]:
    """The partitions whose directories were set aside so: `delete` or `stray`."""
    return sorted(found.name.partition(".")[0] for found in path.glob(f"*-{kind}"))


def topic(name: str, topic_id: UUID, count: int, replicas: tuple[int, ...] = (1,)) -> TopicImage:
    partitions = tuple(
        PartitionImage(number, replicas, replicas[0], 0, replicas, partition_epoch=0)
        for number in range(count)
    )
    return TopicImage(name, topic_id, partitions, created_zxid=topic_id.int & 0xFF)


def test_partitions_are_created_and_deleted_with_the_image(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    empty, gone = image(), image(deleted=[FIRST])
    two, three = image(topic("a", FIRST, 2)), image(topic("a", FIRST, 3))
    partitions.apply(empty, two)
    first = partitions.find("a", 0)
    assert first.is_leader
    partitions.apply(two, three)
    assert partitions.find("a", 0) is first
    assert len(partitions) == 3
    partitions.apply(three, gone)
    assert len(partitions) == 0
    assert not first.is_leader
    with pytest.raises(ApiError) as error:
        first.fetch(0, 100)
    assert error.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "what still waits on it is told so"
    with pytest.raises(ApiError) as error:
        partitions.find("a", 0)
    assert error.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not directory.logs
    directory.close()


def test_a_topic_created_again_is_empty(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    old, new = image(topic("a", FIRST, 1)), image(topic("a", SECOND, 1), deleted=[FIRST])
    partitions.apply(image(), old)
    before = partitions.find("a", 0)
    partitions.apply(old, new)
    after = partitions.find("a", 0)
    assert after is not before
    assert (after.topic_id, after.log_end_offset) == (SECOND, 0)
    directory.close()


def test_a_topic_whose_id_was_edited_by_hand_gets_none_of_the_others_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    before = topic("a", FIRST, 1)
    edited = dataclasses.replace(before, topic_id=SECOND)
    partitions.apply(image(), image(before))
    held = partitions.find("a", 0)
    partitions.apply(image(before), image(edited))
    assert not held.is_open
    assert (partitions.find("a", 0).topic_id, directory.logs["a", 0].topic_id) == (SECOND, SECOND)
    assert [path.name[-6:] for path in tmp_path.glob("a-0.*")] == ["-stray"], "a person may want them"
    assert "its deletion was not requested" in caplog.text
    directory.close()


def test_a_topic_whose_node_was_restored_under_its_id_keeps_its_records(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    before = topic("a", FIRST, 1)
    partitions.apply(image(), image(before))
    log = partitions.find("a", 0).log
    restored = dataclasses.replace(before, created_zxid=before.created_zxid + 1)
    partitions.apply(image(before), image(restored))
    assert partitions.find("a", 0).log is log
    directory.close()


@pytest.mark.parametrize("successor", [None, SECOND])
def test_logs_created_for_an_image_that_was_never_shown_are_deleted(
    tmp_path: Path, successor: UUID | None
) -> None:
    """A topic may be deleted, or its name taken, while a broker prepares to lead again."""
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    kept = topic("b", UUID(int=3), 20)
    made = image(topic("a", FIRST, 20), kept)
    asyncio.run(partitions.make_logs(made, lambda: True))
    shown = image(kept) if successor is None else image(kept, topic("a", successor, 2))
    partitions.apply(image(), shown)
    assert len(directory.logs) == len(partitions) == sum(len(one.partitions) for one in shown.topics.values())
    assert not list(tmp_path.glob("*-stray"))
    # The prepared logs are not checked again.
    partitions.apply(shown, image())
    assert not directory.logs
    directory.close()


def test_a_topic_whose_node_is_damaged_keeps_its_logs(tmp_path: Path) -> None:
    known = image(topic("a", FIRST, 1), topic("b", SECOND, 1))
    broken = dataclasses.replace(image(topic("b", SECOND, 1)), topic_faults={"a": "it has no partitions"})
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    partitions.apply(image(), known)
    served = partitions.find("a", 0)
    partitions.apply(known, broken)
    with pytest.raises(ApiError) as error:
        partitions.find("a", 0)
    assert error.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not served.is_open
    partitions.apply(broken, known)
    assert partitions.find("a", 0).log is served.log
    directory.close()
    # A broker that starts meanwhile does not treat the logs as strays either.
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    partitions.apply(image(), broken)
    partitions.set_strays_aside()
    assert sorted(directory.logs) == [("a", 0), ("b", 0)]
    directory.close()


def test_a_partition_of_another_broker_is_refused(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    partitions.apply(image(), image(topic("a", FIRST, 1, replicas=(2,))))
    with pytest.raises(ApiError) as error:
        partitions.find("a", 0)
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    directory.close()


def test_logs_of_a_topic_that_no_image_has_are_set_aside(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    registry(directory).apply(image(), image(topic("a", FIRST, 1), topic("b", FIRST, 1)))
    directory.close()
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    partitions.apply(image(), image(topic("a", SECOND, 1)))
    partitions.set_strays_aside()
    assert partitions.find("a", 0).topic_id == SECOND
    names = sorted(path.name.partition(".")[0] for path in tmp_path.glob("*-stray"))
    assert names == ["a-0", "b-0"]
    directory.close()


def test_new_partitions_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    directories = [open_directory(tmp_path / "x"), open_directory(tmp_path / "y")]
    partitions = registry(*directories)
    partitions.apply(image(), image(topic("a", FIRST, 6)))
    assert [len(directory.logs) for directory in directories] == [3, 3]
    for directory in directories:
        offsets = partitions.high_watermarks(directory)
        assert offsets.keys() == directory.logs.keys()
        directory.close(offsets)


def test_logs_get_changes_of_their_topics_configuration(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    configs = {"a": TopicConfig(), "b": TopicConfig()}
    partitions = Partitions(
        1, [directory], lambda image, name: configs[name], PartitionDependencies(SystemClock())
    )
    partitions.apply(image(), image(topic("a", FIRST, 2), topic("b", SECOND, 1)))
    configs["a"] = configs["b"] = TopicConfig(retention_ms=5)
    partitions.reconfigure(image(), ["a"])
    assert [p.log.config.retention_ms for p in partitions] == [5, 5, TopicConfig().retention_ms]
    partitions.reconfigure(image())
    assert partitions.find("b", 0).log.config.retention_ms == 5
    directory.close()


def damaged(path: Path, *topics: TopicImage) -> LogDirectory:
    """A directory whose partitions of `topics` could not be loaded."""
    directory = open_directory(path)
    registry(directory).apply(image(), image(*topics))
    directory.close()
    for partition in path.glob("*-*/"):
        (partition / "00000000000000000000.log").write_bytes(bytes(100))
    return open_directory(path)


def test_a_partition_that_could_not_be_loaded_is_not_created_in_another_directory(tmp_path: Path) -> None:
    wanted = topic("a", FIRST, 1)
    directories = open_directory(tmp_path / "first"), damaged(tmp_path / "second", wanted)
    partitions = registry(*directories)
    partitions.apply(image(), image(wanted))
    with pytest.raises(ApiError) as error:
        partitions.find("a", 0)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not directories[0].logs


def test_deleting_a_topic_frees_the_names_of_partitions_that_could_not_be_loaded(tmp_path: Path) -> None:
    old, new = image(topic("a", FIRST, 1)), image(topic("a", SECOND, 1))
    directory = damaged(tmp_path, topic("a", FIRST, 1))
    partitions = registry(directory)
    partitions.apply(image(), old)
    partitions.apply(old, new)
    assert partitions.find("a", 0).topic_id == SECOND
    directory.close()


def test_logs_that_were_created_in_advance_are_used_and_failures_are_reported(
    tmp_path: Path,
) -> None:
    directory, other = open_directory(tmp_path / "a"), open_directory(tmp_path / "b")
    partitions, new = registry(directory, other), image(topic("a", FIRST, 100))
    (tmp_path / "a" / "a-6").mkdir()
    asyncio.run(partitions.make_logs(new, lambda: True))
    assert (len(directory.logs), len(other.logs)) == (49, 50)
    made = dict(directory.logs)
    partitions.apply(image(), new)
    assert all(directory.logs[key] is log for key, log in made.items())
    assert all(partitions.find("a", number).is_leader for number in range(100) if number != 6)


def test_no_logs_are_created_once_the_broker_stops(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions, new = registry(directory), image(topic("a", FIRST, 200))
    answers = iter([True, False])
    asyncio.run(partitions.make_logs(new, lambda: next(answers)))
    assert 0 < len(directory.logs) < 200


def test_no_log_is_created_in_advance_while_a_directory_is_offline(
    tmp_path: Path,
) -> None:
    directory, dead = open_directory(tmp_path / "a"), open_directory(tmp_path / "b")
    dead.fail(OSError("dead"))
    asyncio.run(registry(directory, dead).make_logs(image(topic("a", FIRST, 100)), lambda: True))
    assert not directory.logs


def test_a_partition_without_a_leader_is_not_reported_as_a_disk_failure(tmp_path: Path) -> None:
    partitions = registry(open_directory(tmp_path))
    partitions.apply(image(), image(TopicImage("a", FIRST, (PartitionImage(0, (1,)),))))
    with pytest.raises(ApiError) as error:
        partitions.find("a", 0)
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_cannot_take_its_role_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    given_up: list[tuple[str, int]] = []
    partitions.on_unservable = lambda topic, _, partition, replicas: given_up.append((topic, partition))
    before, led_by_two = topic("a", FIRST, 3, (1, 2)), topic("a", FIRST, 3, (2, 1))
    partitions.apply(image(), image(before))
    update_role = Partition.update_role

    def update(partition: Partition, new: PartitionImage) -> None:
        if partition.partition == 1:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log cannot be cut")
        update_role(partition, new)

    monkeypatch.setattr(Partition, "update_role", update)
    next_term = replace(
        led_by_two, partitions=tuple(replace(row, leader_epoch=1) for row in led_by_two.partitions)
    )
    partitions.apply(image(before), image(next_term))
    assert [partitions.find("a", number).is_open for number in range(3)] == [True, False, True]
    assert [partitions.find("a", number).leader_id for number in (0, 2)] == [2, 2]
    assert set(given_up) == {("a", 1)}
    directory.close()


def test_a_log_that_went_offline_without_a_report_is_neither_led_nor_followed(tmp_path: Path) -> None:
    """This happens while the broker has no session."""
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    given_up: list[int] = []
    partitions.on_unservable = lambda topic, _, partition, replicas: given_up.append(partition)
    shown = image(topic("a", FIRST, 2))
    partitions.apply(image(), shown.without_leaders())
    partitions.find("a", 1).log.take_offline("its disk had no room")
    partitions.apply(shown.without_leaders(), shown)
    assert [partitions.find("a", number).is_leader for number in (0, 1)] == [True, False]
    assert given_up == [1]
    directory.close()


def test_a_restarted_replica_knows_the_high_watermark_of_its_checkpoint(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    shown = image(topic("a", FIRST, 2))
    partitions.apply(image(), shown)
    partitions.find("a", 1).append(batch(3), required_acks=1, now_ms=NOW_MS)
    directory.close(partitions.high_watermarks(directory))
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    partitions.apply(image(), image(topic("a", FIRST, 2, replicas=(2, 1))))
    assert [partitions.find("a", number).high_watermark for number in (0, 1)] == [0, 3]
    directory.close()


def test_the_checkpoint_of_a_log_that_is_offline_stays_as_it_is(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    partitions.apply(image(), image(topic("a", FIRST, 2)))
    assert partitions.high_watermarks(directory) == {("a", 0): 0, ("a", 1): 0}
    partitions.find("a", 1).log.take_offline("no room")
    assert partitions.high_watermarks(directory) == {("a", 0): 0}
    directory.close()


def test_no_logs_are_created_for_replicas_of_other_brokers(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    asyncio.run(partitions.make_logs(image(topic("a", FIRST, 100, replicas=(2, 3))), lambda: True))
    assert not directory.logs
    directory.close()


def test_a_failed_log_closes_only_its_partition_and_resigns(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    given_up: list[tuple[str, UUID, int, tuple[int, ...]]] = []
    partitions.on_unservable = lambda *facts: given_up.append(facts)
    partitions.apply(image(), image(topic("a", FIRST, 2, (1, 2))))
    failed = partitions.find("a", 1)
    for _ in range(2):
        partitions.on_log_offline(failed.log)
    assert given_up == [("a", FIRST, 1, (1, 2))]
    assert [partitions.find("a", number).is_open for number in (0, 1)] == [True, False]
    with pytest.raises(ApiError) as error:
        failed.fetch(0, 100)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    directory.close()


def test_a_partition_is_found_by_topic_and_number(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    partitions.apply(image(), image(topic("a", FIRST, 2), topic("b", SECOND, 1)))
    found = [partitions.get("a", 0), partitions.get("a", 1), partitions.get("b", 0)]
    assert found == list(partitions) and None not in found
    assert partitions.get("a", 2) is partitions.get("c", 0) is None
    directory.close()
