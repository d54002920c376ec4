"""Connections to other brokers: replies, deadlines, brokers that leave, and shared attempts to connect."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from felice.env import SystemClock, SystemNetwork
from felice.protocol.api import API
from felice.protocol.frames import decode_request_header, encode_response
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from felice.replication.peers import Destination, Link, NoSecurity, Peers, PeerUnavailable
from unit.client.fake_broker import Disconnect, FakeBroker, Hang
from waiting import LIMIT_S, until


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))  # type: ignore[arg-type]


class Cluster:
    """Peers for which the test sets the address of broker 2."""

    def __init__(self, port: int | None, network: Any = None) -> None:
        self.destination = Destination("127.0.0.1", port, 5) if port else None
        self.peers = Peers(network or SystemNetwork(), SystemClock(), 1, lambda broker: self.destination)

    async def ask(self, timeout_s: float = LIMIT_S) -> Any:
        return await self.peers.call(2, API.LIST_OFFSETS, ListOffsetsRequest(replica_id=1), timeout_s)


def test_a_request_gets_its_reply_in_the_best_common_version() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        assert (await cluster.ask()).topics == []
        await asyncio.gather(*(cluster.ask() for _ in range(5)))
        await cluster.peers.close()

    with FakeBroker() as broker:
        run(scenario)
        versions = [
            version for request, version in broker.requests if isinstance(request, ListOffsetsRequest)
        ]
    assert versions == [API.LIST_OFFSETS.versions.max] * 6


@pytest.mark.parametrize(("fault", "reason"), [(Hang, "no answer to ListOffsets"), (Disconnect, "closed")])
def test_a_request_without_a_reply_says_why_and_the_next_one_reconnects(fault: object, reason: str) -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        await cluster.ask()
        broker.script(ListOffsetsRequest, fault)
        with pytest.raises(PeerUnavailable, match=reason):
            await cluster.ask(0.1 if fault is Hang else LIMIT_S)
        await until(lambda: len(broker.asked(ListOffsetsRequest)) == 2)
        assert (await cluster.ask()).topics == []
        await cluster.peers.close()

    with FakeBroker() as broker:
        run(scenario)


def test_a_request_that_the_other_broker_does_not_know_is_not_sent() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        with pytest.raises(PeerUnavailable, match="does not know FindCoordinator"):
            await cluster.peers.call(2, API.FIND_COORDINATOR, FindCoordinatorRequest(), LIMIT_S)
        await cluster.peers.close()

    with FakeBroker(ranges={2: (1, 7)}) as broker:
        run(scenario)
        assert not any(isinstance(request, FindCoordinatorRequest) for request, _ in broker.requests)


def test_a_connection_to_a_broker_that_left_or_registered_again_is_closed() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        await cluster.ask()
        broker.script(ListOffsetsRequest, Hang)
        asked = len(broker.requests)
        waiting = asyncio.ensure_future(cluster.ask())
        await until(lambda: len(broker.requests) > asked)
        cluster.destination = Destination("127.0.0.1", broker.port, 6)
        cluster.peers.follow()
        with pytest.raises(PeerUnavailable, match="registered again"):
            await waiting
        await cluster.ask()
        cluster.destination = None
        cluster.peers.follow()
        with pytest.raises(
            PeerUnavailable, match=r"broker 2 is not there, or .*inter\.broker\.listener\.name"
        ):
            await cluster.ask()
        await cluster.peers.close()

    with FakeBroker() as broker:
        run(scenario)


class RefusingNetwork:
    def __init__(self) -> None:
        self.attempts: list[float] = []

    async def connect(self, factory: Any, host: str, port: int, **facts: Any) -> Any:
        self.attempts.append(time.monotonic())
        raise ConnectionRefusedError(111, "Connection refused")


def test_attempts_are_shared_and_spaced() -> None:
    async def scenario() -> None:
        network = RefusingNetwork()
        cluster = Cluster(9, network)
        found = await asyncio.gather(*(cluster.ask() for _ in range(10)), return_exceptions=True)
        assert all(isinstance(error, PeerUnavailable) for error in found)
        assert len(network.attempts) == 1
        for _ in range(3):
            with pytest.raises(PeerUnavailable, match="Connection refused"):
                await cluster.ask()
        gaps = [after - before for before, after in zip(network.attempts, network.attempts[1:], strict=False)]
        assert all(gap >= wanted - 0.01 for gap, wanted in zip(gaps, (0.05, 0.1, 0.2), strict=True))
        # After a registration the next attempt starts at once.
        for lane in cluster.peers._lanes.values():
            lane.next_attempt_s += 600
        cluster.peers.follow()
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(PeerUnavailable):
                await cluster.ask()
        await cluster.peers.close()

    run(scenario)


def test_a_stop_ends_waiting_requests() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        await cluster.ask()
        broker.script(ListOffsetsRequest, Hang)
        asked = len(broker.requests)
        waiting = asyncio.ensure_future(cluster.ask())
        await until(lambda: len(broker.requests) > asked)
        await cluster.peers.close()
        with pytest.raises(PeerUnavailable, match="this broker stops"):
            await waiting
        with pytest.raises(PeerUnavailable):
            await cluster.ask()

    with FakeBroker() as broker:
        run(scenario)


def test_an_abandoned_connection_attempt_fails_silently() -> None:
    async def scenario() -> None:
        uncaught: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: uncaught.append(context))
        cluster = Cluster(1)
        asking = asyncio.ensure_future(cluster.ask())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.sleep(0.1)
        gc.collect()
        assert uncaught == []
        await cluster.peers.close()

    run(scenario)


def test_a_reply_to_an_abandoned_request_disturbs_no_other_request() -> None:
    """The caller is cancelled, and the reply is read before the caller runs again."""

    class Transport(asyncio.Transport):
        def write(self, data: Any) -> None:
            pass

        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return default

    async def scenario() -> None:
        link = Link(Destination("h", 1, 5), "broker-1", NoSecurity())
        link.connection_made(Transport())
        calls = [
            asyncio.create_task(
                link.call_version(API.LIST_OFFSETS, 10, ListOffsetsRequest(replica_id=1), timeout_s=LIMIT_S)
            )
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        calls[0].cancel()
        for number in sorted(link._waiting):
            data = encode_response(API.LIST_OFFSETS.key, 10, number, ListOffsetsResponse(topics=[]))
            link.get_buffer(-1)[: len(data)] = data
            link.buffer_updated(len(data))
        assert (await calls[1]).topics == []
        assert not link.is_closed
        await asyncio.gather(calls[0], return_exceptions=True)

    run(scenario)


def test_a_broker_that_knows_only_our_oldest_version_gets_requests_in_it() -> None:
    oldest = API.LIST_OFFSETS.versions.min

    async def scenario() -> None:
        cluster = Cluster(broker.port)
        assert (await cluster.ask()).topics == []
        await cluster.peers.close()

    with FakeBroker(ranges={API.LIST_OFFSETS.key: (oldest, oldest)}) as broker:
        run(scenario)
        assert [version for _, version in broker.requests][-1] == oldest


def test_a_connection_to_a_broker_that_stays_is_kept() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        await cluster.ask()
        for _ in range(3):
            cluster.peers.follow()
            await cluster.ask()
        await cluster.peers.close()

    with FakeBroker() as broker:
        run(scenario)
        assert len(broker.asked(ApiVersionsRequest)) == 1


def test_lanes_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        slow = asyncio.ensure_future(cluster.ask(LIMIT_S))
        await until(lambda: broker.asked(ListOffsetsRequest))
        request = ListOffsetsRequest(replica_id=2)
        assert (await cluster.peers.call(2, API.LIST_OFFSETS, request, LIMIT_S, lane="other")).topics == []
        assert not slow.done()
        await cluster.peers.close()
        with pytest.raises(PeerUnavailable, match="this broker stops"):
            await slow

    with FakeBroker() as broker:
        broker.script(ListOffsetsRequest, Hang)
        run(scenario)
        assert [request.replica_id for request in broker.asked(ListOffsetsRequest)] == [1, 2]
        assert len(broker.asked(ApiVersionsRequest)) == 2


def test_a_request_at_its_deadline_closes_the_connection_for_all() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        await cluster.ask()
        broker.script(ListOffsetsRequest, Hang)
        late, other = cluster.ask(0.1), cluster.ask(LIMIT_S)
        found = await asyncio.gather(late, other, return_exceptions=True)
        reason = f"127.0.0.1:{broker.port}: no answer to ListOffsets in 0.1 s"
        assert [str(error).endswith(reason) for error in found] == [True, True]
        await cluster.peers.close()

    with FakeBroker() as broker:
        run(scenario)


def test_a_broker_whose_versions_are_unknown_is_not_asked() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        with pytest.raises(PeerUnavailable, match="closed"):
            await cluster.ask()
        assert (await cluster.ask()).topics == []
        await cluster.peers.close()

    with FakeBroker() as broker:
        broker.script(ApiVersionsRequest, Disconnect)
        run(scenario)


def test_an_attempt_that_succeeds_ends_the_growth_of_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        network = RefusingNetwork()
        cluster = Cluster(broker.port, network)
        for _ in range(2):
            with pytest.raises(PeerUnavailable):
                await cluster.ask()
        cluster.peers._network = SystemNetwork()
        assert (await cluster.ask()).topics == []
        [lane] = cluster.peers._lanes.values()
        assert lane.backoff_s == 0.05
        await cluster.peers.close()

    with FakeBroker() as broker:
        run(scenario)


def test_requests_after_the_stop_are_refused_at_once() -> None:
    async def scenario() -> None:
        cluster = Cluster(9, RefusingNetwork())
        await cluster.peers.close()
        with pytest.raises(PeerUnavailable, match="broker 2 is not there"):
            await cluster.ask()

    run(scenario)


def test_the_client_id_names_this_broker() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        await cluster.ask()
        await cluster.peers.close()

    clients: list[str | None] = []
    with FakeBroker() as broker:
        answer = broker._answer

        async def noted(frame: bytes, writer: Any) -> bool:
            clients.append(decode_request_header(frame)[0].client_id)
            return await answer(frame, writer)

        broker._answer = noted  # type: ignore[method-assign]
        run(scenario)
    assert clients == ["broker-1", "broker-1"]


class NotedNetwork(SystemNetwork):
    """Keeps the addresses and the links of attempts."""

    def __init__(self) -> None:
        self.addresses: list[tuple[str, int]] = []
        self.links: list[Link] = []

    async def connect(self, factory: Any, host: str, port: int, **facts: Any) -> Any:
        self.addresses.append((host, port))
        self.links.append(factory())
        return await super().connect(factory, host, port, **facts)


def test_an_attempt_goes_to_the_registered_address_and_leaves_no_connection_if_it_fails() -> None:
    async def scenario() -> None:
        network = NotedNetwork()
        cluster = Cluster(broker.port, network)
        asking = asyncio.ensure_future(cluster.ask())
        await until(lambda: broker.asked(ApiVersionsRequest))
        assert network.addresses == [("127.0.0.1", broker.port)]
        assert not network.links[0].is_closed
        await cluster.peers.close()
        await asyncio.gather(asking, return_exceptions=True)
        assert network.links[0].is_closed

    with FakeBroker() as broker:
        broker.script(ApiVersionsRequest, Hang)
        run(scenario)


def test_a_reply_that_cannot_be_read_ends_the_connection_with_the_reason() -> None:
    async def scenario() -> None:
        cluster = Cluster(broker.port)
        await cluster.ask()
        [lane] = cluster.peers._lanes.values()
        assert lane.link is not None
        broker.script(ListOffsetsRequest, Hang)
        waiting = asyncio.ensure_future(cluster.ask())
        await until(lambda: len(broker.asked(ListOffsetsRequest)) == 2)
        lane.link.get_buffer(-1)[:4] = b"\xff\xff\xff\xff"
        lane.link.buffer_updated(4)
        with pytest.raises(PeerUnavailable) as ended:
            await waiting
        assert str(ended.value).startswith(f"127.0.0.1:{broker.port}: ")
        assert not str(ended.value).endswith("None")
        await cluster.peers.close()

    with FakeBroker() as broker:
        run(scenario)
