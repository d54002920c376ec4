"""Sockets as an argument.

`Network` is asyncio's listen and connect, so that a simulated network can replace
it. `SliceSender` sends ranges of files from the kernel's page cache to a plain
socket (`sendfile`), which takes a quarter of the processor time of reading and
writing them. If the transport has no plain socket, it reads and writes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Protocol

from felice.env.disk import FileSlice
from felice.env.listening import Gate, ListeningServer, ProtocolFactory, ServerTls, bound_sockets

# One turn of the event loop sends at most this much, so that one reader does not starve others.
_SENDFILE_CHUNK_BYTES = 4 * 1024 * 1024
# This much of a slice waits in the transport while the kernel's buffer is full.
_WAITING_BYTES = 4 * 1024


class Network(Protocol):
    """Listening and connecting with TCP, optionally with TLS."""

    async def check_free(self, host: str | None, port: int) -> None:
        """Raises OSError if `listen` could not bind this address now. Clients cannot connect meanwhile."""

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
        """Accepts connections at the address until the result is closed. Raises OSError."""

    async def connect(
        self,
        protocol_factory: ProtocolFactory,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Opens a connection. Raises OSError."""


class SystemNetwork:
    """The machine's TCP as a `Network`, on the running event loop.

    `listening` are sockets that the process opened before it imported this module. `listen` takes the one that has its
    address, so that clients which connected meanwhile are served.
    """

    def __init__(self, listening: Iterable[socket.socket] = ()) -> None:
        self._listening = {opened.getsockname()[:2]: opened for opened in listening}

    async def check_free(self, host: str | None, port: int) -> None:
        """Raises OSError if the port cannot be bound. Clients that connect meanwhile are refused."""
        if (host, port) in self._listening:
            return
        loop = asyncio.get_running_loop()
        # Binds without listening, so that clients are refused as before.
        server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        server.close()

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
        """Binds and listens; each accepted connection gets a protocol from `protocol_factory`. Raises OSError."""
        loop = asyncio.get_running_loop()
        opened = self._listening.pop((host, port), None)
        sockets = await bound_sockets(protocol_factory, host, port, loop) if opened is None else [opened]
        server = ListeningServer(sockets, protocol_factory, backlog, tls, gate, loop)
        try:
            server.start()
        except OSError:
            server.close()
            raise
        return server

    async def connect(
        self,
        protocol_factory: ProtocolFactory,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Opens a connection, over TLS if `ssl_context` is given. Raises OSError."""
        loop = asyncio.get_running_loop()
        return await loop.create_connection(protocol_factory, host, port, ssl=ssl_context)


class SliceSender:
    """Sends file slices over one transport, in order, one at a time.

    When `send` is called, the transport's write buffer must be empty, and no caller may use
    `transport.write` until `done` is called. The session ensures both; it owns the order of
    a connection's bytes (S1). Meanwhile it calls `go_on` when the transport reports an empty
    buffer (`resume_writing`).

    A connection keeps one descriptor: while the kernel's buffer is full, the next few bytes
    of the slice wait in the transport, which watches the socket anyway.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._socket = _plain_socket(transport)
        self._piece: FileSlice | None = None
        self._sent = 0
        self._done: Callable[[OSError | None], object] = _nothing

    @property
    def uses_sendfile(self) -> bool:
        """Whether the transport has a plain socket."""
        return self._socket is not None

    def send(self, piece: FileSlice, done: Callable[[OSError | None], object]) -> None:
        """Sends `piece`, then calls `done(None)`, or `done(error)` if the peer or the file failed."""
        if self._socket is None:
            self._transport.write(piece.read())
            done(None)
            return
        self._piece, self._sent, self._done = piece, 0, done
        self.go_on()

    def go_on(self) -> None:
        """Sends as much of the current slice as the kernel takes now, if there is one."""
        piece = self._piece
        if piece is None or self._transport.get_write_buffer_size():
            return
        try:
            is_whole = self._send_some(piece)
        except OSError as error:
            self._finish(error)
            return
        if is_whole:
            self._finish(None)

    def _send_some(self, piece: FileSlice) -> bool:
        """Sends a part; returns whether the slice is complete. If not, `go_on` is called again later.

        `go_on` runs when the transport's buffer is empty, or after other turns of the loop.
        """
        assert self._socket is not None
        descriptor = self._socket.fileno()
        budget = _SENDFILE_CHUNK_BYTES
        while (left := piece.size_bytes - self._sent) and budget > 0:
            position = piece.position + self._sent
            try:
                count = os.sendfile(descriptor, piece.file.fileno(), position, min(left, budget))
            except (BlockingIOError, InterruptedError):
                data = piece.file.pread(min(left, _WAITING_BYTES), position)
                self._transport.write(data)
                count = len(data)
                budget = budget if not self._transport.get_write_buffer_size() else 0
            if count == 0:
                raise OSError(f"{piece.file.path} ended before position {piece.position + piece.size_bytes}")
            self._sent += count
            budget -= count
        if not left:
            return True
        if not self._transport.get_write_buffer_size():
            self._loop.call_soon(self.go_on)
        return False

    def _finish(self, error: OSError | None) -> None:
        done, self._piece, self._done = self._done, None, _nothing
        done(error)

    def close(self) -> None:
        """Drops the current slice."""
        self._piece, self._done, self._socket = None, _nothing, None


def _nothing(error: OSError | None) -> None:
    """Receives the result of a slice if no caller waits for it."""


def _plain_socket(transport: asyncio.Transport) -> socket.socket | None:
    """The transport's socket; None if bytes must be encrypted first or there is no socket."""
    if transport.get_extra_info("sslcontext") is not None:
        return None
    found: socket.socket | None = transport.get_extra_info("socket")
    return found if hasattr(found, "fileno") else None


def local_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one connection within this machine. A child process may inherit one, by its number."""
    ours, theirs = socket.socketpair()
    return ours, theirs


async def open_local(end: socket.socket | int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Streams over one end of a `local_pair`, passed as socket or by its number."""
    if isinstance(end, int):
        end = socket.socket(fileno=end)
    return await asyncio.open_unix_connection(sock=end)


def set_no_delay(transport: asyncio.BaseTransport) -> None:
    """Sends small responses at once; otherwise a waiting reader loses 40 ms (measured)."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def set_send_buffer(transport: asyncio.BaseTransport, size_bytes: int) -> None:
    """Sets the size of the socket's send buffer; -1 leaves it to the operating system, which lets it grow to megabytes.

    A reader then gets them in bursts, and waits between: with 100 KB a consumer of 1 KB records took a fifth less
    processor time, and was much faster on a busy machine.
    """
    sock = transport.get_extra_info("socket")
    if size_bytes >= 0 and sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)


def port_of(server: asyncio.AbstractServer) -> int:
    """The port at which a server listens; 0 if it has no socket."""
    sockets = getattr(server, "sockets", ())
    return int(sockets[0].getsockname()[1]) if sockets else 0


def why_not_listening(error: OSError) -> str:
    """The reason why an address cannot be used, without the address that asyncio puts before it: callers name that."""
    return (error.strerror or str(error)).rpartition(": ")[2].lower()


def hostname() -> str:
    """The machine's own name, which clients get as the broker's address by default."""
    return socket.gethostname()
