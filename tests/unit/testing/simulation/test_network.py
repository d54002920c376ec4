"""The simulated network, as two programs see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from felice.testing.simulation.loop import SimLoop
from felice.testing.simulation.network import ProcessNetwork, SimNetwork
from felice.testing.simulation.process import Process


class Peer(asyncio.Protocol):
    """A protocol that keeps what it receives."""

    def __init__(self) -> None:
        self.data = b""
        self.pieces = 0
        self.ended: Any = "not yet"
        self.paused = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = exc

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


class Two:
    """A server on `b`, and clients on `a`."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(Random(seed), limit_s=1000)
        self.network = SimNetwork(self.loop, Random(seed))
        self.a, self.b = Process(self.loop, "a"), Process(self.loop, "b")
        self.accepted: list[Peer] = []

    def accept(self) -> Peer:
        self.accepted.append(Peer())
        return self.accepted[-1]

    async def listen(self) -> ProcessNetwork:
        network = self.network.of(self.b, "b")
        await network.listen(self.accept, None, 9)
        return self.network.of(self.a, "a")

    async def connected(self) -> tuple[Peer, Peer]:
        near = await self.listen()
        _, peer = await near.connect(Peer, "b", 9)
        assert isinstance(peer, Peer)
        return peer, self.accepted[0]


def play(scene: Callable[[Two], Awaitable[None]], seed: int = 1) -> None:
    two = Two(seed)

    async def main() -> None:
        await two.a.run(scene(two))  # type: ignore[arg-type]

    try:
        two.loop.run_until_complete(main())
        assert not two.loop.uncaught
    finally:
        two.loop.close()


def test_bytes_arrive_in_order_and_in_pieces() -> None:
    pieces = []

    async def scene(two: Two) -> None:
        near, far = await two.connected()
        for number in range(100):
            near.transport.write(bytes([number]) * 50)
        assert far.data == b""
        await asyncio.sleep(1)
        assert far.data == b"".join(bytes([number]) * 50 for number in range(100))
        pieces.append(far.pieces)

    for seed in range(5):
        play(scene, seed)
    assert max(pieces) > 100


def test_connections_overtake_each_other() -> None:
    async def scene(two: Two) -> None:
        near = await two.listen()
        peers = [(await near.connect(Peer, "b", 9))[1] for _ in range(10)]
        for peer in peers:
            assert isinstance(peer, Peer)
            peer.transport.write(b"x")
        arrived = list[int]()
        while len(arrived) < 10:
            await asyncio.sleep(0.00005)
            arrived += [n for n, far in enumerate(two.accepted) if far.data and n not in arrived]
        assert arrived != sorted(arrived)

    play(scene)


def test_a_reader_that_pauses_stops_the_writer() -> None:
    async def scene(two: Two) -> None:
        near, far = await two.connected()
        far.transport.pause_reading()
        near.transport.write(b"x" * 1_000_000)
        await asyncio.sleep(1)
        assert near.paused
        assert near.transport.get_write_buffer_size() > 500_000
        assert far.data == b""
        far.transport.resume_reading()
        await asyncio.sleep(10)
        assert not near.paused
        assert len(far.data) == 1_000_000

    play(scene)


def test_close_sends_written_data_first() -> None:
    async def scene(two: Two) -> None:
        near, far = await two.connected()
        near.transport.write(b"x" * 1_000_000)
        near.transport.close()
        await asyncio.sleep(10)
        assert len(far.data) == 1_000_000
        assert near.ended is None
        assert far.ended is None

    play(scene)


def test_abort_drops_unsent_data() -> None:
    async def scene(two: Two) -> None:
        near, far = await two.connected()
        near.transport.write(b"x" * 1_000_000)
        near.transport.abort()
        await asyncio.sleep(10)
        assert len(far.data) < 1_000_000
        assert near.ended is None
        assert far.ended is None

    play(scene)


def test_a_cut_connection_ends_at_both_ends_and_loses_data_in_flight() -> None:
    async def scene(two: Two) -> None:
        near, far = await two.connected()
        near.transport.write(b"x" * 100)
        two.network.cut(two.network.connections()[0])
        await asyncio.sleep(1)
        assert isinstance(near.ended, ConnectionResetError)
        assert isinstance(far.ended, ConnectionResetError)
        assert far.data == b""

    play(scene)


def test_a_blocked_direction_holds_data_in_flight_and_leaves_the_other_direction_open() -> None:
    async def scene(two: Two) -> None:
        near, far = await two.connected()
        two.network.block("a", "b")
        near.transport.write(b"there")
        far.transport.write(b"here")
        await asyncio.sleep(30)
        assert far.data == b""
        assert near.data == b"here"
        two.network.unblock("a", "b")
        await asyncio.sleep(1)
        assert far.data == b"there"

    play(scene)


def test_no_connection_is_made_across_a_network_partition() -> None:
    async def scene(two: Two) -> None:
        near = await two.listen()
        two.network.part("a", "b")
        with pytest.raises(TimeoutError):
            await near.connect(Peer, "b", 9)
        assert two.loop.time() > 50
        two.network.heal()
        await near.connect(Peer, "b", 9)

    play(scene)


def test_a_slow_direction_delays_data() -> None:
    async def scene(two: Two) -> None:
        near, far = await two.connected()
        two.network.slow("a", "b", 3.0)
        near.transport.write(b"late")
        await asyncio.sleep(2.9)
        assert far.data == b""
        await asyncio.sleep(0.2)
        assert far.data == b"late"

    play(scene)


def test_a_closed_port_refuses_and_an_unknown_name_is_unknown() -> None:
    async def scene(two: Two) -> None:
        near = await two.listen()
        with pytest.raises(ConnectionRefusedError):
            await near.connect(Peer, "b", 10)
        with pytest.raises(OSError, match="Name or service not known"):
            await near.connect(Peer, "nowhere", 9)

    play(scene)


def test_a_killed_process_closes_its_connections_and_its_port() -> None:
    async def scene(two: Two) -> None:
        near, far = await two.connected()
        far.transport.write(b"last words")
        two.b.end()
        await asyncio.sleep(1)
        assert near.data == b"last words"
        assert near.ended is None
        with pytest.raises(ConnectionRefusedError):
            await two.network.of(two.a, "a").connect(Peer, "b", 9)

    play(scene)


def test_a_machine_without_power_is_silent_until_it_is_back_and_receives_data() -> None:
    async def scene(two: Two) -> None:
        near, _ = await two.connected()
        two.network.cut_power("b")
        two.b.end()
        await asyncio.sleep(5)
        assert near.ended == "not yet"
        near.transport.write(b"are you there?")
        await asyncio.sleep(5)
        assert near.ended == "not yet"
        two.network.of(Process(two.loop, "b again"), "b")
        await asyncio.sleep(5)
        assert isinstance(near.ended, ConnectionResetError)

    play(scene)
