"""Accepts connections: a few in each turn of the event loop, and none while descriptors are short.

Keeps true: while descriptors are short, or a limit is reached, new connections wait in the kernel's queue, without
            cost. Enough descriptors stay free for log files. Accepting resumes by itself when connections have closed.
            A shortage is logged at most once a minute.
            While a connection waits because too many came, or because too many are open (`Gate`), no further one is
            accepted.
            A TLS handshake does not delay other connections, takes a limited time, and when too many are in progress,
            the oldest is given up.
Leaves:     how many steps of handshakes one turn of the event loop does, to `handshakes`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

from felice.dataclass import dataclass
from felice.env.clock import RateLimit
from felice.env.descriptors import SHORTAGES, has_room_for_connections
from felice.env.handshakes import HandshakeSocket, HandshakeSteps

_log = logging.getLogger("felice.env")

_ACCEPTED_IN_ONE_TURN = 64
_LOOK_AGAIN_S = 0.1
_LOG_INTERVAL_S = 60.0
_DESCRIPTORS = "open descriptors"
_DESCRIPTORS_HINT = {"hint": "raise LimitNOFILE (ulimit -n), or lower max.connections"}

# asyncio has a buffer of 256 KiB for each connection with TLS. So this many take about 300 MiB.
_MAX_HANDSHAKES = 1000
_TLS_SHUTDOWN_S = 3.0

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Gate(Protocol):
    """Limits of the connections of one listening address."""

    def full(self, connecting: int) -> str | None:
        """The limit that is reached, as a log line names it. `connecting` connections are being set up."""

    def pace(self) -> float:
        """Called once for each accepted connection. Returns the seconds that it and all later ones must wait."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How a listening address secures its connections. `context` is called for each new connection."""

    context: Callable[[], ssl.SSLContext]
    handshake_timeout_s: float
    on_failure: Callable[[str, str], None]
    """Called with the address of a client and the reason why its handshake failed."""
    max_handshakes: int = _MAX_HANDSHAKES
    """Above it, the handshake that has lasted longest is given up."""


