"""Fairness between connections, counted in turns and bytes, over transports that the test holds in its hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from felice.config import BrokerConfig
from felice.protocol.frames import encode_request
from felice.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from felice.server.context import RequestContext
from felice.server.flow.turns import PATIENCE_S, Turns
from unit.server.test_session import KEY, VERSION, Peer, echo, question
from waiting import let_run, until


class HeldClock:
    """Stands still until the test, or a handler, moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


class Floor:
    """Several peers that share one queue of turns; `handled` names the peer of each request, in order."""

    def __init__(self, count: int, **limits: int) -> None:
        self.clock = HeldClock()
        self.config = BrokerConfig(**limits)  # type: ignore[arg-type]
        self.handled: list[int] = []
        self.cost_s = 0.0
        self.reply_bytes = 0
        self.peers: list[Peer] = []
        self.turns = Turns(self.clock, lambda: self.config, lambda: [peer.session for peer in self.peers])
        for number in range(count):
            peer = Peer(self._handler(number), turns=self.turns, config=self.config)
            self.peers.append(peer)

    def _handler(self, number: int) -> Callable[[Any, RequestContext], Any]:
        def handle(request: Any, context: RequestContext) -> DeleteRecordsResponse:
            self.handled.append(number)
            self.clock.now_s += self.cost_s
            row = DeleteRecordsTopicResult(name="x" * self.reply_bytes)
            return DeleteRecordsResponse(throttle_time_ms=request.timeout_ms, topics=[row])

        return handle


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def questions(count: int) -> bytes:
    return b"".join(question(number) for number in range(count))


def test_a_connection_handles_no_more_requests_in_one_turn_than_allowed() -> None:
    async def scenario() -> None:
        floor = Floor(1, felice_turn_max_requests=10)
        floor.peers[0].feed(questions(25))
        assert len(floor.handled) == 10
        assert not floor.peers[0].transport.reading
        assert not floor.peers[0].session.is_idle
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(floor.handled) == 25
        assert floor.peers[0].transport.reading
        assert floor.peers[0].session.is_idle

    run(scenario)


def test_a_turn_ends_when_its_time_is_over() -> None:
    async def scenario() -> None:
        floor = Floor(1, felice_turn_max_ms=5)
        floor.cost_s = 0.002
        floor.peers[0].feed(questions(9))
        assert len(floor.handled) == 3  # 2, 4 and 6 ms

    run(scenario)


def test_a_turn_ends_when_its_bytes_are_spent() -> None:
    async def scenario() -> None:
        floor = Floor(1, felice_turn_max_bytes=10_000)
        floor.reply_bytes = 4_000
        floor.peers[0].feed(questions(9))
        assert len(floor.handled) == 3

    run(scenario)


def test_connections_with_many_requests_alternate() -> None:
    async def scenario() -> None:
        floor = Floor(3, felice_turn_max_requests=2)
        for peer in floor.peers:
            peer.feed(questions(6))
        while len(floor.handled) < 18:
            await asyncio.sleep(0)
        # The first connection was alone. The later turns are taken together: first a request of each.
        for begin in range(12):
            assert len(set(floor.handled[begin : begin + 5])) == 3, "all have turns in turn"

    run(scenario)


def test_a_new_request_waits_for_one_slice_however_many_connections_wait() -> None:
    async def scenario() -> None:
        floor = Floor(21, felice_turn_max_requests=2)
        floor.cost_s = 0.003
        for peer in floor.peers[:20]:
            peer.feed(questions(50))
        begun = len(floor.handled)
        await asyncio.sleep(0)  # one slice of 10 ms: four requests, and what the last turn takes beyond it
        floor.peers[20].feed(question(1))
        await asyncio.sleep(0)
        assert floor.handled.index(20) - begun <= 4 + 1

    run(scenario)


def test_bytes_that_arrive_after_the_slice_is_used_wait_beside_those_that_wait_longer() -> None:
    async def scenario() -> None:
        floor = Floor(5, felice_turn_max_requests=1)
        floor.cost_s = 0.006
        for peer in floor.peers[:3]:
            peer.feed(questions(3))
        assert floor.handled == [0], "the others wait to have their turns together"
        floor.peers[3].feed(question(1))
        floor.peers[4].feed(question(1))
        slices = []
        while len(floor.handled) < 11:
            begun = len(floor.handled)
            await asyncio.sleep(0)
            slices.append(floor.handled[begun:])
        assert slices == [[1, 0], [2, 3], [4, 1], [0, 2], [1, 2]]

    run(scenario)


