"""The network between simulated machines: TCP as a program sees it, with everything that TCP does not promise.

Keeps true: the bytes of one connection arrive in order, complete and once, or the connection ends; between connections
            there is no order. A write takes time to arrive and arrives in pieces. A reader that pauses stops its
            writer once the window between them is full.
How:        this module has the machines, the blocked and slow directions between them, and the listening sockets.
            `connection` has the two ends of each connection, and the bytes in flight between them.
Leaves out: TLS, names with several addresses, Unix sockets.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from random import Random

from felice.env.listening import Gate, ProtocolFactory, ServerTls
from felice.testing.simulation.connection import SimTransport, Trace, Wire
from felice.testing.simulation.loop import SimLoop
from felice.testing.simulation.process import Process

_WINDOWS_BYTES = (4 * 1024, 64 * 1024, 256 * 1024)
# Linux gives up a connection attempt after about two minutes; the limits of brokers and clients are shorter.
_CONNECT_TIMEOUT_S = 60.0
_HANDSHAKE_RETRY_S = 1.0


class SimNetwork:
    """The connections of all machines. `of(process)` returns the `env.network` of one process."""

    def __init__(self, loop: SimLoop, random: Random, trace: Trace = lambda line: None) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.latency_s = 0.0005
        self._extra_latency_s: dict[tuple[str, str], float] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._up: dict[str, bool] = {}
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._wires: dict[int, Wire] = {}
        self._numbers = 0

    # Machines and directions

    def of(self, process: Process, host: str) -> ProcessNetwork:
        """The network as one process on this host sees it."""
        if not self.is_up(host):
            self._up[host] = True
            for wire in list(self._wires.values()):
                wire.on_power(host)
        return ProcessNetwork(self, process, host)

    def cut_power(self, host: str) -> None:
        """Fail the power of a machine: its peers hear nothing until it is back and they send to it."""
        self._up[host] = False
        for transport in self._ends():
            if transport.host == host:
                transport.vanish()

    def is_up(self, host: str) -> bool:
        """Whether the machine runs: it has had a process, and its power has not failed since."""
        return self._up.get(host, False)

    def block(self, source: str, target: str) -> None:
        """Block everything from `source` to `target`; the other direction is not affected."""
        self._blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        """Open one direction again; what was held arrives."""
        self._blocked.discard((source, target))
        for wire in list(self._wires.values()):
            wire.go_on()

    def part(self, one: str, other: str) -> None:
        """Block both directions between two machines."""
        self.block(one, other)
        self.block(other, one)

    def heal(self) -> None:
        """Unblock every direction and remove every delay."""
        self._extra_latency_s.clear()
        self._blocked.clear()
        for wire in list(self._wires.values()):
            wire.go_on()

    def slow(self, source: str, target: str, extra_s: float) -> None:
        """Add up to `extra_s` seconds to each piece in one direction; 0 removes the delay."""
        self._extra_latency_s[source, target] = extra_s

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether pieces from `source` to `target` are held now."""
        return (source, target) in self._blocked

    def delay_s(self, source: str, target: str) -> float:
        """The delay of the next piece, in seconds: mostly short, sometimes ten times that."""
        spread = self.random.random()
        jitter = 10.0 if spread > 0.98 else 0.5 + spread
        return self.latency_s * jitter + self._extra_latency_s.get((source, target), 0.0)

    # Connections

    def connections(self) -> list[SimTransport]:
        """The caller's end of every open connection, oldest first."""
        return [wire.source for wire in self._wires.values() if wire.source.is_caller and wire.source.is_open]

    def cut(self, transport: SimTransport) -> None:
        """Reset a connection: both ends get an error, and what was in flight is lost."""
        self.trace(f"cut {transport.number}")
        for end in (transport, transport.other):
            end.reset()

    def _ends(self) -> list[SimTransport]:
        return [wire.source for wire in list(self._wires.values())]

    def next_number(self) -> int:
        """A number for a new direction; numbers are unique in the simulation run."""
        self._numbers += 1
        return self._numbers

    def add(self, wire: Wire) -> None:
        """Registers a direction of a connection, for faults that act on all."""
        self._wires[wire.number] = wire

    def forget(self, wire: Wire) -> None:
        """Removes a direction in which nothing more can arrive."""
        self._wires.pop(wire.number, None)

    def check_free(self, address: tuple[str, int]) -> None:
        """Raises EADDRINUSE if a server listens at the address."""
        if address in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def serve(self, server: SimServer) -> None:
        """Accepts connections for the server from now on."""
        self.check_free(server.address)
        self._servers[server.address] = server

    def stop_serving(self, server: SimServer) -> None:
        """Refuses connections to the server's address from now on. Accepted ones stay open."""
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, caller: Process, source: str, factory: ProtocolFactory, target: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connects from the machine `source`; raises ECONNREFUSED, ECONNRESET, ETIMEDOUT or `gaierror` as TCP does."""
        if target not in self._up:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        await self._shake_hands(source, target)
        server = self._servers.get((target, port))
        if server is None:
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        client_end, server_end = self._pair(caller, source, server)
        self.trace(f"connect {source} -> {target}:{port} as {client_end.number}")
        server_end.begin(server.factory)
        await asyncio.sleep(self.delay_s(target, source))
        if not client_end.is_open:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        protocol = factory()
        client_end.attach(protocol)
        return client_end, protocol

    async def _shake_hands(self, source: str, target: str) -> None:
        """Exchange SYN and SYN-ACK; retried until the connection attempt times out."""
        deadline = self.loop.time() + _CONNECT_TIMEOUT_S
        while True:
            await asyncio.sleep(self.delay_s(source, target))
            if self.is_up(target) and not (
                self.is_blocked(source, target) or self.is_blocked(target, source)
            ):
                return
            if self.loop.time() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            await asyncio.sleep(_HANDSHAKE_RETRY_S)

    def _pair(self, caller: Process, source: str, server: SimServer) -> tuple[SimTransport, SimTransport]:
        port = 32_768 + self._numbers % 28_000
        near, far = (source, port), server.address
        window = self.random.choice(_WINDOWS_BYTES)
        client_end = SimTransport(self, caller, near, far, window, is_caller=True)
        server_end = SimTransport(self, server.process, far, near, window, is_caller=False)
        client_end.join(server_end)
        server_end.join(client_end)
        return client_end, server_end


class ProcessNetwork:
    """The `env.network` of one process. Its sockets close when the process ends."""

    def __init__(self, network: SimNetwork, process: Process, host: str) -> None:
        self._network = network
        self._process = process
        self.host = host
        process.on_end.append(self._close_sockets)

    async def check_free(self, host: str | None, port: int) -> None:
        """Raises EADDRINUSE if a process of this machine listens on the port."""
        self._network.check_free((self.host, port))

    async def listen(
        self,
        protocol_factory: ProtocolFactory,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        tls: ServerTls | None = None,
        gate: Gate | None = None,
    ) -> asyncio.AbstractServer:
        """Listens on this machine's name and ignores `host` and `gate`. The end of the process closes the server."""
        _refuse_tls(tls)
        server = SimServer(self._network, self._process, (self.host, port), protocol_factory)
        self._network.serve(server)
        self._process.on_end.append(server.close)
        return server

    async def connect(
        self,
        protocol_factory: ProtocolFactory,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connects to a machine by its name in the simulation."""
        _refuse_tls(ssl_context)
        return await self._network.connect(self._process, self.host, protocol_factory, host, port)

    def _close_sockets(self) -> None:
        for transport in self._network._ends():
            if transport.process is self._process:
                transport.close_by_kernel()


def _refuse_tls(tls: ssl.SSLContext | ServerTls | None) -> None:
    if tls is not None:
        raise NotImplementedError("the simulated network has no TLS")


class SimServer(asyncio.AbstractServer):
    """A listening socket of a process."""

    def __init__(
        self, network: SimNetwork, process: Process, address: tuple[str, int], factory: ProtocolFactory
    ) -> None:
        self._network = network
        self.process = process
        self.address = address
        self.factory = factory
        self._is_serving = True

    def close(self) -> None:
        """Stops accepting; the port is free at once."""
        self._is_serving = False
        self._network.stop_serving(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the simulation."""
        return self._network.loop

    def is_serving(self) -> bool:
        """Whether `close` was not called yet."""
        return self._is_serving

    async def start_serving(self) -> None:
        """Do nothing: the server serves from its creation."""

    async def serve_forever(self) -> None:
        """Waits until it is cancelled."""
        await self._network.loop.create_future()

    async def wait_closed(self) -> None:
        """Return at once: nothing is left after `close`."""
