"""Each invariant is broken by reaching inside: the partition stops and serves nothing, and the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from felice.config import TopicConfig
from felice.env import SystemClock
from felice.log import retention
from felice.log.directory import LogDirectory
from felice.log.durability import Durability
from felice.log.producers import ProducerStates
from felice.log.readable import ReadableLog
from felice.log.segment import Segment
from felice.metadata.image import PartitionImage
from felice.metadata.layout import StateNode
from felice.protocol.errors import ApiError, BrokenInvariant, ErrorCode
from felice.records.batch import stamp
from felice.records.builder import BatchBuilder
from felice.replication.leader import IsrProposal, Leader, without
from felice.replication.partition import ACKS_ALL, Partition
from felice.testing.simulation.disk import SimDisk

from .test_partition import NOW_MS, batch, placed
from .test_partitions import FIRST, image, registry, topic

NEVER = 2**62


class Broken:
    """A broker with two partitions of three records each; a test breaks an invariant of the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.disk = SimDisk()
        self.disk.mkdir(Path("/d"))
        self.directory = self._opened()
        self.partitions = registry(self.directory)
        self.directory.on_log_offline = self.partitions.on_log_offline
        self.unservable: list[tuple[str, int]] = []
        self.partitions.on_unservable = lambda name, topic_id, number, replicas: self.unservable.append(
            (name, number)
        )
        self.partitions.apply(image(), image(topic("a", FIRST, 2)))
        for number in (0, 1):
            append(self.partitions.find("a", number), 3)
        self.partition = self.partitions.find("a", 0)

    def _opened(self) -> LogDirectory:
        directory = LogDirectory(self.disk, SystemClock(), Path("/d"))
        directory.acquire(node_id=1, cluster_id="c", new_directory_id=UUID(int=7))
        directory.load(lambda topic: TopicConfig())
        return directory

    @property
    def leader(self) -> Leader:
        assert self.partition.leader is not None
        return self.partition.leader

    def set(self, target: object, name: str, value: object) -> None:
        self.monkeypatch.setattr(target, name, value)

    def role(self, **facts: Any) -> None:
        self.partition.update_role(replace(self.partition.image, **facts))

    def follow(self) -> None:
        self.role(leader=2, leader_epoch=1, replicas=(1, 2), isr=(1, 2), partition_epoch=1)


def append(partition: Partition, count: int = 1, sequence: int | None = None) -> None:
    data = batch(count)
    if sequence is not None:
        builder = BatchBuilder(producer_id=9, producer_epoch=0, base_sequence=sequence)
        for _ in range(count):
            builder.append(NOW_MS, b"k", b"v")
        data = bytearray(builder.build())
    partition.append(data, required_acks=ACKS_ALL, now_ms=NOW_MS)


def read(partition: Partition) -> bytes:
    records = partition.fetch(0, 10_000).records
    return records.read() if records is not None else b""


def follower_append(partition: Partition, data: bytes | bytearray, high_watermark: int = 3) -> None:
    partition.append_as_follower(data, high_watermark=high_watermark, log_start_offset=0, now_ms=NOW_MS)


def of_epoch(offset: int, epoch: int) -> bytearray:
    data = placed(offset, 1)
    stamp(data, 0, offset, epoch)
    return data


# -- the log ---------------------------------------------------------------------------------------


def a_segment_that_lacks_the_end(broken: Broken) -> None:
    broken.partition.log.segments.active.next_offset = 2
    append(broken.partition)


def an_append_that_does_not_raise_the_end(broken: Broken) -> None:
    note = Segment.note

    def forgetful(self: Segment, *arguments: Any) -> None:
        note(self, *arguments)
        self.next_offset = 3

    broken.set(Segment, "note", forgetful)
    append(broken.partition)


def an_append_in_an_older_epoch(broken: Broken) -> None:
    broken.partition.log.epochs.assign(7, 1)
    append(broken.partition)


def a_followers_append_in_an_older_epoch(broken: Broken) -> None:
    broken.follow()
    broken.partition.log.epochs.assign(1, 1)
    follower_append(broken.partition, of_epoch(3, 0))


def epochs_of_a_leader_that_go_back(broken: Broken) -> None:
    broken.follow()
    follower_append(broken.partition, of_epoch(3, 1) + of_epoch(4, 0))


def a_sequence_that_skips(broken: Broken) -> None:
    append(broken.partition, sequence=0)
    broken.set(ProducerStates, "check", lambda *_, **__: None)
    append(broken.partition, sequence=2)


def a_recovery_point_beyond_the_end(broken: Broken) -> None:
    end_flush = Durability.end_flush

    def ahead(self: Durability, *arguments: Any) -> None:
        end_flush(self, *arguments)
        self.recovery_point += 1

    broken.set(Durability, "end_flush", ahead)
    broken.partition.log.flush()


