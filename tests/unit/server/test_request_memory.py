"""The bound on large requests of all connections together, over transports that the test holds in its hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from felice.config import BrokerConfig
from felice.protocol.messages.produce import ProduceResponse
from felice.server.context import RequestContext
from felice.server.flow import request_memory
from felice.server.flow.request_memory import RequestMemory
from unit.server.test_session import Peer, produce, question, run, until

LIMIT = 300_000
SIZE = 200_000
REQUEST = produce(SIZE)


def answer(request: Any, context: RequestContext) -> Any:
    return ProduceResponse()


class Floor:
    """Peers that share the memory of large requests."""

    def __init__(self, count: int, handle: Callable[[Any, RequestContext], Any] = answer) -> None:
        config = BrokerConfig(felice_turn_max_ms=60_000)
        self.memory = RequestMemory(LIMIT)
        self.peers = [Peer(handle, config=config, request_memory=self.memory) for _ in range(count)]

    @property
    def reading(self) -> list[bool]:
        return [peer.transport.reading for peer in self.peers]

    @property
    def aborted(self) -> list[bool]:
        return [peer.transport.aborted for peer in self.peers]


def send(peer: Peer, start: int, end: int) -> None:
    peer.feed(REQUEST[start:end], step=50_000)


def test_memory_counts_what_has_arrived_until_the_reply_leaves() -> None:
    async def scenario() -> None:
        later: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        floor = Floor(1, lambda request, context: later)
        send(floor.peers[0], 0, 150_000)
        assert floor.memory.total_bytes == 150_000 - 4
        send(floor.peers[0], 150_000, len(REQUEST))
        assert floor.memory.total_bytes == len(REQUEST) - 4
        later.set_result(ProduceResponse())
        await until(lambda: floor.memory.total_bytes == 0)

    run(scenario)


def test_small_requests_do_not_count() -> None:
    async def scenario() -> None:
        later: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        floor = Floor(1, lambda request, context: later)
        floor.peers[0].feed(produce(60_000))
        assert not floor.peers[0].session.is_idle
        assert floor.memory.total_bytes == 0
        later.cancel()

    run(scenario)


def test_above_the_limit_only_the_request_that_began_first_is_received() -> None:
    async def scenario() -> None:
        floor = Floor(3)
        for peer in floor.peers:
            send(peer, 0, 140_000)
        assert floor.memory.is_short
        assert floor.reading == [True, True, False]  # the second has not tried to go on
        send(floor.peers[1], 140_000, 145_000)
        assert floor.reading == [True, False, False]
        send(floor.peers[0], 140_000, len(REQUEST))
        assert floor.reading == [True, True, True], "the first was answered, and its memory is free"
        for peer in floor.peers[1:]:
            send(peer, 145_000, 150_000)
        assert floor.reading == [True, True, True]

    run(scenario)


def test_when_the_first_connection_ends_the_next_goes_on() -> None:
    async def scenario() -> None:
        floor = Floor(4)
        for peer, arrived in zip(floor.peers, (60_000, 190_000, 100_000, 50_000), strict=True):
            send(peer, 0, arrived)
        send(floor.peers[1], 190_000, 191_000)
        assert floor.reading == [True, False, False, False]
        floor.peers[0].session.connection_lost(None)
        assert floor.memory.is_short
        assert floor.reading[1:] == [True, False, False]

    run(scenario)


def test_small_requests_of_others_are_answered_meanwhile() -> None:
    async def scenario() -> None:
        handled = []

        def handle(request: Any, context: RequestContext) -> Any:
            handled.append(request)
            return ProduceResponse()

        floor = Floor(4, handle)
        for peer in floor.peers[:3]:
            send(peer, 0, 140_000)
        assert floor.memory.is_short
        floor.peers[3].feed(produce(100))
        assert len(handled) == 1
        assert floor.peers[3].transport.reading

    run(scenario)


def test_clients_that_do_not_send_the_rest_lose_their_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_memory, "PATIENCE_S", 0.01)

    async def scenario() -> None:
        floor = Floor(3)
        send(floor.peers[0], 0, 60_000)
        send(floor.peers[1], 0, 180_000)
        send(floor.peers[2], 0, 120_000)  # paused at the second step, 100,000
        await until(lambda: any(floor.aborted))
        assert floor.aborted == [False, True, True], "the largest parts go, until half of the limit is free"
        assert floor.memory.total_bytes == 60_000 - 4
        assert floor.peers[0].transport.reading

    run(scenario)


def test_one_request_alone_may_exceed_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_memory, "PATIENCE_S", 0.01)

    async def scenario() -> None:
        floor = Floor(1)
        large = produce(2 * LIMIT)
        floor.peers[0].feed(large[:-1])
        assert floor.memory.is_short
        await asyncio.sleep(0.05)
        assert not floor.peers[0].transport.aborted
        floor.peers[0].feed(large[-1:])
        assert floor.memory.total_bytes == 0

    run(scenario)


def test_whole_requests_that_wait_for_their_replies_close_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_memory, "PATIENCE_S", 0.01)

    async def scenario() -> None:
        later: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        floor = Floor(4, lambda request, context: asyncio.shield(later))
        for peer in floor.peers[:2]:
            send(peer, 0, len(REQUEST))
        for peer in floor.peers[2:]:
            send(peer, 0, 70_000)
        assert floor.memory.is_short
        await asyncio.sleep(0.05)
        assert not any(floor.aborted)
        assert not floor.peers[3].transport.reading
        later.set_result(ProduceResponse())
        await until(lambda: floor.peers[3].transport.reading)

    run(scenario)


def test_a_connection_that_ends_gives_back_its_memory() -> None:
    async def scenario() -> None:
        floor = Floor(2)
        send(floor.peers[0], 0, 150_000)
        floor.peers[0].session.abort("test")
        floor.peers[0].session.connection_lost(None)
        assert floor.memory.total_bytes == 0
        floor.peers[1].feed(question(1)[:2])
        assert floor.memory.total_bytes == 0

    run(scenario)
