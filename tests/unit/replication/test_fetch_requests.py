"""The Fetch requests of a follower: their content, their times, and their connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID
from zlib import crc32

import pytest

from felice.config import BrokerConfig, TopicConfig
from felice.env import SystemClock
from felice.metadata import BrokerImage, ClusterImage, PartitionImage, TopicImage
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from felice.replication.fetcher import Fetchers, forgotten_topics
from felice.replication.partitions import Partitions
from felice.replication.peers import PeerUnavailable
from waiting import LIMIT_S

from .test_fetch_answers import records
from .test_fetch_epochs import ID, LEADER
from .test_partitions import image, open_directory, registry

OTHER = 3


class Clock(SystemClock):
    """A clock whose monotonic time the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, the other arguments of the call, and the future of its response."""

    source: int
    api: Any
    request: Any
    timeout_s: float
    lane: str
    answer: asyncio.Future[Any]

    @property
    def offsets(self) -> dict[int, int]:
        """Fetch offsets by partition."""
        return {row.partition: row.fetch_offset for each in self.request.topics for row in each.partitions}

    @property
    def forgotten(self) -> list[int]:
        return sorted(number for each in self.request.forgotten_topics_data for number in each.partitions)

    @property
    def session(self) -> tuple[int, int]:
        return self.request.session_id, self.request.session_epoch

    def reply(self, *rows: PartitionData, session_id: int = 7, error_code: int = 0) -> None:
        topics = [FetchableTopicResponse(topic_id=ID, partitions=list(rows))]
        self.answer.set_result(
            FetchResponse(session_id=session_id, error_code=error_code, responses=topics if rows else [])
        )


class Leader:
    """A leader that answers every request when the test says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()

    async def call(self, source: int, api: Any, request: Any, timeout_s: float, lane: str) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self.asked.put(Asked(source, api, request, timeout_s, lane, answer))
        return await answer

    async def next(self) -> Asked:
        return await self.asked.get()

    async def is_silent(self) -> bool:
        """Whether no further request is sent without time passing."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self.asked.empty()


@dataclass(slots=True)
class World:
    leader: Leader
    clock: Clock
    partitions: Partitions
    fetchers: Fetchers
    shown: ClusterImage

    def show(self, *leaders: int, epoch: int = 0, isr: tuple[int, ...] | None = None) -> None:
        """An image in which these brokers lead the topic's partitions, in order."""
        before, self.shown = self.shown, led_by(*leaders, epoch=epoch, isr=isr)
        self.partitions.apply(before, self.shown)
        self.follow()

    def follow(self) -> None:
        self.fetchers.follow(self.partitions, self.shown)


def led_by(*leaders: int, epoch: int = 0, isr: tuple[int, ...] | None = None) -> ClusterImage:
    rows = tuple(
        PartitionImage(number, (leader, 1), leader, epoch, isr or (leader, 1), partition_epoch=epoch)
        for number, leader in enumerate(leaders)
    )
    shown = image(TopicImage("a", ID, rows, created_zxid=1))
    brokers = {number: BrokerImage(number, {}, None, 0) for number in (LEADER, OTHER)}
    return ClusterImage(topics=shown.topics, brokers=brokers)


def run(
    tmp_path: Path,
    scenario: Callable[[World], Awaitable[None]],
    config: TopicConfig | None = None,
    **options: Any,
) -> None:
    async def whole() -> None:
        directory = open_directory(tmp_path)
        partitions = registry(directory)
        partitions._config_of = lambda image, topic: config or TopicConfig()
        given = {"num.replica.fetchers": "1", "replica.fetch.backoff.ms": "3600000"}
        given |= {name.replace("_", "."): str(value) for name, value in options.items()}
        broker_config, _ = BrokerConfig.parse(given)
        leader, clock = Leader(), Clock()
        fetchers = Fetchers(1, leader, clock, lambda: broker_config, lambda: 5)  # type: ignore[arg-type]
        world = World(leader, clock, partitions, fetchers, image())
        try:
            async with asyncio.timeout(LIMIT_S):
                await scenario(world)
        finally:
            await fetchers.stop()
            directory.close()

    asyncio.run(whole())


