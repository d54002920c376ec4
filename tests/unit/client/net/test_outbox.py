import asyncio
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.client.net.outbox import Outbox

LARGE = 64 * 1024
MOST_WRITTEN = 1 << 20


class NarrowTransport(asyncio.Transport):
    """Takes some bytes at once, and pauses its user when it has more."""

    def __init__(self, takes: Iterable[int]) -> None:
        super().__init__()
        self.outbox: Outbox | None = None
        self.received = b""
        self.sizes: list[int] = []
        self.owners: list[object] = []
        self._takes = iter(takes)
        self._held = b""
        self._is_pausing = False

    def write(self, data: Any) -> None:
        assert not self._is_pausing
        self.sizes.append(len(data))
        self.owners.append(data.obj)
        self._held += bytes(data)
        self._take()

    def ready(self) -> None:
        """The socket has room again."""
        self._take()

    def _take(self) -> None:
        count = next(self._takes, len(self._held))
        self.received += self._held[:count]
        self._held = self._held[count:]
        assert self.outbox is not None
        if self._held and not self._is_pausing:
            self._is_pausing = True
            self.outbox.pause()
        elif not self._held and self._is_pausing:
            self._is_pausing = False
            self.outbox.resume()

    def is_closing(self) -> bool:
        return False

    @property
    def waits(self) -> bool:
        return self._is_pausing


def narrow(takes: Iterable[int]) -> tuple[NarrowTransport, Outbox]:
    transport = NarrowTransport(takes)
    transport.outbox = Outbox(transport)
    return transport, transport.outbox


@settings(max_examples=30)
@given(
    sizes=st.lists(
        st.lists(st.sampled_from((0, 1, 100, LARGE - 1, LARGE, 3 * LARGE, 3 << 19)), max_size=3), max_size=3
    ),
    takes=st.lists(st.sampled_from((0, 1, 1000, LARGE, 1 << 20)), max_size=20),
)
def test_bytes_leave_in_order_whatever_the_socket_takes(sizes: list[list[int]], takes: list[int]) -> None:
    transport, outbox = narrow(takes)
    wanted = b""
    for number, request in enumerate(sizes):
        parts = [bytes([number % 256, place]) * size for place, size in enumerate(request)]
        wanted += b"".join(parts)
        outbox.write(parts)
        transport.ready()
    while transport.waits:
        transport.ready()
    assert transport.received == wanted
    assert all(0 < size <= MOST_WRITTEN for size in transport.sizes)


def test_nothing_is_copied_while_the_transport_has_bytes_to_send() -> None:
    transport, outbox = narrow([10])
    batches = [bytearray(3 * LARGE), bytearray(2 * LARGE)]
    outbox.write([b"head", *batches])
    assert transport.sizes == [4, 3 * LARGE, 2 * LARGE]
    assert transport.owners[1:] == batches
    assert all(owner is batch for owner, batch in zip(transport.owners[1:], batches, strict=True))


def test_a_paused_transport_gets_no_more_than_one_piece() -> None:
    transport, outbox = narrow([0])
    outbox.write([bytes(4 << 20)])
    outbox.write([b"later"])
    assert transport.sizes == [MOST_WRITTEN]


def test_what_waits_is_forgotten_with_the_connection() -> None:
    transport, outbox = narrow([0, 0, 2 << 20])
    outbox.write([bytes(2 << 20)])
    outbox.drop()
    transport.ready()
    transport.ready()
    assert transport.sizes == [MOST_WRITTEN]


async def test_the_outbox_is_empty_when_the_transport_has_taken_the_last_piece() -> None:
    transport, outbox = narrow([0, MOST_WRITTEN, 0, MOST_WRITTEN])
    outbox.write([bytes(2 * MOST_WRITTEN + 1)])
    emptied = asyncio.ensure_future(outbox.emptied())
    await asyncio.sleep(0)
    transport.ready()
    await asyncio.sleep(0)
    assert not emptied.done()
    transport.ready()
    await emptied


