"""Requests that wait for an offset, and the flushes that some of them wait for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from felice.log.errors import FlushPostponed
from felice.protocol.errors import ApiError, ErrorCode
from felice.replication.flushing import LogFlusher
from felice.replication.replica import Listeners
from felice.replication.waiters import Waiters


async def settled(*tasks: asyncio.Future[Any]) -> list[Any]:
    return [
        type(found).__name__ if isinstance(found, BaseException) else found
        for found in await asyncio.gather(*tasks, return_exceptions=True)
    ]


async def test_a_wait_ends_when_the_value_has_passed_its_offset() -> None:
    waiters = Waiters()
    assert not waiters
    first, second = (asyncio.ensure_future(waiters.wait_beyond(offset, 30)) for offset in (4, 5))
    await asyncio.sleep(0)
    assert waiters
    waiters.release(4)
    await asyncio.sleep(0)
    assert not first.done(), "4 is not beyond 4"
    waiters.release(5)
    assert await first is None
    assert not second.done() and len(waiters.entries) == 1
    waiters.release(6)
    waiters.release(7)
    assert await second is None and not waiters


async def test_a_wait_ends_with_the_failure_or_at_its_deadline() -> None:
    waiters = Waiters()
    failing, late = (asyncio.ensure_future(waiters.wait_beyond(4, limit)) for limit in (30, 0.05))
    with pytest.raises(ApiError) as error:
        await late
    assert error.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert len(waiters.entries) == 1
    cancelled = asyncio.ensure_future(waiters.wait_beyond(9, 30))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert len(waiters.entries) == 1
    waiters.fail(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    waiters.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
    waiters.release(99)
    with pytest.raises(ApiError) as error:
        await failing
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and not waiters


def test_listeners_are_called_once_and_in_order() -> None:
    told: list[str] = []
    listeners = Listeners()
    one, two = (lambda: told.append("one")), (lambda: told.append("two"))
    for listener in (one, two, one):
        listeners.add(listener)
    for listener in list(listeners):
        listener()
    assert told == ["one", "two"]
    listeners.discard(one)
    listeners.discard(one)
    assert list(listeners) == [two]


class Log:
    """Needs as many flushes as the test says."""

    def __init__(self, flushes: int, failure: Exception | None = None) -> None:
        self.left = flushes
        self.failure = failure
        self.log_end_offset = 30
        self.recovery_point = 12
        self.ended: list[Any] = []

    @property
    def needs_flush(self) -> bool:
        return self.left > 0

    def begin_flush(self) -> Any:
        self.left -= 1
        return SimpleNamespace(run=self._run, end_offset=10 * (len(self.ended) + 1))

    def _run(self) -> None:
        if self.failure is not None:
            raise self.failure

    def end_flush(self, flush: Any) -> None:
        self.ended.append(flush)


class Replica:
    def __init__(self, log: Log) -> None:
        self.log: Any = log
        self.is_open = True
        self.told: list[Any] = []

    def on_durable(self, offset: int) -> None:
        self.told.append(offset)

    def on_flush_postponed(self, error: FlushPostponed) -> None:
        self.told.append(error)

    def on_flush_failed(self, error: ApiError) -> None:
        self.told.append(error)


async def test_appends_during_a_flush_share_the_next_one() -> None:
    replica = Replica(Log(3))
    flusher = LogFlusher(replica)
    assert not flusher.is_running
    await flusher.finish()
    flush = flusher.begin()
    assert flusher.begin() is flush and flusher.is_running
    await flusher.finish()
    # After each but the last, only what that flush wrote is durable, and only up to the recovery point.
    assert replica.told == [10, 12, 30] and len(replica.log.ended) == 3
    assert not flusher.is_running
    assert flusher.begin() is not flush
    await flusher.finish()


@pytest.mark.parametrize("failure", [ApiError(ErrorCode.KAFKA_STORAGE_ERROR), FlushPostponed("full")])
async def test_a_failed_flush_is_told_and_ends(failure: ApiError) -> None:
    replica = Replica(Log(3, failure))
    flusher = LogFlusher(replica)
    await flusher.begin()
    assert replica.told == [failure] and not flusher.is_running
    assert replica.log.ended == []


async def test_a_flush_of_a_replica_that_was_closed_meanwhile_says_nothing() -> None:
    replica = Replica(Log(3))
    flusher = LogFlusher(replica)
    flush = flusher.begin()
    replica.is_open = False
    await flush
    assert replica.told == [] and replica.log.ended == [] and not flusher.is_running


async def test_whoever_waits_for_a_flush_does_not_cancel_it() -> None:
    replica = Replica(Log(1))
    flusher = LogFlusher(replica)
    flush = flusher.begin()
    waiting = asyncio.ensure_future(flusher.finish())
    await asyncio.sleep(0)
    waiting.cancel()
    assert await settled(waiting, flush) == ["CancelledError", None]
    assert replica.told == [30]
