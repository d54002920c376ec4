"""Commits that an application begins faster than the coordinator answers, and in several ways at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from felice.client import Consumer, KafkaError, TopicPartition
from felice.client.consume.commits import Commits
from felice.client.error import KafkaException
from felice.client.group.requests import CommittedOffset
from felice.protocol.messages.offset_commit import OffsetCommitRequest
from unit.client.consume.test_consumer import Committing
from waiting import LIMIT_S


class Slow(Committing):
    def __init__(self) -> None:
        super().__init__()
        commit = self.handlers[OffsetCommitRequest]

        def slowly(request: Any, version: int) -> Any:
            time.sleep(0.01)
            return commit(request, version)

        self.handlers[OffsetCommitRequest] = slowly


def test_a_commit_after_each_message_keeps_up_with_a_slow_coordinator() -> None:
    told: list[Any] = []
    with Slow() as broker:
        config = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False}
        consumer = Consumer({**config, "on_commit": lambda error, rows: told.append((error, rows[0].offset))})
        for offset in range(1, 2001):
            consumer.commit(offsets=[TopicPartition("t", offset % 2, offset)])
        consumer.close()
    assert broker.committed == {("t", 0): 2000, ("t", 1): 1999}
    # One by one they would take 20 seconds, and the close would lose the last.
    assert len(broker.asked(OffsetCommitRequest)) < 200
    assert told == [(None, offset) for offset in range(1, 2001)]


KEY = ("t", 0)


def at(offset: int) -> dict[Any, CommittedOffset]:
    return {KEY: CommittedOffset(offset, "")}


class Coordinator:
    """Answers one request after the other, when the test lets it."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.told: list[tuple[int | None, int]] = []
        self.answers = asyncio.Event()
        self.code = 0
        self.commits = Commits(self._send, LIMIT_S, self._report)

    async def _send(self, offsets: Any) -> dict[Any, int]:
        self.sent.append(offsets[KEY].offset)
        await self.answers.wait()
        return {KEY: self.code}

    def _report(self, error: KafkaError | None, rows: list[TopicPartition]) -> None:
        self.told.append((None if error is None else error.code(), rows[0].offset))


async def test_commits_reach_the_coordinator_in_the_order_of_the_calls() -> None:
    coordinator = Coordinator()
    commits = coordinator.commits
    commits.begin(at(1))
    awaited = asyncio.ensure_future(commits.run(at(2), LIMIT_S))
    await asyncio.sleep(0)
    for offset in (3, 4, 5):
        commits.begin(at(offset))
    coordinator.answers.set()
    rows = await awaited
    await commits.wait()
    assert coordinator.sent == [1, 2, 5]
    assert rows[0].offset == 2
    assert coordinator.told == [(None, 1), (None, 3), (None, 4), (None, 5)]


async def test_an_awaited_commit_does_not_overtake_one_that_was_begun_in_the_same_step() -> None:
    coordinator = Coordinator()
    coordinator.answers.set()
    coordinator.commits.begin(at(1))
    await coordinator.commits.run(at(2), LIMIT_S)
    assert coordinator.sent == [1, 2]


async def test_a_commit_that_ends_before_its_turn_lets_no_other_one_overtake() -> None:
    coordinator = Coordinator()
    commits = coordinator.commits
    commits.begin(at(1))
    late = asyncio.ensure_future(commits.run(at(2), 0.0))
    with pytest.raises(KafkaException) as raised:
        await late
    assert raised.value.code == KafkaError._TIMED_OUT
    commits.begin(at(3))
    await asyncio.sleep(0)
    assert coordinator.sent == [1]
    coordinator.answers.set()
    await commits.wait()
    assert coordinator.sent == [1, 3]


async def test_each_commit_of_a_cancelled_request_is_told() -> None:
    coordinator = Coordinator()
    for offset in (1, 2, 3):
        coordinator.commits.begin(at(offset))
        await asyncio.sleep(0)
    await coordinator.commits.finish(0.0)
    timed_out = KafkaError._TIMED_OUT
    assert coordinator.told == [(timed_out, 1), (timed_out, 2), (timed_out, 3)]
    coordinator.answers.set()
    await coordinator.commits.run(at(4), LIMIT_S)
    assert coordinator.sent[-1] == 4


async def test_each_commit_gets_the_error_of_its_partition() -> None:
    coordinator = Coordinator()
    coordinator.code = 16
    coordinator.answers.set()
    coordinator.commits.begin(at(1))
    coordinator.commits.begin(at(2))
    await coordinator.commits.wait()
    assert coordinator.sent == [2]
    assert coordinator.told == [(16, 1), (16, 2)]
