"""Connections whose TLS handshake is in progress."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from felice.env import SystemNetwork
from felice.env.handshakes import HandshakeSocket, HandshakeSteps
from felice.env.key_stores import Identity
from felice.env.listening import ListeningServer, ServerTls
from felice.env.tls import TlsVersions, server_context
from peers.authority import Authority
from waiting import LIMIT_S, let_run, until

CLIENTS = 30
MOST_IN_ONE_TURN = 4


@pytest.mark.parametrize("turns", range(5))
def test_a_handshake_that_begins_when_the_server_closes_leaves_no_socket_open(turns: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls = ServerTls(lambda: context, LIMIT_S, lambda peer, reason: None)

    async def close_soon() -> socket.socket:
        server = await SystemNetwork().listen(asyncio.Protocol, "127.0.0.1", 0, tls=tls)
        [listening] = getattr(server, "sockets", ())
        client = socket.create_connection(listening.getsockname())
        for _ in range(turns):
            await asyncio.sleep(0)
        server.close()
        await server.wait_closed()
        return client

    with asyncio.run(close_soon()) as client:
        client.settimeout(LIMIT_S)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    gc.collect()  # an accepted socket that nothing closed makes its collection a warning, and so an error


def test_a_handshake_that_the_end_of_the_server_interrupts_is_no_failure() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    failures: list[str] = []
    tls = ServerTls(lambda: context, LIMIT_S, lambda peer, reason: failures.append(reason))

    async def close_in_handshake() -> None:
        server = await SystemNetwork().listen(asyncio.Protocol, "127.0.0.1", 0, tls=tls)
        assert isinstance(server, ListeningServer)
        with socket.create_connection(server.sockets[0].getsockname()):
            await until(lambda: server._connecting)
            await let_run()
            server.close()
            await server.wait_closed()

    asyncio.run(close_in_handshake())
    assert failures == []


def server_side() -> ssl.SSLContext:
    issued = Authority().issue()
    identity = Identity(issued.certificate_pem.encode(), issued.key_pem().encode())
    return server_context(identity, None, "none", TlsVersions())


class Client:
    """A client whose handshake goes on only when a test says so."""

    def __init__(self, address: tuple[str, int]) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self.socket = socket.create_connection(address)
        self.socket.settimeout(LIMIT_S)

    def begin(self) -> None:
        """Sends the first message of the handshake."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self.socket.sendall(self._outgoing.read())

    def echoed(self, data: bytes) -> bytes:
        """Completes the handshake, sends `data` in the same segment, and returns what the server answers."""
        self._until_received(self._tls.do_handshake)
        self._tls.write(data)
        self.socket.sendall(self._outgoing.read())
        answer: bytes = self._until_received(lambda: self._tls.read(len(data)))
        return answer

    def _until_received(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                self._incoming.write(self.socket.recv(65536))


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class TurnsOfTheLoop:
    """Counts handshakes in each turn of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn = 0
        self.begun: Counter[int] = Counter()
        self._next()

    def _next(self) -> None:
        self._turn += 1
        self._loop.call_soon(self._next)

    def count(self, *_: object) -> None:
        self.begun[self._turn] += 1


def test_handshakes_that_begin_at_once_are_spread_over_turns_of_the_loop() -> None:
    context = server_side()

    async def serve() -> Counter[int]:
        turns = TurnsOfTheLoop(asyncio.get_running_loop())
        context.sni_callback = turns.count  # OpenSSL calls it for the first message of each client
        tls = ServerTls(lambda: context, LIMIT_S, lambda peer, reason: None)
        server = await SystemNetwork().listen(Echo, "127.0.0.1", 0, tls=tls)
        [listening] = getattr(server, "sockets", ())
        clients = [Client(listening.getsockname()) for _ in range(CLIENTS)]
        for client in clients:
            client.begin()
        answers = await asyncio.to_thread(lambda: [client.echoed(b"hello") for client in clients])
        assert answers == [b"hello"] * CLIENTS
        for client in clients:
            client.socket.close()
        server.close()
        await server.wait_closed()
        return turns.begun

    begun = asyncio.run(serve())
    assert begun.total() == CLIENTS
    assert max(begun.values()) == MOST_IN_ONE_TURN


def test_a_handshake_that_stops_halfway_is_closed_when_its_time_is_over() -> None:
    context, failures = server_side(), asyncio.Queue[str]()
    tls = ServerTls(lambda: context, 0.2, lambda peer, reason: failures.put_nowait(reason))

    async def serve() -> str:
        server = await SystemNetwork().listen(Echo, "127.0.0.1", 0, tls=tls)
        [listening] = getattr(server, "sockets", ())
        client = Client(listening.getsockname())
        client.socket.sendall(b"\x16\x03\x01")  # the beginning of a handshake record
        async with asyncio.timeout(LIMIT_S):
            reason = await failures.get()
        assert await asyncio.to_thread(client.socket.recv, 1) == b""
        client.socket.close()
        server.close()
        await server.wait_closed()
        return reason

    assert "longer than 0.2 seconds" in asyncio.run(serve())


def test_only_a_connection_in_its_handshake_waits_for_a_step() -> None:
    async def receive() -> int:
        steps = HandshakeSteps(asyncio.get_running_loop())
        while steps.take():
            pass
        ours, client = socket.socketpair()
        with client, HandshakeSocket(ours, steps) as connection:
            client.sendall(b"bytes")
            with pytest.raises(BlockingIOError):
                connection.recv_into(bytearray(5))
            connection.end_handshake()
            return connection.recv_into(bytearray(5))

    assert asyncio.run(receive()) == 5
