"""Sockets as an argument.

`Network` is asyncio's listen and connect, so that a simulated network can stand
in. `SliceSender` sends ranges of files from the kernel's page cache to a plain
socket (`sendfile`), which costs a quarter of the processor time of reading and
writing them; where the transport has no plain socket, it reads and writes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from felice.env.disk import FileSlice

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

# One turn of the event loop sends at most this much, so that one reader does not starve the others.
_SENDFILE_CHUNK_BYTES = 4 * 1024 * 1024


class Network(Protocol):
    async def check_free(self, host: str | None, port: int) -> None:
        """Raises OSError where `listen` could not have this address now; nobody can connect meanwhile."""

    async def listen(
        self,
        protocol_factory: ProtocolFactory,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        ssl_context: ssl.SSLContext | None = None,
    ) -> asyncio.AbstractServer: ...

    async def connect(
        self,
        protocol_factory: ProtocolFactory,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]: ...


class SystemNetwork:
    """TCP of the machine, on the running event loop."""

    async def check_free(self, host: str | None, port: int) -> None:
        loop = asyncio.get_running_loop()
        # Bound, and not listening: a connection is refused, as it was before.
        server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        server.close()

    async def listen(
        self,
        protocol_factory: ProtocolFactory,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        ssl_context: ssl.SSLContext | None = None,
    ) -> asyncio.AbstractServer:
        loop = asyncio.get_running_loop()
        return await loop.create_server(protocol_factory, host, port, backlog=backlog, ssl=ssl_context)

    async def connect(
        self,
        protocol_factory: ProtocolFactory,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        return await loop.create_connection(protocol_factory, host, port, ssl=ssl_context)


class SliceSender:
    """Sends file slices over one transport, in order, one at a time.

    The transport's own write buffer must be empty when `send` is called and no
    `transport.write` may happen until `done` is called: the session, which owns
    the order of a connection's bytes (S1), waits for both.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._socket = _dup_plain_socket(transport)
        self._waiting = False

    @property
    def uses_sendfile(self) -> bool:
        return self._socket is not None

    def send(self, piece: FileSlice, done: Callable[[OSError | None], Any]) -> None:
        """Sends `piece`; calls `done(None)`, or `done(error)` when the peer or the file failed."""
        if self._socket is None:
            self._transport.write(piece.read())
            done(None)
            return
        self._send_from(piece, 0, done)

    def _send_from(self, piece: FileSlice, sent: int, done: Callable[[OSError | None], Any]) -> None:
        if self._socket is None:
            done(OSError("the connection was closed"))
            return
        fd = self._socket.fileno()
        budget = _SENDFILE_CHUNK_BYTES
        while sent < piece.size_bytes and budget > 0:
            try:
                wanted = min(piece.size_bytes - sent, budget)
                count = os.sendfile(fd, piece.file.fileno(), piece.position + sent, wanted)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._stop_waiting()
                done(error)
                return
            if count == 0:
                self._stop_waiting()
                done(OSError(f"{piece.file.path} ended before position {piece.position + piece.size_bytes}"))
                return
            sent += count
            budget -= count
        if sent == piece.size_bytes:
            self._stop_waiting()
            done(None)
        else:
            self._waiting = True
            self._loop.add_writer(fd, self._send_from, piece, sent, done)

    def _stop_waiting(self) -> None:
        if self._waiting and self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
            self._waiting = False

    def close(self) -> None:
        """Gives the duplicate socket back. A slice under way is not completed."""
        self._stop_waiting()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _dup_plain_socket(transport: asyncio.Transport) -> socket.socket | None:
    """A second descriptor of the transport's socket, or None where bytes must be encrypted first.

    A duplicate, because asyncio refuses `add_writer` on a descriptor that a transport owns.
    """
    if transport.get_extra_info("sslcontext") is not None:
        return None
    original = transport.get_extra_info("socket")
    if original is None or not hasattr(original, "fileno"):
        return None
    duplicate = socket.socket(fileno=os.dup(original.fileno()))
    duplicate.setblocking(False)
    return duplicate


def local_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one connection within this machine; one is to be inherited by a child, by its number."""
    ours, theirs = socket.socketpair()
    return ours, theirs


async def open_local(end: socket.socket | int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Streams over one end of a `local_pair`, given itself or by its number."""
    if isinstance(end, int):
        end = socket.socket(fileno=end)
    return await asyncio.open_unix_connection(sock=end)


def set_no_delay(transport: asyncio.BaseTransport) -> None:
    """Small replies leave at once; without this a waiting reader costs 40 ms (measured)."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def hostname() -> str:
    """The name that this machine gives itself: what clients are told where nobody chose an address."""
    return socket.gethostname()