def retention_above_the_high_watermark(broken: Broken) -> None:
    log = broken.partition.log
    log.roll()
    append(broken.partition, 2)
    log.roll()
    broken.set(retention, "deletable", lambda *_, **__: [retention.Reason.SIZE] * 2)
    log.apply_retention(NOW_MS, high_watermark=4)


def cleaning_of_the_active_segment(broken: Broken) -> None:
    log = broken.partition.log
    log.replace_segments([log.segments.active], log.segments.active, truncations=log.truncations)


def a_truncation_that_keeps_records(broken: Broken) -> None:
    broken.follow()
    broken.set(Segment, "truncate", lambda self, offset: None)
    broken.partition.follow_divergence(0, 1)


# -- watermarks ------------------------------------------------------------------------------------


def a_high_watermark_beyond_the_end_moves(broken: Broken) -> None:
    broken.partition.on_durable(4)
    raise broken.partition._failure or AssertionError("it goes on")


def a_high_watermark_beyond_the_end_is_served(broken: Broken) -> None:
    broken.partition.high_watermark = 4
    read(broken.partition)


def a_high_watermark_that_falls(broken: Broken) -> None:
    broken.role(replicas=(1, 2), isr=(1, 2), partition_epoch=1)
    broken.partition.high_watermark = 2
    broken.partition.on_config_change()
    raise broken.partition._failure or AssertionError("it goes on")


def a_high_watermark_above_an_in_sync_follower(broken: Broken) -> None:
    broken.role(replicas=(1, 2), isr=(1, 2), partition_epoch=1)
    append(broken.partition)
    broken.set(Leader, "next_high_watermark", lambda *_, **__: 4)
    broken.partition.on_config_change()
    raise broken.partition._failure or AssertionError("it goes on")


def a_stable_offset_above_the_high_watermark(broken: Broken) -> None:
    broken.role(replicas=(1, 2), isr=(1, 2), partition_epoch=1)
    append(broken.partition)
    broken.set(ReadableLog, "last_stable_offset", lambda self, high_watermark: high_watermark + 1)
    broken.partition.fetch(0, 10_000, read_committed=True)


def a_log_start_above_the_high_watermark(broken: Broken) -> None:
    broken.role(replicas=(1, 2), isr=(1, 2), partition_epoch=1)
    append(broken.partition)
    broken.partition.log.delete_records_before(4)
    broken.partition.fetch(4, 10_000)


# -- roles -----------------------------------------------------------------------------------------


def two_leaders_in_one_epoch(broken: Broken) -> None:
    broken.role(leader=2, replicas=(1, 2), isr=(1, 2), partition_epoch=1)


def a_leader_outside_the_isr(broken: Broken) -> None:
    broken.role(replicas=(1, 2), isr=(2,), leader_epoch=1, partition_epoch=1)


def a_proposal_without_the_leader(broken: Broken) -> None:
    broken.role(replicas=(1, 2), isr=(1, 2), partition_epoch=1)
    broken.set(Leader, "propose_shrinkage", lambda *_, **__: IsrProposal((2,), 0, 1))
    broken.partitions.shrink_isrs()  # goes on with other partitions
    broken.partition.check_leader(-1)


def a_proposal_of_a_broker_without_a_replica(broken: Broken) -> None:
    broken.role(replicas=(1, 2), isr=(1, 2), partition_epoch=1)
    broken.set(Leader, "propose_shrinkage", lambda *_, **__: IsrProposal((1, 3), 0, 1))
    broken.partitions.shrink_isrs()
    broken.partition.check_leader(-1)


def a_leader_that_takes_anothers_records(broken: Broken) -> None:
    follower_append(broken.partition, placed(3, 1))


def a_leader_that_truncates(broken: Broken) -> None:
    broken.partition.follow_divergence(0, 1)


def a_leader_that_looks_for_its_place(broken: Broken) -> None:
    broken.partition.follow_out_of_range(5, 9)


