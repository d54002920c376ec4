"""The registry and full disks: which logs are loaded again, and which state they keep."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from felice.config import TopicConfig
from felice.env import SystemClock
from felice.log.directory import LogDirectory
from felice.log.log import Log
from felice.metadata import ClusterImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.replication.partition import Partition
from felice.replication.partitions import Partitions
from felice.testing.simulation.disk import SimDisk

from .test_partition import NOW_MS, batch
from .test_partitions import FIRST, SECOND, image, registry, topic

SHOWN = image(topic("a", FIRST, 2))


def on(disk: SimDisk, name: str = "/d") -> LogDirectory:
    disk.mkdir(Path(name)) if not disk.exists(Path(name)) else None
    directory = LogDirectory(disk, SystemClock(), Path(name))
    directory.acquire(node_id=1, cluster_id="c", new_directory_id=UUID(int=7))
    directory.load(lambda topic: TopicConfig())
    return directory


def append(partition: Partition) -> None:
    partition.append(batch(), required_acks=1, now_ms=NOW_MS)


def fill(disk: SimDisk, partition: Partition) -> None:
    """Makes the next append take the log offline, and reports that to the registry."""
    disk.fail("truncate", errno.ENOSPC, path=f"{partition.log.directory}/*.log")
    disk.fail("write", errno.ENOSPC, path=f"{partition.log.directory}/*.log")
    with pytest.raises(ApiError):
        append(partition)


def served(disk: SimDisk) -> tuple[LogDirectory, Partitions, Partition]:
    """Two partitions with one record each; the first has no room for another."""
    directory = on(disk)
    partitions = registry(directory)
    partitions.apply(image(), SHOWN)
    for number in (0, 1):
        append(partitions.find("a", number))
    full = partitions.find("a", 0)
    fill(disk, full)
    partitions.on_log_offline(full.log)
    return directory, partitions, full


def retry(
    partitions: Partitions, key: tuple[str, int] = ("a", 0), is_free: Callable[[Log], bool] = lambda log: True
) -> bool:
    return asyncio.run(partitions.retry_log(key, is_free))


def test_a_log_comes_back_with_its_records_and_takes_its_role() -> None:
    disk = SimDisk()
    directory, partitions, full = served(disk)
    assert partitions.without_room() == [("a", 0)]
    assert not full.is_open
    disk.heal()
    asked: list[Log] = []
    assert retry(partitions, is_free=lambda log: asked.append(log) is None)
    assert asked == [full.log]
    back = partitions.find("a", 0)
    assert back is not full and back.log is directory.logs["a", 0] is not full.log
    assert (back.high_watermark, back.log_end_offset, back.topic_id) == (1, 1, FIRST)
    assert (back.is_open, back.is_leader) == (True, False)
    assert partitions.without_room() == [("a", 0)], "it has no role yet"
    assert retry(partitions), "it is there already"
    assert partitions.find("a", 0) is back
    partitions.take_up(("a", 0))
    assert back.is_leader and partitions.without_room() == []
    append(back)
    assert not retry(partitions), "nothing is wrong with it"


def test_a_log_stays_offline_while_there_is_no_room() -> None:
    disk = SimDisk()
    _, partitions, full = served(disk)
    disk.fail("write", errno.ENOSPC, path="*")
    assert not retry(partitions)
    assert partitions.find("a", 0) is full and partitions.without_room() == [("a", 0)]


def test_a_log_on_which_another_component_works_is_left_alone() -> None:
    disk = SimDisk()
    _, partitions, full = served(disk)
    disk.heal()
    assert not retry(partitions, is_free=lambda log: False)
    assert partitions.find("a", 0) is full


def test_a_log_that_is_being_flushed_is_left_alone() -> None:
    disk = SimDisk()
    _, partitions, full = served(disk)
    disk.heal()

    async def scenario() -> None:
        flushing = full.flusher.begin()
        assert not await partitions.retry_log(("a", 0), lambda log: True)
        await asyncio.wait([flushing])
        assert await partitions.retry_log(("a", 0), lambda log: True)

    asyncio.run(scenario())


def test_a_log_in_a_directory_that_failed_is_not_tried_again() -> None:
    disk = SimDisk()
    directory, partitions, full = served(disk)
    disk.heal()
    directory.fail(OSError("dead"))
    assert not retry(partitions)
    assert partitions.find("a", 0) is full


def test_a_log_that_failed_for_another_reason_is_not_tried_again() -> None:
    disk = SimDisk()
    directory = on(disk)
    partitions = registry(directory)
    partitions.apply(image(), SHOWN)
    failed = partitions.find("a", 0)
    failed.log.take_offline("its disk lies")
    partitions.on_log_offline(failed.log)
    assert partitions.without_room() == []
    assert not retry(partitions)


def test_partitions_that_are_unknown_are_not_tried_again() -> None:
    _, partitions, _ = served(SimDisk())
    assert not retry(partitions, ("a", 7))
    assert not retry(partitions, ("b", 0))


def test_a_partition_that_was_deleted_meanwhile_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    _, partitions, _ = served(disk)
    disk.heal()
    look = LogDirectory.reopen

    def reopen(directory: LogDirectory, key: tuple[str, int]) -> Callable[[], Callable[[], Log | None]]:
        found = look(directory, key)

        def later() -> Callable[[], Log | None]:
            adopt = found()

            def after_the_image() -> Log | None:
                log = adopt()
                partitions._partitions.pop(("a", 0))
                return log

            return after_the_image

        return later

    monkeypatch.setattr(LogDirectory, "reopen", reopen)
    assert not retry(partitions)
    assert partitions.get("a", 0) is None


def test_a_reopened_log_whose_topic_is_gone_takes_no_role() -> None:
    disk = SimDisk()
    _, partitions, _ = served(disk)
    disk.heal()
    assert retry(partitions)
    partitions._image = ClusterImage()
    partitions.take_up(("a", 0))
    assert partitions.find("a", 0).is_open and not partitions.find("a", 0).is_leader


# Logs that could not be created


def unmade(disk: SimDisk, names: str = "abc") -> tuple[LogDirectory, Partitions, ClusterImage]:
    directory = on(disk)
    partitions = registry(directory)
    shown = image(*(topic(name, UUID(int=number << 100 | 1), 1) for number, name in enumerate(names, 1)))
    disk.fail("mkdir", errno.ENOSPC, path="/d/*")
    partitions.apply(image(), shown)
    return directory, partitions, shown


def offline_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [row.__dict__["partition"] for row in caplog.records if row.message == "partition is offline"]


def test_a_missing_log_is_made_when_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    given_up: list[str] = []
    directory = on(disk)
    partitions = registry(directory)
    partitions.on_unservable = lambda topic, *facts: given_up.append(topic)
    shown = image(topic("a", FIRST, 1), topic("b", SECOND, 1))
    disk.fail("mkdir", errno.ENOSPC, path="/d/*")
    partitions.apply(image(), shown)
    assert offline_lines(caplog) == ["a-0", "b-0"] and given_up == ["a", "b"]
    with pytest.raises(ApiError) as error:
        partitions.find("a", 0)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    # One attempt is enough to find out whether there is room.
    assert partitions.without_room() == [("a", 0)]
    assert retry(partitions)
    partitions.take_up(("a", 0))
    assert len(partitions) == 0 and offline_lines(caplog) == ["a-0", "b-0"], "each is said once"
    assert partitions.without_room() == [("b", 0)], "the next time, another is tried first"
    disk.heal()
    partitions.take_up(("b", 0))
    assert partitions.find("a", 0).is_leader and partitions.find("b", 0).is_leader
    assert partitions.without_room() == []
    append(partitions.find("a", 0))


def test_missing_logs_are_made_until_there_is_no_room_again() -> None:
    disk = SimDisk()
    directory, partitions, _ = unmade(disk)
    disk.heal()
    disk.fail("mkdir", errno.ENOSPC, path="/d/b-*")
    partitions.take_up(partitions.without_room()[0])
    assert ("a", 0) in directory.logs and ("b", 0) not in directory.logs
    disk.heal()
    partitions.take_up(partitions.without_room()[0])
    assert sorted(directory.logs) == [("a", 0), ("b", 0), ("c", 0)]


def test_a_missing_log_whose_partition_is_gone_or_elsewhere_is_forgotten() -> None:
    disk = SimDisk()
    directory, partitions, shown = unmade(disk)
    elsewhere = image(
        topic("b", shown.topics["b"].topic_id, 1, replicas=(2,)), topic("c", shown.topics["c"].topic_id, 1)
    )
    disk.heal()
    first = partitions.without_room()[0]
    # Only the image that `take_up` reads changes: `apply` would forget the logs.
    partitions._image = elsewhere
    partitions.take_up(first)
    assert sorted(directory.logs) == [("c", 0)]
    assert partitions.without_room() == []


def test_a_missing_log_is_forgotten_with_its_topic() -> None:
    disk = SimDisk()
    _, partitions, shown = unmade(disk)
    partitions.apply(shown, image(shown.topics["c"]))
    assert partitions.without_room() == [("c", 0)]


def test_a_log_that_cannot_be_made_for_another_reason_is_not_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimDisk()
    directory = on(disk)
    partitions = registry(directory)
    disk.fail("mkdir", errno.EACCES, path="/d/a-*")
    partitions.apply(image(), SHOWN)
    assert partitions.without_room() == []
    assert offline_lines(caplog)[0] == "a-0"


# Logs that exist


def test_logs_that_are_there_are_not_made_in_advance() -> None:
    disk = SimDisk()
    directory, other = on(disk), on(disk, "/e")
    partitions = registry(directory, other)
    shown = image(topic("a", FIRST, 20))
    partitions.apply(image(), shown)
    before = {**directory.logs, **other.logs}
    again = registry(directory, other)
    asyncio.run(again.make_logs(shown, lambda: True))
    assert {**directory.logs, **other.logs} == before


def test_of_two_copies_the_longer_is_served_and_the_other_set_aside() -> None:
    disk = SimDisk()
    shown = image(topic("a", FIRST, 1))
    directories = []
    for name, count in (("/d", 1), ("/e", 3)):
        directory = on(disk, name)
        alone = registry(directory)
        alone.apply(image(), shown)
        for _ in range(count):
            append(alone.find("a", 0))
        directories.append(directory)
    partitions = registry(*directories)
    partitions.apply(image(), shown)
    assert partitions.find("a", 0).log is directories[1].logs["a", 0]
    assert partitions.find("a", 0).log_end_offset == 3
    assert ("a", 0) not in directories[0].logs
    assert [name for name in disk.listdir(Path("/d")) if name.endswith("-stray")]


def test_a_damaged_copy_beside_a_sound_one_is_set_aside() -> None:
    """An operator must check the id only if there is no intact copy."""
    disk = SimDisk()
    almost = UUID(int=FIRST.int ^ 1)
    directories = []
    for name, topic_id in (("/d", almost), ("/e", FIRST)):
        directory = on(disk, name)
        registry(directory).apply(image(), image(topic("a", topic_id, 1)))
        directories.append(directory)
    partitions = registry(*directories)
    partitions.apply(image(), image(topic("a", FIRST, 1)))
    assert partitions.find("a", 0).log is directories[1].logs["a", 0]
    assert ("a", 0) not in directories[0].logs


def test_a_damaged_id_alone_leaves_the_log_for_an_operator() -> None:
    disk = SimDisk()
    directory = on(disk)
    registry(directory).apply(image(), image(topic("a", UUID(int=FIRST.int ^ 1), 1)))
    partitions = registry(directory)
    partitions.apply(image(), image(topic("a", FIRST, 1)))
    assert partitions.get("a", 0) is None
    partitions.set_strays_aside()
    assert ("a", 0) in directory.logs
