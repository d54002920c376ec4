"""How a follower handles responses that it cannot append: where it continues, and what other partitions notice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from felice.config import BrokerConfig
from felice.env import SystemClock
from felice.metadata import BrokerImage, ClusterImage
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from felice.records.batch import stamp
from felice.replication.fetcher import Fetchers
from felice.replication.partitions import Partitions
from waiting import LIMIT_S

from .test_fetch_epochs import ID, LEADER, PatientLeader, records_at
from .test_partitions import image, open_directory, registry, topic


class KnowingLeader(PatientLeader):
    """A leader whose log of partition 0 holds offsets 700 to 899; it may refuse to list them."""

    def __init__(self, error: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__()
        self.error = error
        self.looked_up: list[tuple[int, int]] = []

    async def call(self, source: int, api: Any, request: Any, timeout_s: float, lane: str) -> Any:
        if not isinstance(request, ListOffsetsRequest):
            return await super().call(source, api, request, timeout_s, lane)
        [asked] = request.topics[0].partitions
        assert (source, request.replica_id, request.topics[0].name) == (LEADER, 1, "a")
        self.looked_up.append((asked.timestamp, asked.current_leader_epoch))
        offset = {-2: 700, -1: 900}[asked.timestamp]
        row = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, offset=offset, error_code=self.error
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=[row])])

    async def next_request(self) -> tuple[FetchRequest, Callable[..., None]]:
        request, reply = await self.asked.get()

        def answer(*rows: PartitionData) -> None:
            topics = [FetchableTopicResponse(topic_id=ID, partitions=list(rows))]
            reply.set_result(FetchResponse(session_id=7, responses=topics))

        return request, answer


def run(tmp_path: Path, leader: KnowingLeader, scenario: Callable[[Partitions], Awaitable[None]]) -> None:
    """Two partitions that follow one leader; a failed partition waits for an hour."""

    async def whole() -> None:
        directory = open_directory(tmp_path)
        partitions = registry(directory)
        shown = image(topic("a", ID, 2, (LEADER, 1)))
        shown = ClusterImage(topics=shown.topics, brokers={LEADER: BrokerImage(LEADER, {}, None, 0)})
        partitions.apply(image(), shown)
        options = {"replica.fetch.backoff.ms": "3600000", "num.replica.fetchers": "1"}
        config, _ = BrokerConfig.parse(options)
        fetchers = Fetchers(1, leader, SystemClock(), lambda: config, lambda: 5)  # type: ignore[arg-type]
        fetchers.follow(partitions, shown)
        async with asyncio.timeout(LIMIT_S):
            await scenario(partitions)
        await fetchers.stop()
        directory.close()

    asyncio.run(whole())


def asked_for(request: FetchRequest) -> dict[int, int]:
    return {row.partition: row.fetch_offset for each in request.topics for row in each.partitions}


OUT_OF_RANGE = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)


def records(partition: int, offset: int) -> PartitionData:
    row = records_at(offset)
    row.partition_index = partition
    return row


def test_a_follower_behind_the_leaders_log_start_begins_there(tmp_path: Path) -> None:
    leader = KnowingLeader()

    async def scenario(partitions: Partitions) -> None:
        request, answer = await leader.next_request()
        assert asked_for(request) == {0: 0, 1: 0}
        answer(OUT_OF_RANGE, records(1, 0))
        request, _ = await leader.next_request()
        assert asked_for(request) == {0: 700, 1: 1}
        assert sorted(leader.looked_up) == [(-2, 0), (-1, 0)]
        found = partitions.find("a", 0)
        assert (found.log.log_start_offset, found.log_end_offset) == (700, 700)

    run(tmp_path, leader, scenario)


def test_a_partition_waits_if_its_leaders_offsets_are_unknown_and_the_others_continue(
    tmp_path: Path,
) -> None:
    leader = KnowingLeader(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def scenario(partitions: Partitions) -> None:
        _, answer = await leader.next_request()
        answer(OUT_OF_RANGE, records(1, 0))
        request, _ = await leader.next_request()
        assert asked_for(request) == {1: 1}
        assert [row.partitions for row in request.forgotten_topics_data] == [[0]]
        assert partitions.find("a", 0).log_end_offset == 0

    run(tmp_path, leader, scenario)


@pytest.mark.parametrize("kind", ["newer epoch", "offset in range"])
def test_an_answer_that_changes_nothing_makes_its_partition_wait(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The same request would get the same answer at once, and so on for ever."""
    leader = KnowingLeader()

    async def scenario(partitions: Partitions) -> None:
        _, answer = await leader.next_request()
        useless = OUT_OF_RANGE
        if kind == "newer epoch":
            useless = records(0, 0)
            data = bytearray(useless.records or b"")
            stamp(data, 0, 0, 9)
            useless.records = bytes(data)
        else:
            partitions.find("a", 0).log.truncate_fully_and_start_at(800)
        answer(useless, records(1, 0))
        request, _ = await leader.next_request()
        assert asked_for(request) == {1: 1}
        assert [row.partitions for row in request.forgotten_topics_data] == [[0]]
        reason = {"newer epoch": "newer leader epoch", "offset in range": "between 700 and 900"}[kind]
        assert reason in caplog.records[-1].__dict__["reason"]

    run(tmp_path, leader, scenario)


