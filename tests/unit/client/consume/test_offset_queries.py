"""A consumer's queries without consuming: offsets by time, the ends of a partition, committed offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from felice.client import OFFSET_END, OFFSET_INVALID, Consumer, KafkaException, TopicPartition
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from unit.client.fake_broker import FakeBroker

EARLIEST, LATEST = -2, -1
# By time: offset, leader epoch.
FOUND = {EARLIEST: (3, 1), LATEST: (9, 2), 1000: (5, 1), 2000: (-1, -1)}


class Timed(FakeBroker):
    """Partition 0 holds offsets 3 to 8; partition 1 is not authorized; the group committed offsets for 0 and 3."""

    def __init__(self) -> None:
        super().__init__({"t": 4})
        self.handlers[ListOffsetsRequest] = self._by_time
        self.handlers[OffsetFetchRequest] = self._commits

    def _by_time(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        rows = []
        for row in request.topics[0].partitions:
            offset, epoch = FOUND[row.timestamp]
            refused = row.partition_index == 1
            rows.append(
                ListOffsetsPartitionResponse(
                    partition_index=row.partition_index,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED if refused else ErrorCode.NONE,
                    offset=-1 if refused else offset,
                    leader_epoch=-1 if refused else epoch,
                )
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])

    def _commits(self, request: Any, version: int) -> OffsetFetchResponse:
        facts = {0: (7, 4, "note", 0), 1: (-1, -1, "", 0), 2: (-1, -1, "", 29), 3: (8, -1, "", 0)}
        rows = [
            OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=facts[number][0],
                committed_leader_epoch=facts[number][1],
                metadata=facts[number][2],
                error_code=facts[number][3],
            )
            for number in request.groups[0].topics[0].partition_indexes
        ]
        topics = [OffsetFetchResponseTopics(name="t", partitions=rows)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    with Timed() as broker, Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"}) as made:
        yield made


def test_lookup_by_time_returns_offsets_the_end_or_an_error_per_partition(consumer: Consumer) -> None:
    asked = [TopicPartition("t", 0, 1000), TopicPartition("t", 1, 1000), TopicPartition("t", 2, 2000)]
    rows = consumer.offsets_for_times(asked, timeout=60)
    assert [(row.topic, row.partition, row.offset) for row in rows] == [
        ("t", 0, 5),
        ("t", 1, 1000),
        ("t", 2, OFFSET_END),
    ]
    assert [row.error and row.error.code() for row in rows] == [
        None,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        None,
    ]
    assert rows[0].leader_epoch == 1


def test_the_ends_of_a_partition_are_its_first_offset_and_the_watermark(consumer: Consumer) -> None:
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=60) == (3, 9)
    with pytest.raises(KafkaException) as refused:
        consumer.get_watermark_offsets(TopicPartition("t", 1), timeout=60)
    assert refused.value.args[0].code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("left", [0, 1])
def test_a_lookup_is_repeated_if_the_reply_leaves_its_partition_out(left: int) -> None:
    """`left`: how many partitions the first reply tells; it also tells one that was not asked for."""
    with Timed() as broker, Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"}) as consumer:
        whole = broker.handlers[ListOffsetsRequest]
        foreign = ListOffsetsPartitionResponse(partition_index=3, offset=77)

        def lacking(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
            response: ListOffsetsResponse = whole(request, version)
            response.topics[0].partitions[left:] = [foreign]
            broker.handlers[ListOffsetsRequest] = whole
            return response

        broker.handlers[ListOffsetsRequest] = lacking
        asked = [TopicPartition("t", 0, 1000), TopicPartition("t", 2, 2000)]
        rows = consumer.offsets_for_times(asked, timeout=60)
        assert [(row.offset, row.error) for row in rows] == [(5, None), (OFFSET_END, None)]
        broker.handlers[ListOffsetsRequest] = lacking
        assert consumer.get_watermark_offsets(TopicPartition("t", 2), timeout=60) == (3, 9)


def test_committed_returns_metadata_and_epoch_or_an_error_per_partition(
    consumer: Consumer,
) -> None:
    rows = consumer.committed([TopicPartition("t", number) for number in range(4)], timeout=60)
    assert [(row.partition, row.offset, row.metadata, row.leader_epoch) for row in rows] == [
        (0, 7, "note", 4),
        (1, OFFSET_INVALID, None, None),
        (2, OFFSET_INVALID, None, None),
        (3, 8, None, None),
    ]
    assert [row.error and row.error.code() for row in rows] == [
        None,
        None,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        None,
    ]
