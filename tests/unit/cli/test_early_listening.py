"""Clients that connect while the broker's modules are imported."""

from __future__ import annotations

import asyncio
import socket

import pytest

from felice.cli.early_listening import listening_early
from felice.env import SystemNetwork
from felice.env.ports import free_ports

HOST = "127.0.0.1"


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"ready")
        transport.close()


def test_a_client_that_connected_early_is_served() -> None:
    async def serve(listening: list[socket.socket], client: socket.socket) -> bytes:
        network, loop = SystemNetwork(listening), asyncio.get_running_loop()
        await network.check_free(HOST, port)
        server = await network.listen(Greeter, HOST, port)
        async with asyncio.timeout(60):
            received = await loop.sock_recv(client, 100)
        server.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port))
        return received

    [port] = free_ports(1)
    with listening_early(HOST, port) as listening, socket.create_connection((HOST, port)) as client:
        client.setblocking(False)
        assert asyncio.run(serve(listening, client)) == b"ready"


def test_sockets_of_other_addresses_are_left_alone() -> None:
    """The configuration may name another address than the command line."""

    async def serve(listening: list[socket.socket]) -> None:
        network = SystemNetwork(listening)
        await network.check_free(HOST, other)
        server = await network.listen(Greeter, HOST, other)
        socket.create_connection((HOST, other)).close()
        server.close()

    early, other = free_ports(2)
    with listening_early(HOST, early) as listening:
        asyncio.run(serve(listening))


@pytest.mark.parametrize("host", ["localhost", "::1", "", "no such host", "300.1.1.1", "192.0.2.1"])
def test_other_addresses_are_left_to_the_broker(host: str) -> None:
    with listening_early(host, free_ports(1)[0]) as listening:
        assert listening == []


def test_a_port_in_use_is_left_to_the_broker_which_reports_it() -> None:
    with socket.create_server((HOST, 0)) as other, listening_early(HOST, other.getsockname()[1]) as listening:
        assert listening == []


def test_port_0_is_left_to_the_broker() -> None:
    with listening_early(HOST, 0) as listening:
        assert listening == []