class ListeningServer(asyncio.AbstractServer):
    """Listens on bound sockets until it is closed."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        factory: ProtocolFactory,
        backlog: int,
        tls: ServerTls | None,
        gate: Gate | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.sockets = list(sockets)
        self._factory = factory
        self._backlog = backlog
        self._tls = tls
        self._gate = gate
        self._loop = loop
        self._steps = HandshakeSteps(loop)
        self._connecting: dict[asyncio.Task[None], None] = {}  # oldest first
        self._reports = RateLimit(loop.time, _LOG_INTERVAL_S)
        self._pause: asyncio.TimerHandle | None = None
        self._waiting: socket.socket | None = None  # accepted, and not set up while the pace is too fast

    def start(self) -> None:
        """Starts to listen and accept. Raises `OSError` if another process listens at the address."""
        for listening in self.sockets:
            listening.setblocking(False)
            listening.listen(self._backlog)
        self._watch()

    def _watch(self) -> None:
        self._pause = None
        for listening in self.sockets:
            self._loop.add_reader(listening.fileno(), self._accept_some, listening)

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_IN_ONE_TURN):
            shortage = self._shortage(listening)
            if shortage is not None:
                self._pause_accepting(shortage)
                return
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                self._pause_accepting(_DESCRIPTORS)
                return
            wait_s = 0.0 if self._gate is None else self._gate.pace()
            if wait_s > 0:
                self._begin_later(accepted, wait_s)
                return
            self._begin(accepted)

    def _begin_later(self, connection: socket.socket, wait_s: float) -> None:
        self._stop_watching()
        self._waiting = connection
        self._pause = self._loop.call_later(wait_s, self._end_wait)

    def _end_wait(self) -> None:
        connection, self._waiting = self._waiting, None
        if connection is not None:
            self._begin(connection)
        self._look_again()

    def _begin(self, accepted: socket.socket) -> None:
        if self._tls is None:
            accepted.setblocking(False)
            self._set_up(self._connect(accepted), accepted)
            return
        connection = HandshakeSocket(accepted, self._steps)
        self._set_up(self._secure(connection, self._tls), connection)
        if len(self._connecting) > self._tls.max_handshakes:
            next(iter(self._connecting)).cancel()

    def _set_up(self, connect: Coroutine[None, None, None], connection: socket.socket) -> None:
        task = self._loop.create_task(connect)
        self._connecting[task] = None
        task.add_done_callback(lambda _: self._on_set_up(task, connection))

    def _on_set_up(self, task: asyncio.Task[None], connection: socket.socket) -> None:
        self._connecting.pop(task, None)
        if task.cancelled():
            # A task that is cancelled before it began does not reach its own cleanup.
            connection.close()

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, connection)
        except OSError:
            # The client has closed the connection.
            connection.close()

    async def _secure(self, connection: HandshakeSocket, tls: ServerTls) -> None:
        peer = _peer_of(connection)
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=tls.context(),
                ssl_handshake_timeout=tls.handshake_timeout_s,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S,
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError) as error:
            connection.close()
            is_stopping = isinstance(error, asyncio.CancelledError) and not self.is_serving()
            if not is_stopping:
                tls.on_failure(peer, _handshake_failure(error))
        else:
            connection.end_handshake()

    def _shortage(self, listening: socket.socket) -> str | None:
        """The reason why no connection can be accepted now."""
        if not has_room_for_connections(listening.fileno()):
            return _DESCRIPTORS
        return None if self._gate is None else self._gate.full(len(self._connecting))

    def _pause_accepting(self, shortage: str) -> None:
        self._stop_watching()
        self._pause = self._loop.call_later(_LOOK_AGAIN_S, self._look_again)
        if self._reports.allows(shortage):
            extra = {"limit": shortage} | (_DESCRIPTORS_HINT if shortage == _DESCRIPTORS else {})
            _log.warning("new connections wait until others close", extra=extra)

    def _look_again(self) -> None:
        if self._shortage(self.sockets[0]) is None:
            self._watch()
        else:
            self._pause = self._loop.call_later(_LOOK_AGAIN_S, self._look_again)

    def _stop_watching(self) -> None:
        for listening in self.sockets:
            self._loop.remove_reader(listening.fileno())

    def close(self) -> None:
        """Stops accepting. Connections that were accepted are set up in the next turns of the loop."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None
        self._stop_watching()
        for listening in self.sockets:
            listening.close()
        self.sockets = []
        if self._tls is not None:
            for handshake in list(self._connecting):
                handshake.cancel()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the server uses."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether `close` was not called yet."""
        return bool(self.sockets)

    async def start_serving(self) -> None:
        """Does nothing: `start` was called before."""

    async def serve_forever(self) -> None:
        """Waits until the caller is cancelled."""
        await self._loop.create_future()

    async def wait_closed(self) -> None:
        """Waits until the connections that were accepted last are set up. They outlive `close`."""
        if self._connecting:
            await asyncio.wait(list(self._connecting))


async def bound_sockets(
    factory: ProtocolFactory, host: str | None, port: int, loop: asyncio.AbstractEventLoop
) -> list[socket.socket]:
    """Binds one socket for each address of the host. Asyncio finds and binds them, but does not listen."""
    server = await loop.create_server(factory, host, port, start_serving=False)
    sockets = [bound.dup() for bound in server.sockets]
    server.close()
    return sockets


def _peer_of(connection: socket.socket) -> str:
    try:
        name = connection.getpeername()
    except OSError:
        return "unknown"
    return text_of(name)


def text_of(address: object) -> str:
    """Host and port of a socket's address, as log lines have them."""
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)


def _handshake_failure(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "too many handshakes are in progress"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return str(error) or "the client closed the connection"
