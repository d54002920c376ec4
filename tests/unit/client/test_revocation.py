"""While a rebalance callback revokes partitions, none of their records is delivered, by any API of the consumer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from felice.client import Consumer, TopicPartition, aio
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from unit.client.group.test_membership import Coordinator, settings, spin
from waiting import wait_until

REBALANCE = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
GONE = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
LIMIT_S = 20.0

Asks = Callable[[Any], Any]


@pytest.fixture
def broker() -> Iterator[Coordinator]:
    with Coordinator() as started:
        yield started


@pytest.mark.parametrize(
    "ask",
    [
        lambda consumer: consumer.poll(0.2),
        lambda consumer: consumer.consume(10, 0.2) or None,
        lambda consumer: consumer.consume_arrow(10, 0.2).num_rows or None,
    ],
    ids=["poll", "consume", "columns"],
)
@pytest.mark.parametrize("why", [REBALANCE, GONE], ids=["revoked", "lost"])
def test_blocking_consumer_delivers_nothing_during_a_revocation(
    broker: Coordinator, ask: Asks, why: Any
) -> None:
    found: list[Any] = []
    with Consumer(settings(broker, enable_auto_commit=False)) as consumer:
        consumer.subscribe(["t"], on_revoke=lambda _, tps: found.append(ask(consumer)))
        first = _first_of(consumer)
        broker.script(HeartbeatRequest, why)
        # Not polled until the rebalance has started: the other two records wait in the queue.
        wait_until(lambda: bool(consumer._notices.waiting))
        spin(consumer, lambda: bool(found))
        assert (first, found) == (0, [None])
        _first_of(consumer)  # the next owner (here the same member) gets them


@pytest.mark.parametrize(
    "ask",
    [
        lambda consumer: consumer.poll(0.2),
        lambda consumer: consumer.consume(10, 0.2),
        lambda consumer: consumer.consume_arrow(10, 0.2),
    ],
    ids=["poll", "consume", "columns"],
)
def test_asyncio_consumer_delivers_nothing_during_a_revocation(broker: Coordinator, ask: Asks) -> None:
    async def main() -> None:
        found: list[Any] = []

        async def on_revoke(partitions: list[TopicPartition]) -> None:
            found.append(await ask(consumer))

        async with aio.Consumer(settings(broker, enable_auto_commit=False)) as consumer:
            await consumer.subscribe(["t"], on_revoke=on_revoke)
            async with asyncio.timeout(LIMIT_S):
                assert await _next_of(consumer) == 0
                broker.script(HeartbeatRequest, REBALANCE)
                while not found:
                    await asyncio.sleep(0.01)
                assert len(found[0] or []) == 0
                assert await _next_of(consumer) == 0

    asyncio.run(main())


def test_partition_kept_by_the_application_continues(broker: Coordinator) -> None:
    async def main() -> None:
        told: list[int] = []

        def keep(partitions: list[TopicPartition]) -> None:
            told.append(len(partitions))
            consumer.assign(consumer.core.position(partitions))

        def leave_as_it_is(partitions: list[TopicPartition]) -> None:
            told.append(-1)
            consumer.assign(consumer.core.assignment())

        async with aio.Consumer(settings(broker, enable_auto_commit=False)) as consumer:
            await consumer.subscribe(["t"], on_revoke=keep)
            async with asyncio.timeout(LIMIT_S):
                assert await _next_of(consumer) == 0
                consumer.core._callbacks["on_assign"] = leave_as_it_is
                broker.script(HeartbeatRequest, REBALANCE)
                while told != [1, -1]:
                    await asyncio.sleep(0.01)
                assert [await _next_of(consumer), await _next_of(consumer)] == [1, 2]

    asyncio.run(main())


def _first_of(consumer: Consumer) -> int | None:
    """The offset of the next record."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            return message.offset()
    raise AssertionError("no record came")


async def _next_of(consumer: aio.Consumer) -> int | None:
    while True:
        message = await consumer.poll(1.0)
        if message is not None and message.error() is None:
            return message.offset()
