"""A log that a full disk took offline: other replicas lead, and the log recovers without a restart."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from conformance.wire import Wire
from felice.controller.topic_plans import NewTopic
from felice.env import Environment, SystemClock, SystemNetwork
from felice.log.checkpoints import RECOVERY_POINTS
from felice.log.clean_shutdown import MARKER_NAME
from felice.log.directory import LogDirectory
from felice.log.log import Log
from felice.metadata import PartitionImage, layout
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.replication.partition import Partition
from felice.server import maintenance
from felice.server.process.embedded import EmbeddedBroker, EmbeddedCluster
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.disk_faults import DiskFault
from unit.log.logs import NOW, batch
from waiting import LIMIT_S, wait_until

from .test_disk_failures import (
    STORAGE_ERROR,
    broker_on,
    by_directory,
    create,
    fetch,
    offline,
    produce,
)


@pytest.fixture(autouse=True)
def looked_after_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_RETRY_LOGS_MS", 20)


def fill(disk: SimDisk, where: str) -> DiskFault:
    """No room for an append there, nor to undo half of one."""
    disk.fail("truncate", errno.ENOSPC, path=f"{where}/*.log")
    return disk.fail("write", errno.ENOSPC, path=f"{where}/*.log")


@pytest.fixture
def served() -> Iterator[tuple[SimDisk, EmbeddedBroker, Wire, int, int]]:
    """A broker with a record in each of two partitions: one of them on a disk that gets full, and another."""
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        for partition in (0, 1):
            assert produce(wire, "a", partition, b"before") == 0
        full, sound = by_directory(broker).values()
        yield disk, broker, wire, full, sound


def home_of(broker: EmbeddedBroker, partition: int) -> str:
    return str(broker.broker.services.partitions.find("a", partition).log.directory)


def test_a_log_recovers_from_a_full_disk_with_all_acknowledged_records(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int],
) -> None:
    disk, broker, wire, full, sound = served
    fill(disk, home_of(broker, full))
    checkpoints = disk.fail("write", errno.ENOSPC, path="*/recovery-point-offset-checkpoint.tmp")
    assert produce(wire, "a", full, b"refused") == STORAGE_ERROR
    assert fetch(wire, "a", full) == STORAGE_ERROR
    assert produce(wire, "a", sound, b"after") == 0
    # It was looked at, and there was no room yet.
    wait_until(lambda: checkpoints.fired > 2)
    assert not broker.broker.services.partitions.find("a", full).is_open
    disk.heal()
    wait_until(lambda: produce(wire, "a", full, b"after") == 0)
    for partition in (full, sound):
        assert fetch(wire, "a", partition) == [b"before", b"after"]
    assert offline(broker) == {}
    assert broker.broker.lifecycle.failure is None


def test_a_log_recovers_from_a_full_disk_during_a_flush(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int],
) -> None:
    disk, broker, wire, full, _ = served
    partition = broker.broker.services.partitions.find("a", full)

    async def fail_during_a_flush() -> None:
        flushing = partition.flusher.begin()
        await asyncio.sleep(0)
        assert partition.log.is_flushing
        fill(disk, home_of(broker, full))
        with pytest.raises(ApiError):
            partition.append(batch(["refused"]), required_acks=1, now_ms=NOW)
        await asyncio.wait([flushing])

    broker.run(fail_during_a_flush())
    assert not partition.is_open
    disk.heal()
    wait_until(lambda: produce(wire, "a", full, b"after") == 0)
    assert fetch(wire, "a", full) == [b"before", b"after"]


def test_after_a_failed_sync_no_data_counts_as_durable_that_is_not_on_disk(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int],
) -> None:
    disk, broker, wire, full, _ = served
    disk.fail("sync", errno.ENOSPC, path=f"{home_of(broker, full)}/*.log", times=1)
    # Of several pages: to write after it makes none but the last of them dirty again.
    assert produce(wire, "a", full, b"refused" * 10_000) == STORAGE_ERROR
    # The disk has forgotten what it could not write; only the page cache has it.
    wait_until(lambda: produce(wire, "a", full, b"after") == 0)
    values = fetch(wire, "a", full)
    assert isinstance(values, list)
    assert (values[0], values[-1]) == (b"before", b"after")
    assert offline(broker) == {}
    for above in ("/", "/disks"):
        disk.sync_dir(Path(above))  # the machine's owner created and synced the directory above
    for seed in range(5):
        without_power = disk.copy()
        without_power.crash(random.Random(seed))
        with broker_on(without_power) as (_, again):
            assert fetch(again, "a", full) == values


def test_a_broker_starts_on_a_full_disk_with_a_log_that_lost_its_end() -> None:
    """The checkpoint with the lower high watermark has no room yet."""
    disk = SimDisk()
    with broker_on(disk) as (broker, wire):
        assert create(wire, "a") == 0
        for partition in (0, 1):
            assert produce(wire, "a", partition, b"lost" if partition else b"kept") == 0
        log = broker.broker.services.partitions.find("a", 1).log
    disk.write_atomic(log.segments[0].log_path, b"")
    disk.write_atomic(log.directory.parent / RECOVERY_POINTS, b"0\n0\n")  # nothing was flushed
    disk.remove(log.directory.parent / MARKER_NAME)
    disk.fail("write", errno.ENOSPC, path=f"{log.directory.parent}/replication-offset-checkpoint*")
    with broker_on(disk) as (broker, wire):
        assert fetch(wire, "a", 1) == STORAGE_ERROR
        assert produce(wire, "a", 1, b"refused") == STORAGE_ERROR
        assert fetch(wire, "a", 0) == [b"kept"]
        disk.heal()
        wait_until(lambda: produce(wire, "a", 1, b"after") == 0)
        assert fetch(wire, "a", 1) == [b"after"]
        assert offline(broker) == {}


def test_a_damaged_log_stays_offline_and_is_not_retried_for_ever(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    disk, broker, wire, full, sound = served
    directory = home_of(broker, full)
    disk_is_full = fill(disk, directory)
    disk.fail("write", errno.ENOSPC, path="*/recovery-point-offset-checkpoint.tmp")
    assert produce(wire, "a", full, b"refused") == STORAGE_ERROR
    log = broker.broker.services.partitions.find("a", full).log
    disk.heal(disk_is_full)
    disk.open(log.segments[0].log_path).pwrite(bytes(61), 0)
    disk.heal()
    wait_until(lambda: not broker.broker.services.partitions.without_room())
    assert "stays offline" in caplog.text
    assert fetch(wire, "a", full) == STORAGE_ERROR
    assert fetch(wire, "a", sound) == [b"before"]
    assert offline(broker) == {}


def row(cluster: EmbeddedCluster) -> PartitionImage:
    found = cluster.cluster.brokers[2].image.partition("a", 0)
    assert found is not None
    return found


def test_other_replicas_lead_while_a_log_is_offline_and_readmit_it() -> None:
    disk = SimDisk()
    env = Environment(SystemClock(), disk, SystemNetwork(), random.Random(1))
    with EmbeddedCluster(Path("/data"), 3, env=env) as cluster:
        brokers = cluster.cluster.brokers
        requested = NewTopic("a", assignment={0: (1, 2, 3)})
        cluster.run(brokers[2].services.changes.cluster.create_topic(requested))
        with Wire(f"127.0.0.1:{brokers[1].port()}") as wire:
            wait_until(lambda: produce(wire, "a", 0, b"before") == 0)
            fill(disk, "/data/broker-1/a-0")
            assert produce(wire, "a", 0, b"refused") == STORAGE_ERROR
        wait_until(lambda: row(cluster).leader == 2 and 1 not in row(cluster).isr)
        with Wire(f"127.0.0.1:{brokers[2].port()}") as wire:
            wait_until(lambda: produce(wire, "a", 0, b"after") == 0)
        disk.heal()
        wait_until(lambda: sorted(row(cluster).isr) == [1, 2, 3])
        again = brokers[1].services.partitions.find("a", 0)
        assert again.is_open
        assert again.log_end_offset == brokers[2].services.partitions.find("a", 0).log_end_offset


def test_a_resignation_from_a_log_that_is_open_again_is_not_written() -> None:
    env = Environment(SystemClock(), SimDisk(), SystemNetwork(), random.Random(1))
    with EmbeddedCluster(Path("/data"), 2, env=env) as cluster:
        broker = cluster.cluster.brokers[1]
        cluster.run(broker.services.changes.cluster.create_topic(NewTopic("a", assignment={0: (1, 2)})))
        replication, path = broker._made.replication, layout.state_path("a", 0)
        wait_until(lambda: replication.partitions.get("a", 0) is not None)

        async def scenario() -> tuple[int, tuple[int, ...]]:
            partition = replication.partitions.find("a", 0)
            assert replication.partitions.on_unservable is not None
            replication.partitions.on_unservable("a", partition.topic_id, 0, (1, 2))
            await replication.isr_writer.finish()
            state = layout.decode_state((await broker._made.controller._store.get(path)).data)
            return state.leader, state.isr

        assert cluster.run(scenario()) == (1, (1, 2))


def test_no_fetcher_fetches_for_an_offline_log_even_if_it_was_not_in_sync() -> None:
    disk = SimDisk()
    env = Environment(SystemClock(), disk, SystemNetwork(), random.Random(1))
    with EmbeddedCluster(Path("/data"), 2, env=env) as cluster:
        leading, following = cluster.cluster.brokers[1], cluster.cluster.brokers[2]
        # There is nothing to resign from for one that was put out of the ISR before, so no image tells of it.
        following.services.partitions.on_unservable = None
        cluster.run(leading.services.changes.cluster.create_topic(NewTopic("a", assignment={0: (1, 2)})))
        with Wire(f"127.0.0.1:{leading.port()}") as wire:
            wait_until(lambda: produce(wire, "a", 0, b"before") == 0)
            replica = following.services.partitions.find("a", 0)
            fill(disk, "/data/broker-2/a-0")
            produce(wire, "a", 0, b"after")
            wait_until(lambda: not replica.is_open)
            wait_until(lambda: following._made.replication.fetchers._fetchers == {})
            disk.heal()
            led = leading.services.partitions.find("a", 0)
            wait_until(
                lambda: following.services.partitions.find("a", 0).log_end_offset == led.log_end_offset
            )


def test_a_move_of_an_offline_log_is_refused_with_the_reason(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int],
) -> None:
    disk, broker, wire, full, sound = served
    fill(disk, home_of(broker, full))
    assert produce(wire, "a", full, b"refused") == STORAGE_ERROR
    elsewhere = str(Path(home_of(broker, sound)).parent)
    requested = AlterReplicaLogDir(
        path=elsewhere, topics=[AlterReplicaLogDirTopic(name="a", partitions=[full])]
    )
    answer = wire.ask(AlterReplicaLogDirsRequest(dirs=[requested]))
    assert answer.results[0].partitions[0].error_code == STORAGE_ERROR


def test_a_new_image_waits_for_the_retry_of_at_most_one_log(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, broker, wire, *partitions = served
    look, order, images = LogDirectory.reopen, [], []

    async def show_an_image() -> None:
        async with broker.broker.services.image_follower.making_logs:
            order.append("image")

    def spy(directory: LogDirectory, key: tuple[str, int]) -> Callable[[], Callable[[], Log | None]]:
        order.append("log")
        images.append(asyncio.ensure_future(show_an_image()))
        return look(directory, key)

    monkeypatch.setattr(LogDirectory, "reopen", spy)
    for partition in partitions:
        fill(disk, home_of(broker, partition))
        assert produce(wire, "a", partition, b"refused") == STORAGE_ERROR
    # Both of them, some times.
    wait_until(lambda: len(order) > 20)
    disk.heal()
    for partition in partitions:
        wait_until(lambda partition=partition: produce(wire, "a", partition, b"after") == 0)
    assert ("log", "log") not in pairwise(order)


def test_a_stop_waits_for_a_running_retry(served: tuple[SimDisk, EmbeddedBroker, Wire, int, int]) -> None:
    disk, broker, wire, full, _ = served
    fill(disk, home_of(broker, full))
    assert produce(wire, "a", full, b"refused") == STORAGE_ERROR
    disk.heal()

    async def look_and_stop() -> None:
        await asyncio.gather(broker.broker.services.disks.offline_logs.retry(), broker.broker.stop())

    broker.run(look_and_stop())
    assert broker.broker.lifecycle.failure is None


def slowed(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Every look at a log lasts until `meanwhile` has ended, on the thread of the look."""
    look = LogDirectory.reopen

    def reopen(directory: LogDirectory, key: tuple[str, int]) -> Callable[[], Callable[[], Log | None]]:
        scan = look(directory, key)

        def scan_slowly() -> Callable[[], Log | None]:
            meanwhile()
            return scan()

        return scan_slowly

    monkeypatch.setattr(LogDirectory, "reopen", reopen)


