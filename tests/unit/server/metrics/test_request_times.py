"""The parts of a request's time, as the session notes them on a clock that the test holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from felice.config import BrokerConfig
from felice.protocol.api import API
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from felice.protocol.messages.fetch import FetchRequest, ReplicaState
from felice.server.context import RequestContext
from felice.server.flow.request_times import RECENT, RequestMetrics, RequestTimes, quantiles
from felice.server.flow.turns import Turns
from unit.server.test_session import KEY, Peer, large_question, question, run
from unit.server.test_turns import Floor, HeldClock, questions
from waiting import LIMIT_S


def peer_on(clock: HeldClock, handle: Any) -> Peer:
    config = BrokerConfig()
    return Peer(handle, turns=Turns(clock, lambda: config, list), config=config)


def test_a_request_that_is_answered_at_once_takes_its_time_on_the_event_loop() -> None:
    async def scenario() -> None:
        floor = Floor(1)
        cost_s = floor.cost_s = 1 / 512
        peer = floor.peers[0]
        peer.feed(questions(2))
        # The second request waited for the first one.
        assert list(peer.requests.times[KEY].parts) == [(0.0, cost_s, 0.0, 0.0), (cost_s, cost_s, 0.0, 0.0)]
        assert peer.requests.counts[KEY] == {1: 2}
        assert peer.requests.total(KEY) == 2

    run(scenario)


def test_a_request_that_waits_for_something_takes_remote_time() -> None:
    async def scenario() -> None:
        clock, gate = HeldClock(), asyncio.get_running_loop().create_future()

        async def later(request: Any) -> DeleteRecordsResponse:
            await gate
            return DeleteRecordsResponse(throttle_time_ms=request.timeout_ms)

        def handle(request: Any, context: RequestContext) -> Any:
            clock.now_s += 0.5
            return later(request)

        peer = peer_on(clock, handle)
        peer.feed(question(1))
        assert not peer.requests.times[KEY].parts
        await asyncio.sleep(0)
        clock.now_s += 2.0
        gate.set_result(None)
        while not peer.replies():
            await asyncio.sleep(0)
        assert list(peer.requests.times[KEY].parts) == [(0.0, 0.5, 2.0, 0.0)]

    run(scenario)


def test_a_large_request_is_timed_too() -> None:
    async def scenario() -> None:
        clock = HeldClock()

        def handle(request: Any, context: RequestContext) -> DeleteRecordsResponse:
            clock.now_s += 0.5
            return DeleteRecordsResponse(throttle_time_ms=request.timeout_ms)

        peer = peer_on(clock, handle)
        peer.feed(large_question(7))
        async with asyncio.timeout(LIMIT_S):
            while not peer.replies():
                await asyncio.sleep(0)
        ((queued_s, local_s, _, _),) = peer.requests.times[KEY].parts
        assert (queued_s, local_s) == (0.0, 0.5)

    run(scenario)


def test_sending_lasts_until_the_transport_is_empty() -> None:
    async def scenario() -> None:
        clock = HeldClock()
        peer = peer_on(clock, lambda request, context: DeleteRecordsResponse(throttle_time_ms=1))
        peer.transport.stuck = True
        peer.feed(question(1))
        assert not peer.requests.times[KEY].sending
        clock.now_s += 3.0
        peer.transport.drain(peer.session)
        assert list(peer.requests.times[KEY].sending) == [3.0]

    run(scenario)


def test_a_reply_queues_until_earlier_requests_are_answered() -> None:
    async def scenario() -> None:
        clock, gate = HeldClock(), asyncio.get_running_loop().create_future()

        async def later(request: Any) -> DeleteRecordsResponse:
            await gate
            return DeleteRecordsResponse()

        def handle(request: Any, context: RequestContext) -> Any:
            return later(request) if request.timeout_ms == 1 else DeleteRecordsResponse()

        peer = peer_on(clock, handle)
        peer.feed(question(1) + question(2))
        await asyncio.sleep(0)
        assert peer.session.waiting_replies == 1
        clock.now_s += 2.0
        gate.set_result(None)
        while not peer.replies():
            await asyncio.sleep(0)
        assert list(peer.requests.times[KEY].queueing) == [0.0, 2.0]
        assert peer.session.waiting_replies == 0

    run(scenario)


@pytest.mark.parametrize("ask", [question, large_question], ids=["small", "large"])
def test_error_codes_of_responses_are_counted(ask: Any) -> None:
    async def scenario() -> None:
        partitions = [
            DeleteRecordsPartitionResult(partition_index=number, error_code=number % 2 * 3)
            for number in range(3)
        ]
        topic = DeleteRecordsTopicResult(name="t", partitions=partitions)
        peer = peer_on(HeldClock(), lambda request, context: DeleteRecordsResponse(topics=[topic]))
        peer.feed(ask(1))
        async with asyncio.timeout(LIMIT_S):
            while not peer.requests.errors[KEY]:
                await asyncio.sleep(0)
        assert peer.requests.errors[KEY] == {0: 2, 3: 1}

    run(scenario)


@pytest.mark.parametrize(
    "message",
    [FetchRequest(replica_id=2), FetchRequest(replica_state=ReplicaState(replica_id=2))],
    ids=["version 14", "version 15"],
)
def test_fetches_of_followers_are_timed_apart(message: FetchRequest) -> None:
    requests = RequestMetrics({1: API.FETCH})
    assert requests.times_of(1, message) is requests.follower_fetches
    assert requests.times_of(1, FetchRequest()) is requests.times[1]


def test_the_newest_times_are_kept() -> None:
    times = RequestTimes()
    for number in range(RECENT + 10):
        times.add((float(number), 0.0, 0.0, 0.0))
    assert (len(times.parts), times.parts[0][0], times.timed) == (RECENT, 10.0, RECENT + 10)


def test_quantiles() -> None:
    assert quantiles([], (0.5, 0.99)) == [0.0, 0.0]
    assert quantiles([3.0], (0.5, 0.999)) == [3.0, 3.0]
    assert quantiles(reversed(range(100)), (0.5, 0.95, 0.99, 1.0)) == [50, 95, 99, 99]
