"""Connections whose TLS handshake has not ended when the server is closed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl

import pytest

from felice.env import SystemNetwork
from felice.env.listening import ServerTls
from waiting import LIMIT_S


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