def test_a_change_during_a_retry_takes_effect_before_the_log_leads_again(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, broker, wire, full, _ = served
    led: list[UUID | None] = []
    lead = Partition._lead
    first_id = broker.broker.image.topics["a"].topic_id
    loop = broker.run(running_loop())
    deleting: list[Future[None]] = []

    def delete_the_topic() -> None:
        if deleting:
            return
        deleting.append(
            asyncio.run_coroutine_threadsafe(broker.broker.services.changes.cluster.delete_topic("a"), loop)
        )
        store = broker.broker._store
        assert store is not None
        wait_until(
            lambda: asyncio.run_coroutine_threadsafe(store.exists("/brokers/topics/a"), loop).result() is None
        )
        disk.heal()

    def spy(partition: Partition, image: PartitionImage) -> None:
        led.append(partition.log.topic_id)
        lead(partition, image)

    # No retry can have begun before that and end after the disk has room again.
    slowed(monkeypatch, delete_the_topic)
    monkeypatch.setattr(Partition, "_lead", spy)
    fill(disk, home_of(broker, full))
    assert produce(wire, "a", full, b"refused") == STORAGE_ERROR
    wait_until(lambda: deleting and deleting[0].done())
    deleting[0].result()
    assert create(wire, "a") == 0
    assert fetch(wire, "a", full) == []
    assert first_id not in led
    assert offline(broker) == {}


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_a_recovered_log_waits_for_the_image_that_has_its_role(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, broker, wire, full, _ = served
    fill(disk, home_of(broker, full))
    assert produce(wire, "a", full, b"refused") == STORAGE_ERROR
    waits = [False] * 3

    async def catch_up(timeout_s: float) -> bool:
        return waits.pop() if waits else True

    monkeypatch.setattr(broker.broker.services.watcher, "catch_up", catch_up)
    disk.heal()
    wait_until(lambda: produce(wire, "a", full, b"after") == 0)
    assert not waits
    assert broker.broker.services.partitions.without_room() == []
    assert fetch(wire, "a", full) == [b"before", b"after"]


def test_no_partition_leads_while_a_thread_creates_files(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int],
) -> None:
    _, broker, *_ = served

    async def scenario() -> None:
        whole = broker.broker.services.image_follower
        whole.stop_leading()
        async with whole.making_logs:
            leading = asyncio.ensure_future(whole.lead_again())
            await asyncio.wait([leading], timeout=0.05)
            assert not leading.done()
            assert not any(partition.is_leader for partition in whole._partitions)
        assert await leading
        assert all(partition.is_leader for partition in whole._partitions)

    broker.run(scenario())


def test_find_coordinator_reports_that_its_topic_cannot_be_created_on_a_full_disk() -> None:
    disk = SimDisk()
    with broker_on(disk) as (_, wire):
        assert create(wire, "a") == 0
        disk.fail("write", errno.ENOSPC, path="*/metadata/*")

        def answer() -> str:
            found = wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            return str(found.error_message)

        wait_until(lambda: "__consumer_offsets: " in answer() and "No space left" in answer())
        assert fetch(wire, "a", 0) == []
        disk.heal()
        wait_until(
            lambda: (
                wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code == 0
            )
        )


def test_replicas_that_there_was_no_room_to_make_are_made_when_there_is(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    disk, broker, wire, _, sound = served
    full = disk.fail("mkdir", errno.ENOSPC, path="*/b-*")
    assert create(wire, "b") == 0
    assert [produce(wire, "b", partition, b"refused") for partition in (0, 1)] == [STORAGE_ERROR] * 2
    assert produce(wire, "a", sound, b"after") == 0
    # They were tried again, and there was no room yet.
    wait_until(lambda: full.fired > 4)
    said = [record for record in caplog.records if record.message == "partition is offline"]
    assert len(said) == 2, "each was said once"
    disk.heal()
    for partition in (0, 1):
        wait_until(lambda partition=partition: produce(wire, "b", partition, b"kept") == 0)  # type: ignore[misc]
        assert fetch(wire, "b", partition) == [b"kept"]
    assert broker.broker.services.partitions.without_room() == []
    assert offline(broker) == {}


def test_a_replica_that_could_not_be_created_is_forgotten_with_its_topic(
    served: tuple[SimDisk, EmbeddedBroker, Wire, int, int],
) -> None:
    disk, broker, wire, *_ = served
    disk.fail("mkdir", errno.ENOSPC, path="*/b-*")
    assert create(wire, "b") == 0
    assert broker.broker.services.partitions.without_room() != []
    asyncio.run_coroutine_threadsafe(
        broker.broker.services.changes.cluster.delete_topic("b"), broker.run(running_loop())
    ).result(LIMIT_S)
    assert broker.broker.services.partitions.without_room() == []
    disk.heal()
    assert create(wire, "c") == 0
    assert offline(broker) == {}


def test_a_replica_that_lacked_a_file_descriptor_is_created_when_one_is_free() -> None:
    disk = SimDisk()
    with broker_on(disk, log_dirs="/disks/1") as (broker, wire):
        disk.fail("create", errno.EMFILE, path="*/u-0/*")
        disk.fail("remove", errno.EMFILE, path="*/u-0*")
        assert create(wire, "u") == 0
        assert produce(wire, "u", 0, b"refused") == STORAGE_ERROR
        disk.heal()
        wait_until(lambda: produce(wire, "u", 0, b"taken") == 0)
        assert fetch(wire, "u", 0) == [b"taken"]
        (directory,) = broker.broker.directories
        assert not directory._partition_logs._incomplete
