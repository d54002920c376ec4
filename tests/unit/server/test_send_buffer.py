"""The sockets of accepted connections have the send buffer of `socket.send.buffer.bytes`."""

import asyncio
import socket
from pathlib import Path

import pytest

from felice.env import Environment
from felice.server.broker import Broker
from felice.server.net.session import Session
from felice.server.process.embedded import embedded_config
from unit.server.test_session import HeldTransport


class TransportWithSocket(HeldTransport):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._socket = sock

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._socket if name == "socket" else super().get_extra_info(name, default)


def buffer_size(directory: Path, options: dict[str, str], sock: socket.socket) -> int:
    async def connect() -> None:
        broker = Broker(embedded_config(directory, 0, options), Environment.system())
        await broker.start()
        try:
            session = Session(broker.listeners[0])
            session.connection_made(TransportWithSocket(sock))
            session.connection_lost(None)
        finally:
            await broker.kill()

    asyncio.run(connect())
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


@pytest.mark.parametrize(
    ("options", "expected"), [({}, 102_400), ({"socket.send.buffer.bytes": "50000"}, 50_000)]
)
def test_a_connection_gets_the_send_buffer(tmp_path: Path, options: dict[str, str], expected: int) -> None:
    with socket.socket() as sock:
        # Linux doubles the number for its own use.
        assert buffer_size(tmp_path, options, sock) in (expected, 2 * expected)


def test_minus_one_leaves_the_buffer_to_the_system(tmp_path: Path) -> None:
    with socket.socket() as sock:
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert buffer_size(tmp_path, {"socket.send.buffer.bytes": "-1"}, sock) == before