class OwnedOutbox(asyncio.Protocol):
    """The protocol of a real connection with an outbox."""

    outbox: Outbox

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=1, low=0)
        self.outbox = Outbox(transport, transport.get_extra_info("socket"))

    def pause_writing(self) -> None:
        self.outbox.pause()

    def resume_writing(self) -> None:
        self.outbox.resume()


async def connected(send_buffer_bytes: int) -> tuple[OwnedOutbox, asyncio.Transport, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    theirs.setblocking(False)
    transport, protocol = await asyncio.get_running_loop().create_connection(OwnedOutbox, sock=ours)
    return protocol, transport, theirs


async def read(sock: socket.socket, size: int) -> bytes:
    loop, found = asyncio.get_running_loop(), bytearray()
    while len(found) < size:
        chunk = await loop.sock_recv(sock, 300_000)
        assert chunk, "the connection ended"
        found += chunk
    return bytes(found)


@pytest.mark.parametrize("send_buffer_bytes", [5000, 100_000, 4 << 20])
def test_a_narrow_socket_takes_all_bytes_in_order(send_buffer_bytes: int) -> None:
    async def run() -> None:
        protocol, transport, peer = await connected(send_buffer_bytes)
        requests = [[bytes([n]) * 50, Random(n).randbytes(LARGE * n + n), b"tail"] for n in range(20)]
        for request in requests:
            protocol.outbox.write(request)
            await asyncio.sleep(0)
        wanted = b"".join(part for request in requests for part in request)
        assert await read(peer, len(wanted)) == wanted
        await protocol.outbox.emptied()
        transport.close()
        peer.close()

    asyncio.run(run())


def test_a_request_is_one_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    writev = os.writev

    def counted(fd: int, parts: list[memoryview]) -> int:
        calls.append(len(parts))
        return writev(fd, parts)

    async def run() -> None:
        protocol, transport, peer = await connected(4 << 20)
        monkeypatch.setattr(transport, "write", None)
        protocol.outbox.write([b"head", bytes(LARGE), b"end"])
        assert len(await read(peer, LARGE + 7)) == LARGE + 7
        transport.close()
        peer.close()

    monkeypatch.setattr(os, "writev", counted)
    asyncio.run(run())
    assert calls == [3]


def test_the_socket_gets_nothing_while_the_transport_has_a_byte_to_send() -> None:
    """asyncio pauses its protocol above a byte only, and the order would change."""

    async def run() -> None:
        protocol, transport, peer = await connected(5000)
        sock = transport.get_extra_info("socket")
        sent = 0
        with suppress(BlockingIOError):
            while True:
                sent += os.write(sock.fileno(), bytes(1000))
        transport.write(b"1")
        assert transport.get_write_buffer_size() == 1
        assert await read(peer, sent) == bytes(sent)
        protocol.outbox.write([b"2"])
        assert await read(peer, 2) == b"12"
        transport.close()
        peer.close()

    asyncio.run(run())


def test_the_transport_of_a_socket_holds_a_small_piece() -> None:
    """Before Python 3.12 it copies what it holds each time that the socket takes a part of it."""

    async def run() -> None:
        protocol, transport, peer = await connected(5000)
        protocol.outbox.write([bytes(4 << 20)])
        assert 0 < transport.get_write_buffer_size() <= 16 * 1024
        transport.abort()
        peer.close()

    asyncio.run(run())


def test_a_socket_that_is_closed_takes_nothing() -> None:
    async def run() -> None:
        protocol, transport, peer = await connected(4 << 20)
        peer.close()
        transport.abort()
        protocol.outbox.write([b"late"])
        await asyncio.sleep(0)
        protocol.outbox.write([b"later"])

    asyncio.run(run())


@pytest.mark.parametrize("size", [1, 4 << 20])
def test_a_broken_connection_loses_one_piece_in_silence_and_sends_nothing(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        protocol, transport, peer = await connected(4 << 20)
        peer.close()
        protocol.outbox.write([bytes(size)])
        assert transport.is_closing()
        emptied = asyncio.ensure_future(protocol.outbox.emptied())
        await asyncio.sleep(0)
        protocol.outbox.resume()
        assert not emptied.done()
        protocol.outbox.drop()
        await emptied

    asyncio.run(run())
    assert caplog.messages == []  # asyncio writes a warning for each further piece
