"""A Fetch of many partitions: it is handled in slices, loses no change meanwhile, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.frames import decode_response, encode_request
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from felice.records.builder import build_batch
from felice.records.record import Record
from felice.replication.leader import FollowerProgress
from felice.replication.partition import Partition
from felice.replication.replica import Listeners
from felice.security.acl import Operation, ResourceType
from felice.server.fetching import followers
from felice.server.flow import pace
from felice.server.security import access_control as control
from felice.server.services import Services
from unit.server.test_costs import Line
from unit.server.test_large_refusals import deny, with_authorizer

PARTITIONS = 10
LONG_WAIT_MS = 600_000
FOLLOWER = 7


@pytest.fixture(params=["long", "short"])
def length(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ten partitions are read with pauses, one in each pass of the event loop, or without."""
    if request.param == "long":
        be_long(monkeypatch)
    return str(request.param)


def be_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pace, followers):
        monkeypatch.setattr(module, "MAX_ITEMS_WITHOUT_PAUSE", PARTITIONS - 1)
    monkeypatch.setattr(pace, "_WORK_S", 1e-9)


@pytest.fixture
def _any_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every broker counts as a replica."""
    monkeypatch.setattr(Partition, "on_follower_fetch", lambda *_args, **_kwargs: None)


def services_of(line: Line) -> Services:
    return line.session._services


def partition_of(line: Line, number: int) -> Partition:
    return services_of(line).partitions.find("topic", number)


def append(line: Line, number: int) -> None:
    partition_of(line, number).append(build_batch([Record(0, 1, None, b"v")]), required_acks=1, now_ms=1)


def fetch(offsets: list[int], **fields: int) -> bytes:
    asked = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1000)
        for number, offset in enumerate(offsets)
    ]
    topics = [FetchTopic(topic="topic", partitions=asked)]
    return encode_request(1, 11, 1, "c", FetchRequest(**{"min_bytes": 1, **fields}, topics=topics))


def ends(line: Line) -> list[int]:
    return [partition_of(line, number).log_end_offset for number in range(PARTITIONS)]


class KnownLater(dict[UUID, str]):
    """The names of topics. After some look-ups every id has the name `topic`."""

    def __init__(self, count: int) -> None:
        self._left = count

    def get(self, topic_id: UUID, default: object = None) -> Any:
        self._left -= 1
        return default if self._left >= 0 else "topic"


async def passes(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def answer(line: Line, begin: int) -> tuple[FetchResponse, int]:
    """The answer after `begin`, and how many passes of the event loop it took."""
    count = 0
    async with asyncio.timeout(60):
        while len(line.transport.written) == begin or not line.session.is_idle:
            await asyncio.sleep(0)
            count += 1
    return decode_response(API.FETCH, 11, bytes(line.transport.written[begin + 4 :])), count


def run(directory: Path, scenario: Callable[[Line], Awaitable[None]]) -> None:
    with_authorizer(directory, scenario)


def records_by_partition(response: FetchResponse) -> list[int]:
    return [row.partition_index for row in response.responses[0].partitions if row.records]


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_no_append_is_lost_between_reading_and_waiting(
    tmp_path: Path, length: str, session_epoch: int
) -> None:
    async def scenario(line: Line) -> None:
        for delay in range(3 * PARTITIONS):
            for number in (0, PARTITIONS - 1):
                begin = len(line.transport.written)
                line.feed(fetch(ends(line), max_wait_ms=LONG_WAIT_MS, session_epoch=session_epoch))
                await passes(delay)
                append(line, number)
                response, _ = await answer(line, begin)
                assert records_by_partition(response) == [number], (delay, number)

    run(tmp_path, scenario)


@pytest.mark.usefixtures("_any_follower")
def test_no_append_to_an_idle_partition_is_lost_before_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Partition, "begin_idle", lambda *_: FollowerProgress())

    async def scenario(line: Line) -> None:
        for delay in range(3):
            begin = len(line.transport.written)
            line.feed(fetch(ends(line), replica_id=FOLLOWER, max_wait_ms=0, session_epoch=0))
            session_id = (await answer(line, begin))[0].session_id
            begin = len(line.transport.written)
            line.feed(
                fetch(
                    [],
                    replica_id=FOLLOWER,
                    max_wait_ms=LONG_WAIT_MS,
                    session_id=session_id,
                    session_epoch=1,
                )
            )
            await passes(delay)
            append(line, 4)
            response, _ = await answer(line, begin)
            assert records_by_partition(response) == [4], delay

    run(tmp_path, scenario)


def test_a_fetch_that_need_not_wait_adds_no_listener(
    tmp_path: Path, length: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(line: Line) -> None:
        append(line, 3)
        added: list[object] = []
        monkeypatch.setattr(Listeners, "add", lambda _self, listener: added.append(listener))
        begin = len(line.transport.written)
        line.feed(fetch([0] * PARTITIONS, max_wait_ms=LONG_WAIT_MS, session_epoch=-1))
        response, _ = await answer(line, begin)
        assert records_by_partition(response) == [3]
        assert not added

    run(tmp_path, scenario)


def test_each_step_of_a_long_fetch_that_waits_is_taken_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(line: Line) -> None:
        be_long(monkeypatch)
        begin = len(line.transport.written)
        line.feed(fetch([0] * PARTITIONS, max_wait_ms=LONG_WAIT_MS, session_epoch=-1))
        listeners = [partition_of(line, number).on_advance for number in range(PARTITIONS)]
        count = 0
        async with asyncio.timeout(60):
            while not all(listeners):
                await asyncio.sleep(0)
                count += 1
        # Each partition was read, and got a listener.
        assert count >= 2 * (PARTITIONS - 1)
        await passes(PARTITIONS)
        append(line, 0)
        _, count = await answer(line, begin)
        # Each listener was removed, and each row added to the response.
        assert count >= 2 * (PARTITIONS - 1)
        assert not any(listeners)

    run(tmp_path, scenario)


@pytest.mark.usefixtures("_any_follower")
def test_a_fetch_whose_session_ended_meanwhile_leaves_nothing_at_the_partitions(
    tmp_path: Path, length: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle: list[int] = []

    def begin_idle(partition: Partition, *_: object) -> FollowerProgress:
        idle.append(partition.partition)
        return FollowerProgress()

    async def scenario(line: Line) -> None:
        monkeypatch.setattr(Partition, "begin_idle", begin_idle)
        for is_dropped in (False, True):
            idle.clear()
            begin = len(line.transport.written)
            line.feed(fetch(ends(line), replica_id=FOLLOWER, max_wait_ms=LONG_WAIT_MS, session_epoch=0))
            await passes(3 * PARTITIONS)
            sessions = services_of(line).fetching.sessions
            (session_id,) = sessions._sessions
            if is_dropped:
                sessions._drop(session_id)
            append(line, 0)
            await answer(line, begin)
            listeners = sum(len(partition_of(line, number).on_advance) for number in range(PARTITIONS))
            expected = 0 if is_dropped else PARTITIONS - 1
            assert (len(idle), listeners) == (expected, expected)
            sessions._drop(session_id)

    run(tmp_path, scenario)


def test_a_topic_id_that_becomes_known_during_a_fetch_needs_permission(tmp_path: Path, length: str) -> None:
    async def scenario(line: Line) -> None:
        await deny(line, Operation.READ, ResourceType.TOPIC, "topic")
        watcher = services_of(line).watcher
        watcher.image = replace(watcher.image, topic_names=KnownLater(PARTITIONS // 2))
        asked = [
            FetchPartition(partition=number % PARTITIONS, fetch_offset=0, partition_max_bytes=1000)
            for number in range(PARTITIONS)
        ]
        topics = [FetchTopic(topic_id=UUID(int=5), partitions=asked)]
        request = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics)
        begin = len(line.transport.written)
        line.feed(encode_request(1, 13, 1, "c", request))
        async with asyncio.timeout(60):
            while not line.session.is_idle:
                await asyncio.sleep(0)
        response = decode_response(API.FETCH, 13, bytes(line.transport.written[begin + 4 :]))
        codes = [row.error_code for row in response.responses[0].partitions]
        assert set(codes) == {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    run(tmp_path, scenario)


def test_a_fetch_of_many_forbidden_topics_writes_a_limited_number_of_lines(
    tmp_path: Path, length: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(control, "MAX_LINES", 3)

    async def scenario(line: Line) -> None:
        await deny(line, Operation.READ, ResourceType.TOPIC, "*")
        asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
        topics = [FetchTopic(topic=f"t{number}", partitions=asked) for number in range(PARTITIONS)]
        begin = len(line.transport.written)
        with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
            request = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics)
            line.feed(encode_request(1, 11, 1, "c", request))
            response, _ = await answer(line, begin)
        codes = [topic.partitions[0].error_code for topic in response.responses]
        assert codes == PARTITIONS * [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert sum("is Denied" in record.getMessage() for record in caplog.records) == 3 + 1

    run(tmp_path, scenario)


@pytest.mark.usefixtures("_any_follower")
def test_a_broker_without_an_authorizer_checks_no_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[tuple[object, ...]] = []
    monkeypatch.setattr(control._Everything, "allows", lambda _self, *asked: checked.append(asked) or True)

    async def scenario(line: Line) -> None:
        checked.clear()
        begin = len(line.transport.written)
        line.feed(fetch([0], replica_id=FOLLOWER, max_wait_ms=0, session_epoch=-1))
        await answer(line, begin)
        assert not checked

    with_authorizer(tmp_path, scenario, {})
