"""The commits of a member before its partitions are revoked, with automatic commits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from felice.client import Consumer, TopicPartition
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from felice.protocol.messages.join_group import JoinGroupRequest
from felice.protocol.messages.leave_group import LeaveGroupRequest
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from unit.client.group.test_membership import Coordinator, settings, spin


class Committing(Coordinator):
    """Accepts every commit."""

    def _refuse_commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        row = OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.NONE)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[row])])

    def committed(self) -> list[int]:
        return [
            request.topics[0].partitions[0].committed_offset for request in self.asked(OffsetCommitRequest)
        ]


@pytest.fixture
def broker() -> Iterator[Committing]:
    with Committing() as started:
        yield started


def test_offsets_stored_by_the_revoke_callback_are_committed_before_the_revocation(
    broker: Committing,
) -> None:
    committed_in_callback: list[int] = []

    def finish_work(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        committed_in_callback.extend(broker.committed())
        consumer.store_offsets(offsets=[TopicPartition("t", 0, 3)])

    config = settings(broker, enable_auto_offset_store=False, auto_commit_interval_ms=3_600_000)
    with Consumer(config) as consumer:
        consumer.subscribe(["t"], on_revoke=finish_work)
        spin(consumer, lambda: bool(consumer.assignment()))
        consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        spin(consumer, lambda: len(broker.asked(JoinGroupRequest)) == 2)
        assert committed_in_callback == [1], "the callback finds committed what was stored before it"
        order = [
            type(request)
            for request, _ in broker.requests
            if isinstance(request, OffsetCommitRequest | JoinGroupRequest)
        ]
        assert order[-1] is JoinGroupRequest, (
            "nothing is committed after another member may own the partition"
        )
        assert broker.committed() == [1, 3]
        spin(consumer, lambda: bool(consumer.assignment()))


def test_a_leaving_member_commits_the_offsets_that_its_revoke_callback_stores(broker: Committing) -> None:
    config = settings(broker, enable_auto_offset_store=False, auto_commit_interval_ms=3_600_000)
    with Consumer(config) as consumer:
        consumer.subscribe(
            ["t"], on_revoke=lambda one, _: one.store_offsets(offsets=[TopicPartition("t", 0, 2)])
        )
        spin(consumer, lambda: bool(consumer.assignment()))
    last = [request for request, _ in broker.requests][-2:]
    assert [type(request) for request in last] == [OffsetCommitRequest, LeaveGroupRequest]
    assert broker.committed() == [2]


def test_a_member_that_lost_its_partitions_commits_nothing(broker: Committing) -> None:
    lost: list[str] = []
    config = settings(broker, enable_auto_offset_store=False, auto_commit_interval_ms=3_600_000)
    with Consumer(config) as consumer:
        consumer.subscribe(["t"], on_lost=lambda _, partitions: lost.append("t"))
        spin(consumer, lambda: bool(consumer.assignment()))
        consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        spin(consumer, lambda: bool(lost) and bool(consumer.assignment()))
        assert broker.committed() == []
