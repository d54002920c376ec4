"""The network between simulated machines: TCP as a program sees it, with everything that TCP does not promise.

Keeps true: the bytes of one connection arrive in order, complete and once, or the connection ends; between connections
            there is no order. A write takes time to arrive and arrives in pieces. A reader that pauses stops its
            writer once the window between them is full.
How:        each direction of a connection is a `_Wire`: pieces with a time of arrival. A blocked direction holds its
            pieces, as TCP does by retransmission, until it is unblocked or one side times out.
Leaves:     TLS, names with several addresses, Unix sockets.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import socket
import ssl
import zlib
from collections import deque
from collections.abc import Callable
from random import Random

from felice.env.listening import ProtocolFactory
from felice.testing.simulation.loop import SimLoop
from felice.testing.simulation.process import Process

_WINDOWS_BYTES = (4 * 1024, 64 * 1024, 256 * 1024)
# Linux gives up a connection attempt after about two minutes; the limits of brokers and clients are shorter.
_CONNECT_TIMEOUT_S = 60.0
_HANDSHAKE_RETRY_S = 1.0
# The work of a machine's kernel continues while its processes are dead or stopped.
_KERNEL = contextvars.Context()

Trace = Callable[[str], None]


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
        self._wires: dict[int, _Wire] = {}
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
        self._numbers += 1
        return self._numbers

    def add(self, wire: _Wire) -> None:
        self._wires[wire.number] = wire

    def forget(self, wire: _Wire) -> None:
        self._wires.pop(wire.number, None)

    def check_free(self, address: tuple[str, int]) -> None:
        if address in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def serve(self, server: SimServer) -> None:
        self.check_free(server.address)
        self._servers[server.address] = server

    def stop_serving(self, server: SimServer) -> None:
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, caller: Process, source: str, factory: ProtocolFactory, target: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
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
        self._network.check_free((self.host, port))

    async def listen(
        self,
        protocol_factory: ProtocolFactory,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        ssl_context: ssl.SSLContext | None = None,
    ) -> asyncio.AbstractServer:
        _refuse_tls(ssl_context)
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
        _refuse_tls(ssl_context)
        return await self._network.connect(self._process, self.host, protocol_factory, host, port)

    def _close_sockets(self) -> None:
        for transport in self._network._ends():
            if transport.process is self._process:
                transport.close_by_kernel()


def _refuse_tls(ssl_context: ssl.SSLContext | None) -> None:
    if ssl_context is not None:
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
        self._is_serving = False
        self._network.stop_serving(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self._is_serving

    async def start_serving(self) -> None:
        """Do nothing: the server serves from its creation."""

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()

    async def wait_closed(self) -> None:
        """Return at once: nothing is left after `close`."""


class _Fin:
    """The end of stream, in order after the bytes."""


_FIN = _Fin()


class _Wire:
    """What is in flight from one end of a connection to the other, in order."""

    def __init__(self, network: SimNetwork, source: SimTransport, target: SimTransport) -> None:
        self.number = network.next_number()
        self.source = source
        self._target = target
        self._network = network
        self._pieces: deque[tuple[float, bytes | _Fin]] = deque()
        self._last_arrival_s = 0.0
        self._is_due = False
        self._has_missed = False

    def put(self, piece: bytes | _Fin) -> None:
        network = self._network
        arrival_s = network.loop.time() + network.delay_s(self.source.host, self._target.host)
        self._last_arrival_s = max(self._last_arrival_s, arrival_s)
        self._pieces.append((self._last_arrival_s, piece))
        self.go_on()

    def go_on(self) -> None:
        if not self._is_due and self._pieces:
            self._is_due = True
            self._network.loop.call_at(self._pieces[0][0], self._arrive, context=_KERNEL)

    def clear(self) -> None:
        self._pieces.clear()
        self._network.forget(self)

    def _arrive(self) -> None:
        self._is_due = False
        if self._network.is_blocked(self.source.host, self._target.host):
            return  # `unblock` continues
        now = self._network.loop.time()
        while self._pieces and self._pieces[0][0] <= now:
            _, piece = self._pieces.popleft()
            if self._network.is_up(self._target.host):
                self._target.receive(piece)
            else:
                self._has_missed = True
        if not self._pieces and not self.source.is_open:
            self._network.forget(self)
        self.go_on()

    def on_power(self, host: str) -> None:
        """Retransmit what was sent while the machine was down; no process there has the connection, so it is reset."""
        if self._has_missed and self._target.host == host:
            self._has_missed = False
            self._target.answer_nobody()


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: SimNetwork,
        process: Process,
        address: tuple[str, int],
        peer: tuple[str, int],
        window_bytes: int,
        *,
        is_caller: bool,
    ) -> None:
        super().__init__({"peername": peer, "sockname": address})
        self.host = address[0]
        self.process = process
        self.is_caller = is_caller
        self.is_open = True
        self.other: SimTransport
        self.number = 0
        self._network = network
        self._wire: _Wire
        self._window_bytes = window_bytes
        self._unread_bytes = 0
        self._buffer = bytearray()
        self._received: deque[bytes | _Fin] = deque()
        self._protocol: asyncio.BaseProtocol | None = None
        self._is_reading = True
        self._is_closing = False
        self._is_paused_writing = False
        self._high_bytes = 64 * 1024
        self._low_bytes = 16 * 1024

    # Beginning

    def join(self, other: SimTransport) -> None:
        self.other = other
        self._wire = _Wire(self._network, self, other)
        self._network.add(self._wire)
        self.number = self._wire.number

    def begin(self, factory: ProtocolFactory) -> None:
        """Create the protocol of an accepted connection, in the context of its process."""
        self._network.loop.call_soon(
            lambda: self.attach(factory()) if self.is_open else None, context=self.process.context.copy()
        )

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._feed()

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_open or self._is_closing or not data:
            return
        self._buffer += data
        self._send()
        if len(self._buffer) > self._high_bytes and not self._is_paused_writing:
            self._is_paused_writing = True
            self._protocol.pause_writing()  # type: ignore[union-attr]

    def _send(self) -> None:
        room = self._window_bytes - self._unread_bytes
        # Not in small pieces (RFC 1122): each would be cut again, until single bytes travel.
        if not self._buffer or room < min(len(self._buffer), self._window_bytes // 4):
            return
        data = bytes(self._buffer[:room])
        del self._buffer[:room]
        self._unread_bytes += len(data)
        for piece in self._pieces(data):
            self._wire.put(piece)

    def _pieces(self, data: bytes) -> list[bytes]:
        """Cut data at random places, rarely: a frame may arrive in parts, and its last part never."""
        random = self._network.random
        if len(data) < 2 or random.random() < 0.8:
            return [data]
        at = random.randrange(1, len(data))
        return [data[:at], data[at:]]

    def _on_read(self, size_bytes: int) -> None:
        """Called when the other end has read bytes from the window."""
        if not self.is_open:
            return
        self._unread_bytes -= size_bytes
        self._send()
        if self._is_paused_writing and len(self._buffer) <= self._low_bytes:
            self._is_paused_writing = False
            self._protocol.resume_writing()  # type: ignore[union-attr]
        if self._is_closing and not self._buffer:
            self._finish(None)

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        self._high_bytes = high
        self._low_bytes = high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return False

    # Reading

    def receive(self, piece: bytes | _Fin) -> None:
        """Receive a piece at this machine, which is up."""
        if self.is_open:
            self._received.append(piece)
            if len(self._received) == 1:
                self._network.loop.call_soon(self._feed, context=self.process.context.copy())
        elif self.other.is_open:
            self.answer_nobody()

    def answer_nobody(self) -> None:
        """Reset the connection: no process has it any more, and the kernel says so."""
        delay_s = self._network.delay_s(self.host, self.other.host)
        self._network.loop.call_later(delay_s, self.other.reset, context=_KERNEL)

    def _feed(self) -> None:
        while self._received and self._is_reading and self.is_open and self._protocol is not None:
            if self._is_closing:
                self._received.clear()
                return
            piece = self._received.popleft()
            if isinstance(piece, _Fin):
                if not self._protocol.eof_received():  # type: ignore[attr-defined]
                    self.close()
                return
            self._network.trace(f"{self.number} {len(piece)} {zlib.crc32(piece):08x}")
            self._acknowledge(len(piece))
            self._hand_over(piece)

    def _acknowledge(self, size_bytes: int) -> None:
        other = self.other
        self._network.loop.call_soon(other._on_read, size_bytes, context=other.process.context.copy())

    def _hand_over(self, piece: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(piece)
            while view and self.is_open:
                buffer = memoryview(protocol.get_buffer(len(view)))
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                protocol.buffer_updated(size)
                view = view[size:]
        else:
            protocol.data_received(piece)  # type: ignore[union-attr]

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._network.loop.call_soon(self._feed)

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    # Ending

    def is_closing(self) -> bool:
        return self._is_closing or not self.is_open

    def close(self) -> None:
        """Close after everything written has been sent."""
        if self._is_closing or not self.is_open:
            return
        self._is_closing = True
        if not self._buffer:
            self._finish(None)

    def abort(self) -> None:
        if self.is_open:
            self._buffer.clear()
            self._is_closing = True
            self._finish(None)

    def reset(self) -> None:
        """End the connection after a reset by the other end or by the network."""
        if self.is_open:
            self._wire.clear()
            self._finish(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def close_by_kernel(self) -> None:
        """Close after the end of the process: what it has written is still sent, then the end of stream."""
        if self.is_open:
            self._buffer.clear()
            self._let_go()
            self._wire.put(_FIN)

    def vanish(self) -> None:
        """End after a power failure: nothing more is sent, and the other end hears nothing."""
        self._let_go()
        self._network.forget(self._wire)

    def _finish(self, error: Exception | None) -> None:
        self._let_go()
        if error is None:
            self._wire.put(_FIN)
        protocol = self._protocol
        if protocol is not None:
            self._network.loop.call_soon(protocol.connection_lost, error, context=self.process.context.copy())

    def _let_go(self) -> None:
        self.is_open = False
        self._is_closing = True
        self._received.clear()

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
