"""A broker with several log directories, when the disk of one of them fails, fills up or goes away."""

from __future__ import annotations

import asyncio
import errno
import itertools
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.wire import Wire
from felice.env import Environment, SystemClock, SystemNetwork
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records.builder import BatchBuilder
from felice.records.reader import read_records
from felice.server.maintenance import Maintenance
from felice.server.process.embedded import EmbeddedBroker
from felice.server.startup import StartupError
from felice.testing.simulation.disk import SimDisk
from waiting import wait_until

STORAGE_ERROR = 56
# A broker that starts again makes other topic ids.
SEEDS = itertools.count(1)
FIRST, SECOND = Path("/disks/1"), Path("/disks/2")
SETTINGS = {
    "log.dirs": f"{FIRST},{SECOND}",
    "log.flush.interval.messages": "1",
    "replica.high.watermark.checkpoint.interval.ms": "50",
}


@contextmanager
def broker_on(disk: SimDisk, **settings: str) -> Iterator[tuple[EmbeddedBroker, Wire]]:
    env = Environment(SystemClock(), disk, SystemNetwork(), random.Random(next(SEEDS)))
    properties = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
    with EmbeddedBroker(FIRST, env=env, properties=properties) as broker, Wire(broker.bootstrap) as wire:
        yield broker, wire