BREAKS: dict[Callable[[Broken], None], str] = {
    a_segment_that_lacks_the_end: "L1",
    an_append_that_does_not_raise_the_end: "L1",
    an_append_in_an_older_epoch: "R2",
    a_followers_append_in_an_older_epoch: "R2",
    epochs_of_a_leader_that_go_back: "R2",
    a_sequence_that_skips: "T2",
    a_recovery_point_beyond_the_end: "L4",
    retention_above_the_high_watermark: "L9",
    cleaning_of_the_active_segment: "L10",
    a_truncation_that_keeps_records: "R5",
    a_high_watermark_beyond_the_end_moves: "R1",
    a_high_watermark_beyond_the_end_is_served: "R1",
    a_high_watermark_that_falls: "R1",
    a_high_watermark_above_an_in_sync_follower: "R1",
    a_stable_offset_above_the_high_watermark: "T1",
    a_log_start_above_the_high_watermark: "L9",
    two_leaders_in_one_epoch: "R2",
    a_leader_outside_the_isr: "R4",
    a_proposal_without_the_leader: "R4",
    a_proposal_of_a_broker_without_a_replica: "R4",
    a_leader_that_takes_anothers_records: "R2",
    a_leader_that_truncates: "R2",
    a_leader_that_looks_for_its_place: "R2",
}


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        call()
    return error.value.code


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda found: found.__name__)
def test_a_broken_invariant_stops_its_partition(
    break_it: Callable[[Broken], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(monkeypatch)
    partition, other = broken.partition, broken.partitions.find("a", 1)
    with monkeypatch.context() as patches, pytest.raises(ApiError) as error:
        broken.monkeypatch = patches
        break_it(broken)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    assert not partition.is_open and partition.log.offline_reason is not None
    for serve in (
        lambda: append(partition),
        lambda: read(partition),
        lambda: partition.fetch(0, 10_000, replica_id=2),
        lambda: partition.fetch(0, 10_000, from_any_replica=True),
        lambda: partition.check_leader(-1),
        lambda: partition.log.read(0, 10_000, end_offset=3),
    ):
        assert code_of(serve) == ErrorCode.KAFKA_STORAGE_ERROR

    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    facts = vars(line)
    assert (facts["partition"], facts["invariant"]) == ("a-0", BREAKS[break_it])
    assert f"invariant {BREAKS[break_it]} is broken" in facts["reason"] and "=" in facts["reason"]

    assert broken.unservable == [("a", 0)], "another replica takes over where one can"
    assert broken.partitions.offline() == {"a": (0,)}
    assert not broken.partitions.without_room(), "no attempt is made to reopen it"
    append(other)
    assert len(read(other)) > 0 and other.high_watermark == 4


def test_a_leader_takes_a_broker_without_a_replica_out_of_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator may have edited the assignment: the leader mends it."""
    broken = Broken(monkeypatch)
    broken.role(replicas=(1, 2), isr=(1, 3), leader_epoch=1, partition_epoch=1)
    assert broken.partition.is_leader
    proposal = broken.leader.propose_shrinkage(
        broken.partition.high_watermark,
        log_end_offset=3,
        lag_time_max_ms=0,
        broker_epoch_of=lambda broker: None,
        now_ms=0,
    )
    assert proposal is not None and proposal.isr == (1,)
    assert without(1, StateNode(1, 1, 1, (1, 4)), (1, 2)) is None, "no replica but this is in sync"


def test_a_request_that_waits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Broken(monkeypatch)
    broken.role(replicas=(1, 2), isr=(1, 2), partition_epoch=1)

    async def scenario() -> None:
        info = broken.partition.append(batch(), required_acks=ACKS_ALL, now_ms=NOW_MS)
        waiting = asyncio.ensure_future(broken.partition.wait_acknowledged(info, ACKS_ALL, 60))
        await asyncio.sleep(0)
        broken.partition.high_watermark = 9
        with pytest.raises(BrokenInvariant):
            read(broken.partition)
        with pytest.raises(ApiError) as error:
            await waiting
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(scenario())


def test_an_image_with_a_broken_isr_stops_only_its_partition(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(monkeypatch)
    before = topic("a", FIRST, 2)
    bad = PartitionImage(0, (1,), 1, 1, (2,), partition_epoch=1)
    good = PartitionImage(1, (1,), 1, 1, (1,), partition_epoch=1)
    broken.partitions.apply(image(before), image(replace(before, partitions=(bad, good), version=1)))
    assert not broken.partition.is_open
    assert broken.partitions.find("a", 1).is_leader
    assert [record.message[:15] for record in caplog.records if record.levelno >= logging.ERROR] == [
        "an invariant is"
    ]


def test_a_restart_serves_the_partition_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Broken(monkeypatch)
    broken.partition.high_watermark = 9
    with pytest.raises(BrokenInvariant):
        read(broken.partition)
    broken.directory.close(broken.partitions.high_watermarks(broken.directory))
    assert not broken.disk.exists(Path("/d/.kafka_cleanshutdown")), "the next start recovers the log"
    again = registry(broken._opened())
    again.apply(image(), image(topic("a", FIRST, 2)))
    assert again.find("a", 0).high_watermark == 3
    assert len(read(again.find("a", 0))) > 0