def test_every_field_of_a_fetch(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER, epoch=4)
        first = await world.leader.next()
        assert (first.source, first.api, first.timeout_s, first.lane) == (LEADER, API.FETCH, 4.5, "fetch-0")

        def row(number: int, offset: int, last_epoch: int) -> FetchPartition:
            return FetchPartition(
                partition=number,
                current_leader_epoch=4,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=0,
                partition_max_bytes=66,
            )

        common = {
            "replica_state": ReplicaState(replica_id=1, replica_epoch=5),
            "max_wait_ms": 77,
            "min_bytes": 88,
            "max_bytes": 9999,
        }
        assert first.request == FetchRequest(
            **common,
            session_id=0,
            session_epoch=0,
            topics=[FetchTopic(topic_id=ID, partitions=[row(0, 0, -1), row(1, 0, -1)])],
        )
        first.reply(records(1, 0))
        second = await world.leader.next()
        assert second.request == FetchRequest(
            **common,
            session_id=7,
            session_epoch=1,
            topics=[FetchTopic(topic_id=ID, partitions=[row(1, 1, 0)])],
        )

    run(
        tmp_path,
        scenario,
        replica_socket_timeout_ms=4500,
        replica_fetch_max_bytes=66,
        replica_fetch_wait_max_ms=77,
        replica_fetch_min_bytes=88,
        replica_fetch_response_max_bytes=9999,
    )


def test_every_field_of_a_lookup_of_offsets(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER, epoch=4)
        (await world.leader.next()).reply(
            PartitionData(partition_index=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        )
        for timestamp, offset in ((-1, 900), (-2, 700)):
            asked = await world.leader.next()
            assert (asked.source, asked.api, asked.timeout_s, asked.lane) == (
                LEADER,
                API.LIST_OFFSETS,
                4.5,
                "fetch-0",
            )
            row = ListOffsetsPartition(partition_index=1, current_leader_epoch=4, timestamp=timestamp)
            topics = [ListOffsetsTopic(name="a", partitions=[row])]
            assert asked.request == ListOffsetsRequest(replica_id=1, topics=topics)
            answer = ListOffsetsPartitionResponse(partition_index=1, offset=offset)
            asked.answer.set_result(
                ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=[answer])])
            )
        assert (await world.leader.next()).offsets == {1: 700}

    run(tmp_path, scenario, replica_socket_timeout_ms=4500)


def test_partitions_are_spread_over_the_tasks_and_stay_where_they_are(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(*[LEADER] * 6)
        found: dict[str, list[int]] = {}
        expected: dict[str, list[int]] = {}
        for number in range(6):
            expected.setdefault(f"fetch-{crc32(f'a-{number}'.encode()) % 3}", []).append(number)
        for _ in expected:
            asked = await world.leader.next()
            found[asked.lane] = sorted(asked.offsets)
        assert found == expected and len(found) > 1
        assert await world.leader.is_silent()

    run(tmp_path, scenario, num_replica_fetchers=3)


def test_a_partition_that_moves_to_another_leader_is_forgotten_at_the_first(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER)
        first = await world.leader.next()
        world.show(LEADER, OTHER, epoch=1)
        there = await world.leader.next()
        assert (there.source, there.offsets, there.session) == (OTHER, {1: 0}, (0, 0))
        first.reply(records(0, 0), records(1, 0))
        again = await world.leader.next()
        assert (again.source, again.session, again.forgotten) == (LEADER, (7, 1), [1])
        assert world.partitions.find("a", 1).log_end_offset == 0, "the first leader leads it no more"

    run(tmp_path, scenario)


def test_a_leader_that_leads_nothing_more_is_asked_no_more(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER)
        first = await world.leader.next()
        found = world.partitions.find("a", 0)
        listeners = len(found.on_advance)
        world.show(OTHER, epoch=1)
        assert (await world.leader.next()).source == OTHER
        assert await world.leader.is_silent()
        assert first.answer.cancelled()
        assert len(found.on_advance) == listeners, "the first task listens no more"

    run(tmp_path, scenario)


def test_nothing_is_followed_after_the_stop(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER)
        first = await world.leader.next()
        await world.fetchers.stop()
        assert first.answer.cancelled()
        world.follow()
        assert await world.leader.is_silent()
        assert len(world.partitions.find("a", 0).on_advance) == 0

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("code", "session"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (0, 0)),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, (7, 0)),
    ],
)
def test_a_lost_session_begins_again_with_all_partitions(
    tmp_path: Path, code: ErrorCode, session: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER)
        (await world.leader.next()).reply(records(0, 0))
        (await world.leader.next()).reply(error_code=code)
        again = await world.leader.next()
        assert (again.session, again.offsets) == (session, {0: 1, 1: 0})

    run(tmp_path, scenario)
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]