def create(wire: Wire, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    return int(wire.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code)


def produce(wire: Wire, topic: str, partition: int, value: bytes) -> int:
    builder = BatchBuilder()
    builder.append(SystemClock().now_ms(), b"k", value)
    data = [PartitionProduceData(index=partition, records=bytes(builder.build()))]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    answer = wire.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(wire: Wire, topic: str, partition: int) -> list[bytes] | int:
    """All values, or the error."""
    wanted = FetchTopic(
        topic=topic, partitions=[FetchPartition(partition=partition, partition_max_bytes=1 << 20)]
    )
    row = wire.ask(FetchRequest(max_wait_ms=0, topics=[wanted]), 11).responses[0].partitions[0]
    if row.error_code:
        return int(row.error_code)
    return [record.value or b"" for record in read_records(row.records or b"", check_crcs=True)]


def home(broker: EmbeddedBroker, topic: str, partition: int) -> Path:
    found: Path = broker.broker.services.partitions.find(topic, partition).log.directory.parent
    return found


def by_directory(broker: EmbeddedBroker) -> dict[Path, int]:
    """A partition of topic `a` on each disk."""
    return {home(broker, "a", partition): partition for partition in (0, 1)}


def offline(broker: EmbeddedBroker) -> dict[Path, str]:
    return {
        directory.path: directory.offline_reason
        for directory in broker.broker.directories
        if directory.offline_reason is not None
    }


def log_dir_errors(wire: Wire) -> dict[Path, int]:
    results = wire.ask(DescribeLogDirsRequest(topics=None), 4).results
    return {Path(row.log_dir): int(row.error_code) for row in results}


@pytest.mark.parametrize("operation", ["write", "sync", "read"])
def test_a_directory_that_fails_goes_offline_alone(operation: str) -> None:
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        partitions = by_directory(broker)
        assert set(partitions) == {FIRST, SECOND}
        for partition in (0, 1):
            assert produce(wire, "a", partition, b"before") == 0
        fault = disk.fail(operation, path=f"{SECOND}/a-*.log")
        failed, sound = partitions[SECOND], partitions[FIRST]
        if operation == "read":
            broker.broker.services.partitions.find("a", failed).log.segments[0]._boundaries.clear()
            fetch(wire, "a", failed)
        else:
            assert produce(wire, "a", failed, b"refused") == STORAGE_ERROR
        disk.heal(fault)
        # The state is plain, and stays until a restart, even if the disk works again.
        if operation != "write":
            assert list(offline(broker)) == [SECOND]
            assert log_dir_errors(wire) == {FIRST: 0, SECOND: STORAGE_ERROR}
            assert produce(wire, "a", failed, b"refused") == STORAGE_ERROR
            assert fetch(wire, "a", failed) == STORAGE_ERROR
        assert produce(wire, "a", sound, b"after") == 0
        assert fetch(wire, "a", sound) == [b"before", b"after"]
        assert broker.broker.lifecycle.failure is None
        # New partitions go to where there is a disk.
        assert create(wire, "b") == 0
        if operation != "write":
            assert {home(broker, "b", 0), home(broker, "b", 1)} == {FIRST}
    with broker_on(disk) as (broker, wire):
        assert offline(broker) == {}
        assert fetch(wire, "a", sound) == [b"before", b"after"]
        found = fetch(wire, "a", failed)
        assert isinstance(found, list)
        assert found[0] == b"before"


def test_a_full_disk_refuses_appends_serves_reads_and_goes_on_when_there_is_room() -> None:
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        value = b"x" * 20_000
        assert produce(wire, "a", 0, value) == 0
        disk.capacity_bytes = disk.used_bytes + 10_000
        for _ in range(3):
            assert produce(wire, "a", 0, value) == STORAGE_ERROR
        assert fetch(wire, "a", 0) == [value]
        time.sleep(0.2)
        assert offline(broker) == {}
        disk.capacity_bytes = None
        assert produce(wire, "a", 0, value) == 0
    with broker_on(disk) as (_, wire):
        assert fetch(wire, "a", 0) == [value, value]


def test_when_the_first_directory_fails_nothing_can_be_created_and_the_others_serve() -> None:
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        partitions = by_directory(broker)
        for partition in (0, 1):
            assert produce(wire, "a", partition, b"before") == 0
        fault = disk.fail("*", path=f"{FIRST}*")
        assert produce(wire, "a", partitions[FIRST], b"refused") == STORAGE_ERROR
        wait_until(lambda: list(offline(broker)) == [FIRST])
        # The store of the cluster's metadata is there too: what it says is known, and cannot be changed.
        assert create(wire, "b") == STORAGE_ERROR
        assert [topic.name for topic in wire.ask(MetadataRequest(topics=None), 9).topics] == ["a"]
        assert produce(wire, "a", partitions[SECOND], b"after") == 0
        assert fetch(wire, "a", partitions[SECOND]) == [b"before", b"after"]
        assert broker.broker.lifecycle.failure is None
    with pytest.raises(StartupError, match="cannot be used: input/output error"), broker_on(disk):
        pass
    disk.heal(fault)
    with broker_on(disk) as (_, wire):
        assert fetch(wire, "a", partitions[FIRST]) == [b"before"]
        assert fetch(wire, "a", partitions[SECOND]) == [b"before", b"after"]
        assert create(wire, "b") == 0


def test_a_broker_whose_directories_have_all_failed_reports_that_it_cannot_continue() -> None:
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        disk.fail("sync")
        assert [produce(wire, "a", partition, b"x") for partition in (0, 1)] == [STORAGE_ERROR] * 2
        wait_until(lambda: broker.broker.lifecycle.failure is not None)
        assert "all log directories are offline" in str(broker.broker.lifecycle.failure)


def test_a_checkpoint_that_cannot_be_written_takes_its_directory_offline_and_no_other() -> None:
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        for partition in (0, 1):
            assert produce(wire, "a", partition, b"x") == 0
        disk.fail("sync", path=f"{FIRST}/replication-offset-checkpoint*")
        # Makes a new high watermark that must be written. If a write under way fails first, this request has an error.
        produce(wire, "a", by_directory(broker)[FIRST], b"x")
        wait_until(lambda: bool(offline(broker)))
        assert list(offline(broker)) == [FIRST]
        assert produce(wire, "a", by_directory(broker)[SECOND], b"y") == 0
        wait_until(lambda: disk.exists(SECOND / "replication-offset-checkpoint"))


def test_a_data_directory_that_is_removed_under_the_broker_goes_offline() -> None:
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        partitions = by_directory(broker)
        for partition in (0, 1):
            assert produce(wire, "a", partition, b"x") == 0
        disk.remove_tree(SECOND)
        # Open files outlive their names; the next checkpoint finds the directory gone.
        produce(wire, "a", partitions[SECOND], b"y")
        wait_until(lambda: list(offline(broker)) == [SECOND])
        assert "No such file or directory" in offline(broker)[SECOND]
        assert produce(wire, "a", partitions[SECOND], b"y") == STORAGE_ERROR
        assert produce(wire, "a", partitions[FIRST], b"y") == 0


def test_records_that_no_file_descriptor_stands_for_are_sent_all_the_same() -> None:
    with broker_on(SimDisk()) as (_, wire):
        assert create(wire, "a") == 0
        assert produce(wire, "a", 0, b"x" * 500_000) == 0
        assert fetch(wire, "a", 0) == [b"x" * 500_000]


def test_a_flush_that_fails_unexpectedly_does_not_keep_the_others_from_theirs() -> None:
    flushed = []

    def partition(name: str, error: Exception | None) -> Any:
        async def begin_flush() -> None:
            if error is not None:
                raise error
            flushed.append(name)

        log = SimpleNamespace(name=name, is_flushing=False, flush_is_due=lambda now_ms: True)
        return SimpleNamespace(log=log, flusher=SimpleNamespace(begin=begin_flush))

    partitions = [partition("a", RuntimeError("no thread")), partition("b", None)]
    services: Any = SimpleNamespace(partitions=partitions, env=Environment.system())
    asyncio.run(Maintenance(services, (), None, None)._flush_due())
    assert flushed == ["b"]


def test_a_flush_without_room_for_a_snapshot_does_not_fail_the_directory() -> None:
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        full = disk.fail("write", errno.ENOSPC, path="*checkpoint.tmp")
        assert produce(wire, "a", 0, b"not durable yet") == STORAGE_ERROR
        assert fetch(wire, "a", 0) == []
        time.sleep(0.2)
        assert offline(broker) == {}
        disk.heal(full)
        assert produce(wire, "a", 0, b"x") == 0
        assert fetch(wire, "a", 0) == [b"not durable yet", b"x"]


def test_a_flipped_bit_in_a_topic_id_keeps_the_partition_offline_and_its_records_where_they_are() -> None:
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        assert produce(wire, "a", 0, b"x") == 0
        path = home(broker, "a", 0) / "a-0" / "partition.metadata"
    file = disk.open(path)
    at = file.size_bytes - 5
    found = file.pread(1, at)
    for bit in range(7):
        damaged = bytes([found[0] ^ (1 << bit)])
        if damaged.isalnum():
            break
    file.pwrite(damaged, at)
    with broker_on(disk) as (_, wire):
        assert fetch(wire, "a", 0) == STORAGE_ERROR
        assert fetch(wire, "a", 1) == []
    file = disk.open(path)
    file.pwrite(found, at)
    with broker_on(disk) as (_, wire):
        assert fetch(wire, "a", 0) == [b"x"]


@pytest.mark.parametrize("path", [f"{SECOND}*", f"{SECOND}/replication-offset-checkpoint"])
def test_a_directory_that_is_dead_at_the_start_affects_only_its_partitions(path: str) -> None:
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        partitions = by_directory(broker)
        for partition in (0, 1):
            assert produce(wire, "a", partition, b"before") == 0
    fault = disk.fail("*", path=path)
    for created in ("new0", "new1"):
        with broker_on(disk) as (broker, wire):
            assert list(offline(broker)) == [SECOND]
            assert log_dir_errors(wire) == {FIRST: 0, SECOND: STORAGE_ERROR}
            # Replicas on the failed disk are not created again on another disk.
            assert produce(wire, "a", partitions[SECOND], b"refused") == STORAGE_ERROR
            assert fetch(wire, "a", partitions[SECOND]) == STORAGE_ERROR
            assert fetch(wire, "a", partitions[FIRST]) == [b"before"]
            assert create(wire, created) == 0
            assert {home(broker, created, 0), home(broker, created, 1)} == {FIRST}
            assert produce(wire, created, 1, b"x") == 0
    disk.heal(fault)
    with broker_on(disk) as (broker, wire):
        assert offline(broker) == {}
        assert fetch(wire, "a", partitions[SECOND]) == [b"before"]
        assert fetch(wire, "new0", 1) == fetch(wire, "new1", 1) == [b"x"]


def test_without_any_directory_the_broker_does_not_start_and_names_them_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimDisk()
    with broker_on(disk):
        pass
    disk.fail("*", path="*/meta.properties")
    with (
        caplog.at_level("WARNING", "felice"),
        pytest.raises(StartupError, match=f"{FIRST} cannot be used.*{SECOND} cannot be used"),
        broker_on(disk),
    ):
        pass
    assert caplog.records == [], "the reason it does not start is told once"


def test_a_directory_without_which_a_broker_starts_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    with broker_on(disk):
        pass
    disk.fail("*", path=f"{SECOND}/meta.properties")
    with caplog.at_level("WARNING", "felice"), broker_on(disk):
        pass
    [told] = caplog.records
    assert f"{SECOND} cannot be used" in told.reason  # type: ignore[attr-defined]


def test_a_directory_of_another_broker_is_refused_however_many_others_there_are() -> None:
    disk = SimDisk()
    with broker_on(disk):
        pass
    with pytest.raises(StartupError, match="belongs to node 0"), broker_on(disk, node_id="7"):
        pass


def test_the_cleaner_skips_a_replica_while_it_moves() -> None:
    """Else the copy might have a value, copied early, and not its tombstone, which was due before it was reached."""
    disk = SimDisk()
    eager = {
        "log_cleaner_backoff_ms": "10",
        "log_cleaner_min_cleanable_ratio": "0.001",
        "log_cleanup_policy": "compact",
        "log_segment_bytes": str(1 << 20),
    }
    slow = {"replica_alter_log_dirs_io_max_bytes_per_second": "1"}

    async def begin(broker: EmbeddedBroker) -> None:
        here = home(broker, "a", 0)
        broker.broker.services.disks.replica_moves.begin("a", 0, str(SECOND if here == FIRST else FIRST))

    with broker_on(disk, **eager, **slow) as (broker, wire):
        assert create(wire, "a") == 0
        assert produce(wire, "a", 0, b"x" * 700_000) == 0
        origin = home(broker, "a", 0)
        broker.run(begin(broker))
        for _ in range(3):
            assert produce(wire, "a", 0, b"y" * 700_000) == 0
            assert produce(wire, "a", 1, b"y" * 700_000) == 0
        wait_until(lambda: "a-1" in broker.broker.cleaner.status.last)
        time.sleep(0.1)
        assert "a-0" not in broker.broker.cleaner.status.last
    with broker_on(disk, **eager) as (broker, wire):
        wait_until(lambda: home(broker, "a", 0) != origin)
        wait_until(lambda: "a-0" in broker.broker.cleaner.status.last)