def test_requests_of_a_closed_connection_are_dropped() -> None:
    async def scenario() -> None:
        floor = Floor(2, felice_turn_max_requests=1)
        for peer in floor.peers:
            peer.feed(questions(5))
        lost = floor.peers[0].session
        lost.connection_lost(None)
        assert not lost._connection.frames
        assert lost not in floor.turns._queue
        await until(lambda: len(floor.handled) >= 6)
        await let_run()
        assert floor.handled == [0, 1, 1, 1, 1, 1]

    run(scenario)


def test_a_reply_counts_when_it_is_made_though_it_waits_behind_another() -> None:
    async def scenario() -> None:
        gate: asyncio.Future[DeleteRecordsResponse] = asyncio.get_running_loop().create_future()
        handled: list[int] = []

        def handle(request: Any, context: RequestContext) -> Any:
            handled.append(request.timeout_ms)
            if request.timeout_ms == 0:
                return gate
            return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="x" * 400)])

        peer = Peer(handle, config=BrokerConfig(felice_connection_unsent_max_bytes=1_000))
        peer.feed(questions(20))
        assert handled == [0, 1, 2, 3]
        assert peer.turns.unsent.total_bytes == peer.session.unsent_bytes > 1_000
        assert not peer.transport.reading
        gate.set_result(DeleteRecordsResponse())
        while len(handled) < 20:
            await asyncio.sleep(0)
        assert peer.turns.unsent.total_bytes == 0
        assert peer.transport.reading

    run(scenario)


def test_bytes_count_until_the_kernel_has_them() -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        peer.transport.stuck = True
        peer.feed(question(0))
        assert peer.turns.unsent.total_bytes == len(peer.transport.written) > 0
        peer.transport.drain(peer.session)
        assert peer.turns.unsent.total_bytes == 0

    run(scenario)


def test_a_large_reply_reaches_the_transport_in_pieces() -> None:
    async def scenario() -> None:
        floor = Floor(1)
        floor.reply_bytes = 30_000
        peer = floor.peers[0]
        peer.transport.stuck = True
        peer.feed(questions(10))
        assert len(peer.transport.written) == 64 * 1024
        whole = floor.turns.unsent.total_bytes
        while not peer.session.is_idle:
            peer.transport.drain(peer.session)
        assert len(peer.transport.written) == whole
        assert [correlation_id for correlation_id, _ in peer.replies()] == list(range(10))

    run(scenario)


def test_readers_that_never_read_lose_their_connections_when_memory_is_short() -> None:
    async def scenario() -> None:
        floor = Floor(3, felice_unsent_max_bytes=50_000)
        floor.reply_bytes = 30_000
        for peer in floor.peers[:2]:
            peer.transport.stuck = True
        floor.peers[0].feed(question(1) + question(2) + question(3))
        floor.peers[1].feed(question(1))
        floor.peers[2].feed(question(1))
        assert floor.handled == [0, 0]  # memory is short: nobody else is served for a while
        await asyncio.sleep(0.03)
        assert floor.handled == [0, 0]
        floor.clock.now_s += PATIENCE_S
        await until(lambda: 2 in floor.handled)
        assert [peer.transport.aborted for peer in floor.peers] == [True, False, False]
        assert floor.handled == [0, 0, 1, 2]
        assert floor.turns.unsent.total_bytes == sum(peer.session.unsent_bytes for peer in floor.peers)

    run(scenario)


def test_connections_are_closed_until_half_of_the_memory_is_free() -> None:
    async def scenario() -> None:
        floor = Floor(6, felice_unsent_max_bytes=90_000)
        floor.reply_bytes = 20_000
        for peer in floor.peers[:5]:
            peer.transport.stuck = True
            peer.feed(question(1))
            await asyncio.sleep(0)
        floor.peers[5].feed(question(1))
        assert floor.peers[5].session in floor.turns._arrived
        await asyncio.sleep(0.03)
        floor.clock.now_s += PATIENCE_S
        await until(lambda: 5 in floor.handled)
        assert [peer.transport.aborted for peer in floor.peers].count(True) == 3

    run(scenario)


def test_a_connection_that_is_lost_before_its_first_turn_waits_no_longer() -> None:
    async def scenario() -> None:
        floor = Floor(2)
        floor.cost_s = 0.02
        for peer in floor.peers:
            peer.feed(question(1))
        lost = floor.peers[1].session
        assert lost in floor.turns._arrived
        lost.connection_lost(None)
        assert lost not in floor.turns._arrived

    run(scenario)


