"""One partition: its role, its high watermark, and the requests that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from felice.config import TopicConfig
from felice.env import SystemClock, SystemDisk
from felice.log.answers import AppendInfo, AppendOrigin
from felice.log.log import Log
from felice.metadata.image import PartitionImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import stamp
from felice.records.builder import BatchBuilder, build_batch, build_control
from felice.records.control import ControlType, EndTransactionMarker
from felice.records.record import Record
from felice.replication.dependencies import PartitionDependencies
from felice.replication.divergence import Divergence
from felice.replication.leader import SessionLiveness
from felice.replication.partition import ACKS_ALL, Partition
from waiting import LIMIT_S

NOW_MS = SystemClock().now_ms()


def batch(count: int = 1) -> bytearray:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(NOW_MS, b"k", b"v%d" % number)
    return bytearray(builder.build())


def placed(offset: int, count: int) -> bytearray:
    data = batch(count)
    stamp(data, 0, offset, 0)
    return data


class LazyDisk(SystemDisk):
    """A disk whose log files are synced only when the test lets them."""

    def __init__(self) -> None:
        self.failure: OSError | None = None
        self.syncs = 0

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> Any:
        file = super().open(path, create=create, read_only=read_only)
        disk, sync = self, file.sync

        class Counted:
            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def sync(self) -> None:
                disk.syncs += 1
                if disk.failure:
                    raise disk.failure
                sync()

        return Counted()


def make(tmp_path: Path, config: TopicConfig | None = None, disk: SystemDisk | None = None) -> Partition:
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = Log.open(
        disk or SystemDisk(),
        SystemClock(),
        directory,
        ("t", 0),
        config or TopicConfig(),
        recovery_point=0,
        log_start_offset=0,
        clean_shutdown=True,
    )
    return Partition(1, log, UUID(int=5), PartitionDependencies(SystemClock()))


def lead(partition: Partition, epoch: int = 0, **facts: Any) -> None:
    image = PartitionImage(0, **{"replicas": (1,), "leader": 1, "isr": (1,), **facts}, leader_epoch=epoch)
    partition.update_role(image)


def append(partition: Partition, count: int = 1, acks: int = 1) -> AppendInfo:
    return partition.append(batch(count), required_acks=acks, now_ms=NOW_MS)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))  # type: ignore[arg-type]


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        call()
    return error.value.code


def test_only_the_leader_appends_and_serves(tmp_path: Path) -> None:
    partition = make(tmp_path)
    assert code_of(lambda: append(partition)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    lead(partition)
    append(partition, 3)
    assert (partition.high_watermark, partition.log_end_offset, partition.last_stable_offset) == (3, 3, 3)
    lead(partition, 1, leader=2)
    assert code_of(lambda: append(partition)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(lambda: partition.fetch(0, 100)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_batches_carry_the_leader_epoch_and_an_election_begins_one(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition, 3)
    append(partition, 2)
    lead(partition, 5)
    # The epoch begins with the election, not with its first record.
    assert partition.end_offset_for_epoch(5) == Divergence(5, 2)
    append(partition)
    assert partition.end_offset_for_epoch(3) == Divergence(3, 2)
    assert partition.end_offset_for_epoch(4) == Divergence(3, 2)
    assert partition.end_offset_for_epoch(5) == Divergence(5, 3)
    assert partition.end_offset_for_epoch(1) == Divergence(1, 0)
    assert partition.end_offset_for_epoch(6) == Divergence(-1, -1)


def test_a_wrong_leader_epoch_is_reported_as_too_old_or_too_new(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition, 4)
    append(partition)
    assert partition.fetch(0, 100, current_leader_epoch=4).records
    assert code_of(lambda: partition.fetch(0, 1, current_leader_epoch=3)) == ErrorCode.FENCED_LEADER_EPOCH
    assert code_of(lambda: partition.fetch(0, 1, current_leader_epoch=5)) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_fetch_at_the_end_is_empty_and_outside_is_refused(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition)
    append(partition, 3)
    assert partition.fetch(3, 100).records is None
    for offset in (-1, 4):
        assert code_of(lambda offset=offset: partition.fetch(offset, 1)) == ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[misc]
    partition.delete_records_before(2)
    assert code_of(lambda: partition.fetch(1, 1)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.fetch(2, 1000).log_start_offset == 2


def test_the_first_batch_comes_whole_however_small_the_limit(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition)
    append(partition, 5)
    found = partition.fetch(0, 1)
    assert found.records is not None
    assert found.records.size_bytes == partition.log.size_bytes
    assert partition.fetch(0, 1, min_one=False).records is None


def test_a_fetcher_whose_log_diverged_gets_the_point_of_divergence(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition, 1)
    append(partition, 2)
    lead(partition, 3)
    append(partition, 2)
    assert partition.fetch(4, 100, last_fetched_epoch=3).divergence is None
    assert partition.fetch(3, 100, last_fetched_epoch=1).divergence == Divergence(1, 2)
    assert partition.fetch(3, 100, last_fetched_epoch=2).divergence == Divergence(1, 2)


def test_only_acks_all_needs_min_insync_replicas(tmp_path: Path) -> None:
    partition = make(tmp_path, TopicConfig(min_insync_replicas=2))
    lead(partition, replicas=(1, 2), isr=(1,))
    assert code_of(lambda: append(partition, acks=ACKS_ALL)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log_end_offset == 0
    append(partition, acks=1)
    # The effective minimum is never above the replication factor.
    lead(partition, 1, replicas=(1,), isr=(1,))
    append(partition, acks=ACKS_ALL)


def test_records_are_deleted_up_to_the_high_watermark_at_most(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition)
    append(partition, 3)
    assert partition.delete_records_before(1) == 1
    assert code_of(lambda: partition.delete_records_before(4)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(lambda: partition.delete_records_before(-2)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records_before(-1) == 3


def test_records_of_a_compacted_topic_are_not_deleted(tmp_path: Path) -> None:
    partition = make(tmp_path, TopicConfig(cleanup_policy=("compact",)))
    lead(partition)
    append(partition, 3)
    assert code_of(lambda: partition.delete_records_before(1)) == ErrorCode.POLICY_VIOLATION
    partition.log.update_config(TopicConfig(cleanup_policy=("compact", "delete")))
    assert partition.delete_records_before(1) == 1


def test_readers_are_woken_by_an_append_an_election_and_the_end(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition)
    rings: list[int] = []
    partition.on_advance.add(lambda: rings.append(partition.high_watermark))
    append(partition)
    append(partition)
    assert rings == [1, 2]
    lead(partition, 1)
    partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(rings) == 4
    assert code_of(lambda: partition.fetch(0, 1)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_with_flush_messages_records_are_visible_only_once_they_are_on_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        partition = make(tmp_path, TopicConfig(flush_messages=1))
        lead(partition)
        info = append(partition)
        assert not partition.is_acknowledged(info)
        assert partition.fetch(0, 100).records is None
        await partition.wait_committed(info.last_offset, 5)
        assert partition.is_acknowledged(info)
        assert partition.log.recovery_point == 1
        assert partition.fetch(0, 100).records is not None

    run(scenario)


def test_waiting_appends_share_a_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = LazyDisk()
        partition = make(tmp_path, TopicConfig(flush_messages=1), disk)
        lead(partition)
        before = disk.syncs
        infos = [append(partition) for _ in range(50)]
        await asyncio.gather(*(partition.wait_committed(info.last_offset, 5) for info in infos))
        assert 1 <= disk.syncs - before < 10

    run(scenario)


def test_after_a_failed_sync_nothing_is_acknowledged_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = LazyDisk()
        partition = make(tmp_path, TopicConfig(flush_messages=1), disk)
        lead(partition)
        disk.failure = OSError(5, "Input/output error")
        info = append(partition)
        with pytest.raises(ApiError) as error:
            await partition.wait_committed(info.last_offset, 5)
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert code_of(lambda: append(partition)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert not partition.is_leader

    run(scenario)


def test_a_wait_ends_in_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        partition = make(tmp_path)
        lead(partition)
        with pytest.raises(ApiError) as error:
            await partition.wait_committed(0, 0.01)
        assert error.value.code == ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.ensure_future(partition.wait_committed(0, 5))
        await asyncio.sleep(0)
        partition.close()
        with pytest.raises(ApiError) as moved:
            await waiting
        assert moved.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


# Followers


def pair(partition: Partition, epoch: int = 0, isr: tuple[int, ...] = (1, 2), **facts: Any) -> None:
    lead(partition, epoch, **{"replicas": (1, 2), "isr": isr, "partition_epoch": epoch, **facts})


def fetched(partition: Partition, offset: int, log_start_offset: int = 0) -> None:
    """Broker 2 has everything below `offset`."""
    partition.on_follower_fetch(
        2,
        offset,
        log_start_offset=log_start_offset,
        broker_epoch=-1,
        current_leader_epoch=partition.leader_epoch,
        last_fetched_epoch=-1,
    )


def follow(partition: Partition, epoch: int) -> None:
    pair(partition, epoch, leader=2)


def test_acks_all_waits_for_the_followers_and_acks_1_does_not(tmp_path: Path) -> None:
    partition = make(tmp_path)
    pair(partition)
    info = append(partition, acks=ACKS_ALL)
    assert partition.is_acknowledged(info, 1)
    assert not partition.is_acknowledged(info)
    fetched(partition, 1)
    assert partition.is_acknowledged(info)


def test_a_follower_beyond_the_leaders_end_moves_nothing(tmp_path: Path) -> None:
    partition = make(tmp_path)
    pair(partition)
    append(partition)
    fetched(partition, 99)
    append(partition)
    assert partition.high_watermark == 0
    assert code_of(lambda: partition.fetch(99, 10, replica_id=2)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_producer_gets_an_error_if_the_isr_shrank_before_the_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        partition = make(tmp_path, TopicConfig(min_insync_replicas=2))
        pair(partition)
        info = append(partition, acks=ACKS_ALL)
        fetched(partition, 1)
        pair(partition, isr=(1,), partition_epoch=1)
        with pytest.raises(ApiError) as error:
            await partition.wait_acknowledged(info, ACKS_ALL, 1)
        assert error.value.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    run(scenario)


def test_uncommitted_records_wake_followers(tmp_path: Path) -> None:
    partition = make(tmp_path)
    pair(partition)
    rings: list[int] = []
    partition.on_advance.add(lambda: rings.append(partition.log_end_offset))
    append(partition)
    assert rings == [1]
    for follower in (2, 0):  # brokers may have the number 0
        assert partition.fetch(0, 100, replica_id=follower).records is not None
    assert partition.fetch(0, 100).records is None


def test_the_leaders_disk_delays_acks_1_and_the_watermark_but_not_followers(tmp_path: Path) -> None:
    async def scenario() -> None:
        partition = make(tmp_path, TopicConfig(flush_messages=1))
        pair(partition)
        info = append(partition)
        assert partition.fetch(0, 100, replica_id=2).records is not None
        fetched(partition, 1)
        assert not partition.is_acknowledged(info, 1)
        assert not partition.is_acknowledged(info)
        await partition.wait_acknowledged(info, 1, 5)
        assert partition.is_acknowledged(info)
        assert partition.log.recovery_point == 1

    run(scenario)


def test_truncated_records_are_gone_from_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        partition = make(tmp_path, TopicConfig(flush_messages=1))
        pair(partition, isr=(1,))
        await partition.wait_acknowledged(append(partition, 3), 1, 5)
        follow(partition, 1)
        partition.follow_divergence(0, 0)
        assert (partition.log_end_offset, partition.high_watermark) == (0, 0)
        partition.append_as_follower(batch(3), high_watermark=0, log_start_offset=0, now_ms=NOW_MS)
        pair(partition, 2)
        assert not partition.is_acknowledged(AppendInfo(0, 0, -1, 0), 1)
        await partition.flusher.finish()

    run(scenario)


def test_an_older_image_changes_no_role(tmp_path: Path) -> None:
    partition = make(tmp_path)
    pair(partition, 5)
    follow(partition, 4)
    assert partition.is_leader
    follow(partition, 6)
    pair(partition, 5)
    assert not partition.is_leader


@pytest.mark.parametrize("leader", [1, 2])
def test_an_older_state_of_the_same_epoch_does_not_restore_an_old_isr(tmp_path: Path, leader: int) -> None:
    partition = make(tmp_path)
    pair(partition, 5, leader=leader, isr=(leader,), partition_epoch=8)
    pair(partition, 5, leader=leader, isr=(1, 2), partition_epoch=7)
    assert (partition.isr, partition.partition_epoch) == ((leader,), 8)
    pair(partition, 5, leader=leader, isr=(1, 2), partition_epoch=9)
    assert (partition.isr, partition.partition_epoch) == ((1, 2), 9)


def test_a_follower_copies_bytes_watermark_and_log_start(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    leader, copy = make(tmp_path / "one"), make(tmp_path / "two")
    pair(leader)
    follow(copy, 0)
    append(leader, 2)
    append(leader)
    fetched(leader, 2)
    found = leader.fetch(0, 1000, replica_id=2)
    assert found.records is not None
    copy.append_as_follower(
        bytearray(found.records.read()),
        high_watermark=found.high_watermark,
        log_start_offset=1,
        now_ms=NOW_MS,
    )
    assert (copy.log_end_offset, copy.high_watermark, copy.log_start_offset) == (3, 2, 1)
    assert copy.log.read_bytes(1, 1000, end_offset=3) == leader.log.read_bytes(1, 1000, end_offset=3)
    # A consumer that may ask any replica gets records below its high watermark; others get an error.
    assert copy.fetch(1, 1000, from_any_replica=True).records is not None
    assert code_of(lambda: copy.fetch(1, 1000)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(lambda: copy.fetch(1, 1, replica_id=2, from_any_replica=True)) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    assert (
        code_of(lambda: copy.fetch(1, 1, from_any_replica=True, current_leader_epoch=7))
        == ErrorCode.UNKNOWN_LEADER_EPOCH
    )


def test_a_replica_that_knows_no_leader_does_not_reset_consumers(tmp_path: Path) -> None:
    """A leader that lost its session is such a replica: it lacks newer records, and clients still have its epoch."""
    partition = make(tmp_path)
    lead(partition)
    append(partition, 3)
    lead(partition, leader=-1)
    assert partition.fetch(0, 1000, from_any_replica=True).records is not None
    assert code_of(lambda: partition.fetch(9, 1000, from_any_replica=True)) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def test_deleting_records_waits_for_live_replicas(tmp_path: Path) -> None:
    async def scenario() -> None:
        partition = make(tmp_path)
        partition._dependencies.broker_epoch_of = {2: 20}.get
        pair(partition)
        append(partition, 3)
        fetched(partition, 3)
        start = partition.delete_records_before(2)
        with pytest.raises(ApiError) as error:
            await partition.wait_deleted(start, 0.01)
        assert error.value.code == ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.ensure_future(partition.wait_deleted(start, 5))
        await asyncio.sleep(0)
        fetched(partition, 3, log_start_offset=2)
        assert await waiting == 2
        # A dead replica is not waited for.
        waiting = asyncio.ensure_future(partition.wait_deleted(partition.delete_records_before(3), 5))
        await asyncio.sleep(0)
        partition._dependencies.broker_epoch_of = lambda broker: None
        partition.shrink_isr()
        assert await waiting == 3

    run(scenario)


def test_waiting_requests_fail_when_another_broker_leads(tmp_path: Path) -> None:
    async def scenario() -> None:
        partition = make(tmp_path)
        pair(partition)
        info = append(partition, acks=ACKS_ALL)
        waiting = asyncio.ensure_future(partition.wait_acknowledged(info, ACKS_ALL, 5))
        await asyncio.sleep(0)
        follow(partition, 1)
        with pytest.raises(ApiError) as error:
            await waiting
        assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_follower_without_epochs_keeps_only_committed_records(tmp_path: Path) -> None:
    partition = make(tmp_path)
    pair(partition, isr=(1,))
    append(partition, 2)
    partition.high_watermark = 1
    partition.log.epochs.clear()
    append_one = partition.log.log_end_offset
    assert append_one == 2
    follow(partition, 1)
    # The batch that contains the high watermark is truncated too; the leader has it.
    assert partition.log_end_offset == 0


def test_a_member_that_asks_again_for_earlier_offsets_is_removed_at_once(tmp_path: Path) -> None:
    partition = make(tmp_path)
    proposed: list[tuple[int, ...]] = []
    partition._dependencies.propose = lambda _, proposal: proposed.append(proposal.isr)
    pair(partition)
    append(partition, 2)
    fetched(partition, 2)
    assert proposed == []
    fetched(partition, 1)
    assert proposed == [(1,)]


def test_a_batch_after_a_temporarily_refused_one_is_not_out_of_order(tmp_path: Path) -> None:
    """Otherwise a producer begins a new epoch, and writes unacknowledged records of other partitions twice."""
    partition = make(tmp_path, TopicConfig(min_insync_replicas=2))
    lead(partition, replicas=(1, 2), isr=(1, 2))

    def send(sequence: int) -> AppendInfo:
        records = bytearray(
            build_batch(
                [Record(0, NOW_MS, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence
            )
        )
        return partition.append(records, required_acks=ACKS_ALL, now_ms=NOW_MS)

    send(0)
    lead(partition, 0, replicas=(1, 2), isr=(1,), partition_epoch=1)
    assert code_of(lambda: send(1)) == ErrorCode.NOT_ENOUGH_REPLICAS
    lead(partition, 0, replicas=(1, 2), isr=(1, 2), partition_epoch=2)
    assert code_of(lambda: send(2)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [send(1).base_offset, send(2).base_offset] == [1, 2]
    assert code_of(lambda: send(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_idle_follower_is_woken_by_every_change_that_concerns_it(tmp_path: Path) -> None:
    def lead_on(partition_epoch: int, **facts: Any) -> Callable[[], None]:
        return lambda: pair(partition, partition_epoch=partition_epoch, **facts)

    partition = make(tmp_path)
    pair(partition)
    woken: list[int] = []
    partition.on_advance.add(lambda: woken.append(1))
    changes = [
        lambda: append(partition),
        lambda: fetched(partition, 1),
        lambda: partition.delete_records_before(1),
        lead_on(1, isr=(1,)),
        lambda: partition.close(),
    ]
    for change in changes:
        woken.clear()
        change()
        assert woken
    assert partition.begin_idle(2, 1, SessionLiveness()) is None


def test_cancelling_the_wait_for_a_flush_does_not_stop_the_flush(tmp_path: Path) -> None:
    async def scenario() -> None:
        partition = make(tmp_path, TopicConfig(flush_messages=1))
        lead(partition)
        append(partition)
        waiting = asyncio.ensure_future(partition.flusher.finish())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await partition.flusher.finish()
        assert partition.log.recovery_point == 1
        assert not partition.log.is_flushing
        append(partition)
        await partition.flusher.finish()
        assert partition.high_watermark == 2

    run(scenario)


def test_only_the_coordinator_writes_control_batches(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition)

    def marker() -> bytes:
        end = EndTransactionMarker(ControlType.ABORT, 0)
        return build_control(end, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS)

    with pytest.raises(ApiError):
        partition.append(marker(), required_acks=1, now_ms=NOW_MS)
    partition.append(marker(), required_acks=1, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert partition.log_end_offset == 1


def test_a_batch_that_was_found_invalid_beforehand_is_not_appended(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition)
    verdict = ApiError(ErrorCode.INVALID_RECORD, "found on a thread")
    with pytest.raises(ApiError, match="found on a thread"):
        partition.append(batch(), required_acks=1, now_ms=NOW_MS, verdict=verdict)
    assert partition.log_end_offset == 0


def test_appends_and_their_failures_are_counted_by_kind(tmp_path: Path) -> None:
    partition = make(tmp_path, TopicConfig(max_message_bytes=100))
    lead(partition)
    append(partition, 2)
    too_large = bytes(build_batch([Record(0, NOW_MS, None, b"x" * 200)]))
    damaged = batch()
    damaged[-1] ^= 1
    invalid = ApiError(ErrorCode.INVALID_RECORD, "")
    for records, verdict in ((too_large, None), (bytes(damaged), None), (batch(), invalid)):
        with pytest.raises(ApiError):
            partition.append(records, required_acks=1, now_ms=NOW_MS, verdict=verdict)
    traffic = partition.traffic
    assert (traffic.produce_requests, traffic.messages_in, traffic.bytes_in) == (4, 2, len(batch(2)))
    assert (traffic.bytes_rejected, traffic.failed_produce_requests) == (len(too_large), 1)
    partition.fetch(0, 100)
    assert traffic.fetch_requests == 1


def test_a_replica_that_leaves_the_isr_no_longer_holds_the_watermark(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition, replicas=(1, 2), isr=(1, 2), partition_epoch=0)
    append(partition, 3)
    assert partition.high_watermark == 0
    woken: list[int] = []
    partition.on_advance.add(lambda: woken.append(partition.high_watermark))
    lead(partition, replicas=(1, 2), isr=(1,), partition_epoch=1)
    assert partition.high_watermark == 3 and woken


def test_readers_hear_of_a_new_role_and_of_another_in_sync_set(tmp_path: Path) -> None:
    partition = make(tmp_path)
    woken: list[str] = []
    partition.on_advance.add(lambda: woken.append("woken"))
    for facts in (
        {"partition_epoch": 0},
        {"partition_epoch": 1, "replicas": (1, 2)},
        {"partition_epoch": 2, "leader": 2, "replicas": (1, 2)},
    ):
        woken.clear()
        lead(partition, 1 if facts.get("leader") == 2 else 0, **facts)
        assert woken
    woken.clear()
    # An older image changes nothing.
    lead(partition, 0, partition_epoch=9)
    assert not woken and partition.leader_epoch == 1 and not partition.is_leader


@pytest.mark.parametrize("epoch", [3, 5])
def test_a_refused_epoch_names_both(tmp_path: Path, epoch: int) -> None:
    partition = make(tmp_path)
    lead(partition, 4)
    partition.check_epoch(4)
    partition.check_epoch(-1)
    with pytest.raises(ApiError, match=f"the leader epoch is 4, not {epoch}"):
        partition.check_epoch(epoch)


def test_a_follower_knows_its_leader_s_high_watermark(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition, 0, leader=2, replicas=(2, 1))
    partition.append_as_follower(batch(2), high_watermark=9, log_start_offset=0, now_ms=NOW_MS)
    assert (partition.high_watermark, partition.known_high_watermark) == (2, 9)
    assert partition.traffic.replication_bytes_in == len(batch(2))
    lead(partition, 1)
    assert partition.known_high_watermark == partition.high_watermark == 2


def test_a_follower_deletes_what_its_leader_deleted_but_nothing_uncommitted(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition, 0, leader=2, replicas=(2, 1))
    partition.append_as_follower(batch(2), high_watermark=1, log_start_offset=0, now_ms=NOW_MS)
    partition.append_as_follower(b"", high_watermark=1, log_start_offset=2, now_ms=NOW_MS)
    assert partition.log_start_offset == 1
    partition.append_as_follower(b"", high_watermark=2, log_start_offset=1, now_ms=NOW_MS)
    assert partition.log_start_offset == 1


def test_readers_of_a_follower_are_woken_when_their_offsets_may_be_gone(tmp_path: Path) -> None:
    partition = make(tmp_path)
    lead(partition, 0, leader=2, replicas=(2, 1))
    woken: list[tuple[int, int]] = []
    partition.on_advance.add(lambda: woken.append((partition.log_start_offset, partition.log_end_offset)))
    partition.append_as_follower(batch(4), high_watermark=4, log_start_offset=0, now_ms=NOW_MS)
    partition.append_as_follower(b"", high_watermark=4, log_start_offset=3, now_ms=NOW_MS)
    assert woken[-1] == (3, 4)
    partition.follow_out_of_range(9, 12)
    assert woken[-1] == (9, 9)
    partition.append_as_follower(placed(9, 2), high_watermark=9, log_start_offset=9, now_ms=NOW_MS)
    partition.follow_divergence(0, 9)
    assert woken[-1] == (9, 9)
    # No change, no wake.
    count = partition.change_count
    partition.append_as_follower(b"", high_watermark=9, log_start_offset=9, now_ms=NOW_MS)
    assert partition.change_count == count