def unreachable(asked: Asked) -> None:
    asked.answer.set_exception(PeerUnavailable("broker 2: it is gone"))


def refused(asked: Asked) -> None:
    asked.reply(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def broken(asked: Asked) -> None:
    asked.answer.set_exception(ZeroDivisionError("nobody thought of that"))


@pytest.mark.parametrize("fault", [unreachable, refused, broken])
def test_a_failed_request_is_repeated_in_full_after_a_pause(
    tmp_path: Path, fault: Callable[[Asked], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER)
        (await world.leader.next()).reply(records(0, 0))
        fault(await world.leader.next())
        assert await world.leader.is_silent(), "a pause comes first"
        again = await world.leader.next()
        assert (again.session, again.offsets) == ((7, 0), {0: 1, 1: 0})

    run(tmp_path, scenario, replica_fetch_backoff_ms=50)
    [line] = [line for line in caplog.records if line.levelno >= logging.WARNING]
    assert (line.name, line.exc_info is not None) == ("felice.replication", fault is broken)


def test_a_leader_that_is_not_reached_is_reported_once_until_it_is_reached(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER)
        for act in (unreachable, unreachable, Asked.reply, unreachable, unreachable):
            act(await world.leader.next())
        await world.leader.next()

    run(tmp_path, scenario, replica_fetch_backoff_ms=1)
    lines = [line for line in caplog.records if line.levelno >= logging.WARNING]
    assert [(line.__dict__["broker"], line.__dict__["reason"]) for line in lines] == [
        (LEADER, "broker 2: it is gone")
    ] * 2


def test_an_image_ends_the_pause_after_a_failed_request(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER)
        unreachable(await world.leader.next())
        assert await world.leader.is_silent()
        world.follow()
        assert (await world.leader.next()).offsets == {0: 0}

    run(tmp_path, scenario)


NOT_LEADER = PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
DENIED = PartitionData(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(("row", "is_logged"), [(NOT_LEADER, False), (DENIED, True)])
def test_a_partition_with_an_error_waits_for_its_pause(
    tmp_path: Path, row: PartitionData, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER)
        (await world.leader.next()).reply(row)
        without = await world.leader.next()
        assert (without.offsets, without.forgotten) == ({}, [0])
        world.clock.now_s += 9.9
        without.reply()
        early = await world.leader.next()
        assert (early.offsets, early.forgotten) == ({}, [])
        world.clock.now_s += 0.2
        early.reply()
        assert (await world.leader.next()).offsets == {0: 0}

    run(tmp_path, scenario, replica_fetch_backoff_ms=10_000)
    lines = [line.__dict__ for line in caplog.records if line.levelno >= logging.WARNING]
    assert [(line["partition"], line["leader"], line["reason"]) for line in lines] == (
        [("a-0", LEADER, "TOPIC_AUTHORIZATION_FAILED")] if is_logged else []
    )


def test_a_task_whose_only_partition_waits_asks_again_after_the_pause(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER)
        (await world.leader.next()).reply(NOT_LEADER)
        assert await world.leader.is_silent()
        world.clock.now_s += 0.1
        # Real time passes too: the task reads the clock when its pause is over.
        again = await world.leader.next()
        # No request told the leader to forget the partition: for the leader nothing has changed.
        assert (again.offsets, again.forgotten, again.session) == ({}, [], (7, 1))

    run(tmp_path, scenario, replica_fetch_backoff_ms=100)


def throttled(*replicas: str) -> TopicConfig:
    return TopicConfig(follower_replication_throttled_replicas=replicas)


@pytest.mark.parametrize("replicas", [("*",), ("0:1", "1:1")])
def test_partitions_that_are_not_in_sync_wait_for_the_throttle(
    tmp_path: Path, replicas: tuple[str, ...]
) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER, isr=(LEADER,))
        row = records(0, 0)
        size = len(row.records or b"")
        (await world.leader.next()).reply(row)
        assert await world.leader.is_silent(), "the rate is one byte a second"
        # The second before had no traffic, and its allowance was left.
        world.clock.now_s += size - 1.5
        world.follow()
        assert await world.leader.is_silent()
        world.clock.now_s += 1
        world.follow()
        assert (await world.leader.next()).offsets == {0: 1}

    run(tmp_path, scenario, throttled(*replicas), follower_replication_throttled_rate=1)


@pytest.mark.parametrize(
    ("config", "isr"),
    [
        (throttled("0:2", "1:1"), (LEADER,)),
        (throttled(), (LEADER,)),
        (throttled("*"), (LEADER, 1)),
    ],
)
def test_other_partitions_do_not_wait_for_the_throttle(
    tmp_path: Path, config: TopicConfig, isr: tuple[int, ...]
) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER, isr=isr)
        (await world.leader.next()).reply(records(0, 0))
        assert (await world.leader.next()).offsets == {0: 1}

    run(tmp_path, scenario, config, follower_replication_throttled_rate=1)


def test_what_in_sync_replicas_fetch_counts_against_the_rate(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER)
        (await world.leader.next()).reply(records(0, 0))
        await world.leader.next()
        assert world.fetchers.throttle.is_exceeded(world.clock.now_s)

    run(tmp_path, scenario, throttled("*"), follower_replication_throttled_rate=1)


def test_a_change_of_the_log_changes_what_is_asked_next(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER)
        first = await world.leader.next()
        found = world.partitions.find("a", 1)
        found.follow_out_of_range(40, 50)
        found.wake_readers()
        first.reply()
        assert (await world.leader.next()).offsets == {1: 40}

    run(tmp_path, scenario)


def test_an_image_that_changes_nothing_leaves_a_waiting_partition_waiting(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.show(LEADER, LEADER)
        (await world.leader.next()).reply(NOT_LEADER)
        without = await world.leader.next()
        listeners = list(world.partitions.find("a", 0).on_advance)
        world.follow()
        assert list(world.partitions.find("a", 0).on_advance) == listeners
        without.reply()
        assert (await world.leader.next()).offsets == {}

    run(tmp_path, scenario)


def test_forgotten_partitions_are_named_by_topic() -> None:
    other = UUID(int=9)
    found = forgotten_topics([(ID, 0), (other, 1), (ID, 2)])
    assert [(row.topic_id, row.partitions) for row in found] == [(ID, [0, 2]), (other, [1])]


def test_partitions_of_several_topics_are_asked_for_by_topic(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        other = UUID(int=9)
        rows = (PartitionImage(0, (LEADER, 1), LEADER, 0, (LEADER, 1), partition_epoch=0),)
        topics = [TopicImage("a", ID, rows, created_zxid=1), TopicImage("b", other, rows, created_zxid=2)]
        world.shown = ClusterImage(topics=image(*topics).topics, brokers=led_by(LEADER).brokers)
        world.partitions.apply(image(), world.shown)
        world.follow()
        first = await world.leader.next()
        assert [(row.topic_id, len(row.partitions)) for row in first.request.topics] == [(ID, 1), (other, 1)]

    run(tmp_path, scenario)