def test_a_connection_that_ends_gives_its_memory_back() -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        peer.transport.stuck = True
        peer.feed(questions(3))
        assert peer.turns.unsent.total_bytes > 0
        peer.session.connection_lost(None)
        assert peer.turns.unsent.total_bytes == 0

    run(scenario)


@pytest.mark.parametrize("step", ["read_request", "handle_request", "end_turn"])
def test_an_exception_in_a_step_of_one_connection_does_not_stop_the_others(step: str) -> None:
    async def scenario() -> None:
        floor = Floor(4, felice_turn_max_requests=1)

        def fail(*args: object) -> None:
            raise RuntimeError("a fault of ours")

        setattr(floor.peers[1].session, step, fail)
        for peer in floor.peers:
            peer.feed(questions(2))
        async with asyncio.timeout(60):
            while sum(floor.handled.count(number) for number in (0, 2, 3)) < 6:
                await asyncio.sleep(0)
        assert [peer.transport.aborted for peer in floor.peers] == [False, True, False, False]

    run(scenario)


def test_a_connection_that_waits_for_its_first_turn_reads_once_more_and_then_stops() -> None:
    async def scenario() -> None:
        floor = Floor(2)
        floor.cost_s = 0.02
        floor.peers[0].feed(question(1))
        waiting = floor.peers[1]
        waiting.feed(question(1))
        assert floor.handled == [0]
        assert waiting.transport.reading, "a client that waits for its reply sends nothing more"
        waiting.feed(question(2))
        assert not waiting.transport.reading
        while floor.handled != [0, 1, 1]:
            await asyncio.sleep(0)
        assert waiting.transport.reading

    run(scenario)


def test_a_new_request_is_served_before_more_than_a_batch_of_older_ones() -> None:
    async def scenario() -> None:
        floor = Floor(202)
        floor.cost_s = 0.006
        for peer in floor.peers[:201]:
            peer.feed(question(1))
        await asyncio.sleep(0)  # a slice, in which nearly all of them wait in vain
        begun = len(floor.handled)
        floor.peers[201].feed(question(1))
        while 201 not in floor.handled:
            await asyncio.sleep(0)
        assert len(floor.handled) - begun <= 4
        async with asyncio.timeout(60):
            while len(floor.handled) < 202:
                await asyncio.sleep(0)
        assert sorted(floor.handled) == list(range(202))

    run(scenario)


def test_connections_take_their_turns_together_step_by_step() -> None:
    async def scenario() -> None:
        floor = Floor(4)
        steps: list[tuple[str, int]] = []
        for number, peer in enumerate(floor.peers):
            for step in ("read_request", "handle_request", "end_turn"):
                note(peer.session, step, number, steps)
        for peer in floor.peers:
            peer.feed(question(1))
        assert steps == [("read_request", 0), ("handle_request", 0), ("end_turn", 0)], "it was alone"
        await asyncio.sleep(0)
        assert steps[3:] == [
            (step, number) for step in ("read_request", "handle_request", "end_turn") for number in (1, 2, 3)
        ]
        steps.clear()
        floor.clock.now_s += 1
        floor.peers[2].feed(question(2))
        assert len(steps) == 3, "it was alone again"

    run(scenario)


def test_few_large_requests_are_decoded_at_a_time() -> None:
    async def scenario() -> None:
        floor = Floor(6)
        steps: list[tuple[str, int]] = []
        for number, peer in enumerate(floor.peers):
            for step in ("read_request", "handle_request"):
                note(peer.session, step, number, steps)
        floor.peers[0].feed(question(1))
        steps.clear()
        for peer in floor.peers[1:]:
            peer.feed(large_body(40_000))
        await asyncio.sleep(0)
        assert [step for step, _ in steps[:3]] == ["read_request", "read_request", "handle_request"]

    run(scenario)


def note(session: Any, step: str, number: int, steps: list[tuple[str, int]]) -> None:
    call = getattr(session, step)

    def noted(*args: float) -> Any:
        steps.append((step, number))
        return call(*args)

    setattr(session, step, noted)


def large_body(size_bytes: int) -> bytes:
    asked = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="x" * (size_bytes // 2))] * 2)
    return encode_request(KEY, VERSION, 1, "test", asked)
