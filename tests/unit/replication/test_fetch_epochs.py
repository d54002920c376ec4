"""Fetching across leader epochs: every request names the epoch, and late responses are dropped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from felice.config import BrokerConfig
from felice.env import SystemClock
from felice.metadata import BrokerImage, ClusterImage, PartitionImage, TopicImage
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from felice.records.batch import stamp
from felice.replication.fetcher import Fetchers
from waiting import LIMIT_S

from .test_partition import batch
from .test_partitions import image, open_directory, registry

ID = UUID(int=1 | 1 << 100)
LEADER = 2


def records_at(offset: int) -> PartitionData:
    data = batch()
    stamp(data, 0, offset, 0)
    return PartitionData(partition_index=0, high_watermark=1, records=bytes(data))


DIVERGED = PartitionData(
    partition_index=0, high_watermark=1, diverging_epoch=EpochEndOffset(epoch=0, end_offset=0)
)
OUT_OF_RANGE = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)


class PatientLeader:
    """A leader that answers each Fetch when the test says so, and ListOffsets at once."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[FetchRequest, asyncio.Future[FetchResponse]]] = asyncio.Queue()

    async def call(self, source: int, api: Any, request: Any, timeout_s: float, lane: str) -> Any:
        if isinstance(request, ListOffsetsRequest):
            row = ListOffsetsPartitionResponse(partition_index=0, offset=700)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=[row])])
        answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        await self.asked.put((request, answer))
        return await answer


def led_in(epoch: int) -> ClusterImage:
    replicas = (LEADER, 1)
    partition = PartitionImage(0, replicas, LEADER, epoch, replicas, partition_epoch=epoch)
    shown = image(TopicImage("a", ID, (partition,), created_zxid=1))
    return ClusterImage(topics=shown.topics, brokers={LEADER: BrokerImage(LEADER, {}, None, 0)})


def answer(row: PartitionData) -> FetchResponse:
    return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=ID, partitions=[row])])


def epochs_asked(request: FetchRequest) -> list[int]:
    return [row.current_leader_epoch for topic in request.topics for row in topic.partitions]


@pytest.mark.parametrize(
    "late", [records_at(1), DIVERGED, OUT_OF_RANGE], ids=["records", "diverged", "out-of-range"]
)
def test_a_response_of_an_earlier_epoch_changes_nothing_and_the_next_request_has_the_new_epoch(
    tmp_path: Path, late: PartitionData
) -> None:
    async def scenario() -> None:
        directory = open_directory(tmp_path)
        partitions = registry(directory)
        first, second = led_in(0), led_in(1)
        partitions.apply(image(), first)
        leader = PatientLeader()
        config, _ = BrokerConfig.parse({})
        fetchers = Fetchers(1, leader, SystemClock(), lambda: config, lambda: 5)  # type: ignore[arg-type]
        fetchers.follow(partitions, first)
        request, reply = await leader.asked.get()
        assert epochs_asked(request) == [0]
        reply.set_result(answer(records_at(0)))
        request, reply = await leader.asked.get()

        partitions.apply(first, second)
        fetchers.follow(partitions, second)
        reply.set_result(answer(late))
        request, _ = await leader.asked.get()
        assert partitions.find("a", 0).log_end_offset == 1
        assert epochs_asked(request) == [1]
        await fetchers.stop()
        directory.close()

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await scenario()

    asyncio.run(limited())


def test_a_partition_that_waits_after_an_error_is_asked_for_at_once_in_a_new_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        directory = open_directory(tmp_path)
        partitions = registry(directory)
        first, second = led_in(0), led_in(1)
        partitions.apply(image(), first)
        leader = PatientLeader()
        config, _ = BrokerConfig.parse({"replica.fetch.backoff.ms": "3600000"})
        fetchers = Fetchers(1, leader, SystemClock(), lambda: config, lambda: 5)  # type: ignore[arg-type]
        fetchers.follow(partitions, first)
        _, reply = await leader.asked.get()
        reply.set_result(answer(PartitionData(partition_index=0, error_code=ErrorCode.FENCED_LEADER_EPOCH)))
        for _ in range(10):  # until the response is processed, which takes only turns of the event loop
            await asyncio.sleep(0)
        assert leader.asked.empty()
        partitions.apply(first, second)
        fetchers.follow(partitions, second)
        request, _ = await leader.asked.get()
        assert epochs_asked(request) == [1]
        await fetchers.stop()
        directory.close()

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await scenario()

    asyncio.run(limited())


def test_only_open_partitions_that_another_broker_leads_are_fetched(tmp_path: Path) -> None:
    """This holds also if the image names this broker: for a partition that it leads, or that was closed since."""

    async def scenario() -> None:
        directory = open_directory(tmp_path)
        partitions = registry(directory)
        rows = [(1, LEADER), (LEADER, 1), (LEADER, 1), (9, 1)]
        shown = image(
            TopicImage(
                "a",
                ID,
                tuple(
                    PartitionImage(number, replicas, replicas[0], 0, replicas, partition_epoch=0)
                    for number, replicas in enumerate(rows)
                ),
                created_zxid=1,
            )
        )
        brokers = {broker: BrokerImage(broker, {}, None, 0) for broker in (1, LEADER)}
        shown = ClusterImage(topics=shown.topics, brokers=brokers)
        partitions.apply(image(), shown)
        partitions.find("a", 2).close(ErrorCode.KAFKA_STORAGE_ERROR)
        leader = PatientLeader()
        config, _ = BrokerConfig.parse({"num.replica.fetchers": "1"})
        fetchers = Fetchers(1, leader, SystemClock(), lambda: config, lambda: 5)  # type: ignore[arg-type]
        fetchers.follow(partitions, shown)
        request, _ = await leader.asked.get()
        assert [row.partition for topic in request.topics for row in topic.partitions] == [1]
        for _ in range(10):
            await asyncio.sleep(0)
        assert leader.asked.empty(), "nobody else is asked"
        await fetchers.stop()
        directory.close()

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await scenario()

    asyncio.run(limited())
