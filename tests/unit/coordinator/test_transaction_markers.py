"""Sending markers: retries, moving leaders, deleted topics, and coordinators that stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from felice.coordinator.transaction import markers
from felice.coordinator.transaction.markers import MarkerSender, marker_request
from felice.coordinator.transaction.metadata import V1, V2, TransactionMetadata
from felice.coordinator.transaction.states import TransactionState
from felice.metadata.image import ClusterImage, PartitionImage, TopicImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from felice.protocol.topic_partition import TopicPartition
from waiting import let_run, until

DECIDED = TransactionMetadata(
    producer_id=7,
    epoch=3,
    timeout_ms=1000,
    last_update_ms=0,
    state=TransactionState.PREPARE_COMMIT,
    partitions=frozenset({TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)}),
)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "FIRST_PAUSE_S", 0.0)


@dataclass
class Cluster:
    """The leaders by partition, and the errors that they answer first."""

    leaders: dict[tuple[str, int], int]
    errors: dict[tuple[str, int], list[ErrorCode]] = field(default_factory=dict)
    unreachable: int = 0
    asked: list[tuple[int, str, int]] = field(default_factory=list)
    requests: list[WriteTxnMarkersRequest] = field(default_factory=list)

    def image(self) -> ClusterImage:
        topics: dict[str, list[PartitionImage]] = {}
        for (topic, index), leader in sorted(self.leaders.items()):
            topics.setdefault(topic, []).append(PartitionImage(index, (leader,), leader=leader))
        return ClusterImage(
            topics={name: TopicImage(name, UUID(int=1), tuple(rows)) for name, rows in topics.items()}
        )

    async def write_markers(self, leader: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.requests.append(request)
        if self.unreachable:
            self.unreachable -= 1
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE)
        await asyncio.sleep(0)
        (marker,) = request.markers
        topics = []
        for topic in marker.topics:
            rows = []
            for index in topic.partition_indexes:
                self.asked.append((leader, topic.name, index))
                left = self.errors.get((topic.name, index), [])
                code = left.pop(0) if left else ErrorCode.NONE
                rows.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
        return WriteTxnMarkersResponse(
            markers=[WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)]
        )

    def sender(self) -> MarkerSender:
        return MarkerSender(self.image, self)


async def test_each_leader_gets_one_request() -> None:
    cluster = Cluster({("t", 0): 1, ("t", 1): 2, ("u", 0): 1})
    assert await cluster.sender().send(DECIDED, 5, lambda: True)
    assert sorted(cluster.asked) == [(1, "t", 0), (1, "u", 0), (2, "t", 1)]
    assert len(cluster.requests) == 2
    marker = cluster.requests[0].markers[0]
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
    assert marker.transaction_result


async def test_an_abort_marker_says_that_it_aborts() -> None:
    cluster = Cluster({("t", 0): 1, ("t", 1): 1, ("u", 0): 1})
    aborted = replace(DECIDED, state=TransactionState.PREPARE_ABORT)
    assert await cluster.sender().send(aborted, 5, lambda: True)
    assert not cluster.requests[0].markers[0].transaction_result


async def test_only_failed_markers_are_sent_again() -> None:
    cluster = Cluster(
        {("t", 0): 1, ("t", 1): 1, ("u", 0): 1},
        {("t", 1): [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]},
        unreachable=1,
    )
    assert await cluster.sender().send(DECIDED, 5, lambda: True)
    assert cluster.asked == [(1, "t", 0), (1, "t", 1), (1, "u", 0), (1, "t", 1), (1, "t", 1)]


async def test_a_partition_without_leader_is_waited_for_and_a_deleted_one_is_not() -> None:
    cluster = Cluster({("t", 0): 1, ("t", 1): -1})
    sending = asyncio.ensure_future(cluster.sender().send(DECIDED, 5, lambda: True))
    await until(lambda: cluster.asked)
    await let_run()
    assert not sending.done()
    cluster.leaders["t", 1] = 2
    assert await sending
    assert cluster.asked == [(1, "t", 0), (2, "t", 1)]


async def test_marker_writes_stop_when_the_coordinator_closes() -> None:
    cluster = Cluster({("t", 0): -1})
    goes_on = [True, True, False]
    assert not await cluster.sender().send(DECIDED, 5, lambda: goes_on.pop(0))


@pytest.mark.parametrize(
    "error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
)
async def test_a_fenced_coordinator_stops(error: ErrorCode) -> None:
    cluster = Cluster({("t", 0): 1}, {("t", 0): [error]})
    with pytest.raises(ApiError) as fenced:
        await cluster.sender().send(DECIDED, 5, lambda: True)
    assert fenced.value.code == error


@pytest.mark.parametrize("version", [V1, V2])
def test_a_marker_says_which_flow_it_ends(version: int) -> None:
    request = marker_request(replace(DECIDED, client_version=version), 5, DECIDED.partitions)
    assert request.markers[0].transaction_version == version
