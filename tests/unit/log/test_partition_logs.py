"""A new partition's directory, when the disk refuses a part of its creation."""

from __future__ import annotations

import errno
from pathlib import Path
from uuid import UUID

import pytest

from felice.config import TopicConfig
from felice.log import partition_metadata
from felice.log.files import OpenFiles
from felice.log.log import Log
from felice.log.partition_logs import PartitionLogs
from felice.testing.simulation.disk import SimDisk

from .logs import ManualClock, append, values_in

ROOT = Path("/data")
PATH = ROOT / "events-0"
TOPIC_ID = UUID(int=7)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.mkdir(ROOT)
    return disk


@pytest.fixture
def logs(disk: SimDisk) -> PartitionLogs:
    return PartitionLogs(disk, ManualClock(), OpenFiles(disk), 1234)


def create(logs: PartitionLogs, topic_id: UUID | None = TOPIC_ID) -> Log:
    return logs.create(("events", 0), PATH, TopicConfig(), topic_id)


def test_a_created_log_takes_records_and_carries_its_topic_id(disk: SimDisk, logs: PartitionLogs) -> None:
    log = create(logs)
    assert (log.topic_id, partition_metadata.read(disk, PATH)) == (TOPIC_ID, TOPIC_ID)
    assert log.producers.expiration_ms == 1234
    append(log, "a")
    assert values_in(log) == ["a"]


def test_without_a_topic_id_there_is_no_file_for_it(disk: SimDisk, logs: PartitionLogs) -> None:
    assert create(logs, None).topic_id is None
    assert not disk.exists(PATH / partition_metadata.FILE_NAME)


def test_a_failed_attempt_leaves_no_directory(disk: SimDisk, logs: PartitionLogs) -> None:
    disk.fail("create", errno.ENOSPC, path="*/events-0/*")
    with pytest.raises(OSError, match="ENOSPC|space"):
        create(logs)
    assert not disk.exists(PATH)
    assert not logs.is_taken(PATH)


def test_a_directory_that_could_not_be_removed_is_removed_by_the_next_attempt(
    disk: SimDisk, logs: PartitionLogs
) -> None:
    disk.fail("write", errno.ENOSPC, path="*/events-0/*")
    disk.fail("remove", errno.EMFILE, path="*/events-0*")
    with pytest.raises(OSError, match="ENOSPC|space"):
        create(logs)
    assert disk.listdir(PATH) == [partition_metadata.FILE_NAME]
    assert not logs.is_taken(PATH), "the next attempt may use the name"
    disk.heal()
    log = create(logs, None)
    assert log.topic_id is None
    assert not disk.exists(PATH / partition_metadata.FILE_NAME), "nothing is left of the first attempt"
    assert logs.is_taken(PATH)