@pytest.mark.parametrize("damage", ["checksum", "gap", "offline log"])
def test_records_that_cannot_be_appended_make_their_partition_wait(tmp_path: Path, damage: str) -> None:
    leader = KnowingLeader()

    async def scenario(partitions: Partitions) -> None:
        _, answer = await leader.next_request()
        bad = records(0, 0)
        data = bytearray(bad.records or b"")
        if damage == "checksum":
            data[-1] ^= 1
        elif damage == "offline log":
            partitions.find("a", 0).log.take_offline("its disk failed, and nobody has heard of it yet")
        else:
            data[:8] = (-5).to_bytes(8, "big", signed=True)
        bad.records = bytes(data)
        answer(bad, records(1, 0))
        request, _ = await leader.next_request()
        assert asked_for(request) == {1: 1}
        assert [row.partitions for row in request.forgotten_topics_data] == [[0]]
        assert [partitions.find("a", number).log_end_offset for number in (0, 1)] == [0, 1]

    run(tmp_path, leader, scenario)


def test_a_response_for_a_closed_partition_is_dropped(tmp_path: Path) -> None:
    leader = KnowingLeader()

    async def scenario(partitions: Partitions) -> None:
        _, answer = await leader.next_request()
        partitions.find("a", 0).close(ErrorCode.KAFKA_STORAGE_ERROR)
        answer(OUT_OF_RANGE, records(1, 0))
        request, _ = await leader.next_request()
        assert asked_for(request)[1] == 1
        assert leader.looked_up == []

    run(tmp_path, leader, scenario)


@pytest.mark.parametrize(("committed", "level"), [(0, logging.INFO), (2, logging.WARNING)])
def test_a_truncation_says_what_it_removes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, committed: int, level: int
) -> None:
    caplog.set_level(logging.INFO, "felice.replication")
    directory = open_directory(tmp_path)
    partitions = registry(directory)
    partitions.apply(image(), image(topic("a", ID, 1, (LEADER, 1))))
    found = partitions.find("a", 0)
    for offset in range(3):
        found.append_as_follower(
            records_at(offset).records or b"", high_watermark=committed, log_start_offset=0, now_ms=0
        )
    found.follow_divergence(0, 1)
    assert found.log_end_offset == 1
    [line] = [row for row in caplog.records if "offset" in row.__dict__]
    facts = {key: line.__dict__[key] for key in ("partition", "offset", "end", "high_watermark")}
    assert facts == {"partition": "a-0", "offset": 1, "end": 3, "high_watermark": committed}
    assert line.levelno == level
    directory.close()
