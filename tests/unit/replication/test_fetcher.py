"""How a follower handles one leader's responses: a fault in one partition does not affect the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from felice.config import BrokerConfig
from felice.env import SystemClock
from felice.log.directory import LogDirectory
from felice.metadata import BrokerImage, ClusterImage
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from felice.replication.fetcher import Fetchers
from felice.replication.partition import Partition
from felice.replication.partitions import Partitions
from waiting import LIMIT_S

from .test_partition import batch
from .test_partitions import image, open_directory, registry, topic

ID = UUID(int=1 | 1 << 100)
LEADER = 2


class OneAnswer:
    """A leader that answers the first request with a batch for every partition, and no request after it."""

    def __init__(self) -> None:
        self.requests: list[FetchRequest] = []

    async def call(self, source: int, api: Any, request: FetchRequest, timeout_s: float, lane: str) -> Any:
        self.requests.append(request)
        if len(self.requests) > 1:
            await asyncio.sleep(3600)
        records = bytearray(batch())
        rows = [
            PartitionData(partition_index=row.partition, high_watermark=1, records=bytes(records))
            for row in request.topics[0].partitions
        ]
        return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=ID, partitions=rows)])


def following(directory: LogDirectory) -> tuple[Partitions, ClusterImage]:
    partitions = registry(directory)
    shown = image(topic("a", ID, 3, (LEADER, 1)))
    shown = ClusterImage(topics=shown.topics, brokers={LEADER: BrokerImage(LEADER, {}, None, 0)})
    partitions.apply(image(), shown)
    return partitions, shown


def test_an_exception_for_one_partition_does_not_lose_the_other_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Partition.append_as_follower

    def append_or_fail(partition: Partition, *arguments: Any, **facts: Any) -> bool:
        if partition.partition == 1:
            raise RuntimeError("nobody thought of that")
        return append(partition, *arguments, **facts)

    monkeypatch.setattr(Partition, "append_as_follower", append_or_fail)

    async def scenario() -> None:
        directory = open_directory(tmp_path)
        partitions, shown = following(directory)
        leader = OneAnswer()
        config, _ = BrokerConfig.parse({"replica.fetch.backoff.ms": "3600000"})
        fetchers = Fetchers(1, leader, SystemClock(), lambda: config, lambda: 5)  # type: ignore[arg-type]
        fetchers.follow(partitions, shown)
        while len(leader.requests) < 2:
            await asyncio.sleep(0.01)
        assert [partitions.find("a", number).log_end_offset for number in range(3)] == [1, 0, 1]
        # Within the session: the next request continues after the appended batches, and omits the failed partition.
        first, second = leader.requests
        assert (first.session_id, second.session_id, second.session_epoch) == (0, 7, 1)
        assert sorted(row.partition for row in second.topics[0].partitions) == [0, 2]
        assert [row.partitions for row in second.forgotten_topics_data] == [[1]]
        await fetchers.stop()
        directory.close()

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


class Denying:
    """A leader that denies access to every partition, but once in the middle."""

    def __init__(self) -> None:
        self.answers = 0

    async def call(self, source: int, api: Any, request: FetchRequest, timeout_s: float, lane: str) -> Any:
        self.answers += 1
        if self.answers > 20:
            await asyncio.sleep(3600)
        is_denied = self.answers != 10
        rows = [
            PartitionData(
                partition_index=number,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else 0,
                high_watermark=0,
                records=b"",
            )
            for number in range(3)
        ]
        return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=ID, partitions=rows)])


def test_a_failure_that_repeats_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        directory = open_directory(tmp_path)
        partitions, shown = following(directory)
        leader = Denying()
        config, _ = BrokerConfig.parse({"replica.fetch.backoff.ms": "1"})
        fetchers = Fetchers(1, leader, SystemClock(), lambda: config, lambda: 5)  # type: ignore[arg-type]
        fetchers.follow(partitions, shown)
        async with asyncio.timeout(LIMIT_S):
            while leader.answers <= 20:
                await asyncio.sleep(0.01)
        await fetchers.stop()
        directory.close()

    asyncio.run(scenario())
    lines = [vars(record)["reason"] for record in caplog.records if "could not be fetched" in record.message]
    # Of each of the three partitions once before the response without errors, and once after it.
    assert lines == ["TOPIC_AUTHORIZATION_FAILED"] * 6
