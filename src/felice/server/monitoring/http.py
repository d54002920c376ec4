"""A small HTTP server for monitoring: GET and HEAD, one request for each connection.

Keeps true: memory and time are bounded for every input, and for clients that never read: at most `MAX_CONNECTIONS`
            (fewer with TLS, which has buffers of 256 KiB for each), `MAX_HEAD_BYTES` of a request within
            `HEAD_TIMEOUT_S`, and `TIMEOUT_S` for a connection from its beginning to its end. A page is sent in pieces:
            the next piece when the client has taken most of the previous one.
            Idle clients cannot keep others out: above `MAX_CONNECTIONS`, and above `MAX_UNREAD` with a response that
            its client does not read, the one that has waited longest for its client is closed.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from http import HTTPStatus
from typing import cast

from felice.dataclass import dataclass
from felice.env import Network
from felice.env.listening import ServerTls, text_of
from felice.env.network import port_of

_log = logging.getLogger("felice.server")

# A connection whose request or response is not complete holds at most 8 or 16 KiB. As many as come in a burst must fit:
# a client's request arrives a moment after its connection.
MAX_CONNECTIONS = 512
# Those that hold a piece of a page.
MAX_UNREAD = 32
MAX_HEAD_BYTES = 8 * 1024
HEAD_TIMEOUT_S = 2.0
TIMEOUT_S = 20.0
_END_OF_HEAD = b"\r\n\r\n"
_UNSENT_BYTES = 16 * 1024
_METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its body in pieces, which several connections may share."""

    status: HTTPStatus
    body: Sequence[bytes] = ()
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[], Awaitable[Answer]]


def text_answer(status: HTTPStatus, text: str = "") -> Answer:
    """A line of text; by default the words of the status."""
    return Answer(status, [f"{text or status.phrase}\n".encode()])


@dataclass(frozen=True, slots=True)
class Logins:
    """Who may read `paths` (HTTP Basic, RFC 7617). Without `pairs` (`user:password`) everyone may."""

    pairs: frozenset[str] = frozenset()
    paths: Collection[str] = ()
    on_refused: Callable[[str, str], None] = lambda peer, path: None
    """Called with the address of a client whose user or password is wrong, and the requested path."""

    def refuses(self, path: str, authorization: str) -> bool:
        """Whether a request with this Authorization header may not read the path.

        The time of the check reveals nothing about the passwords: it compares digests, which have equal lengths.
        """
        if not self.pairs or path not in self.paths:
            return False
        scheme, _, encoded = authorization.partition(" ")
        try:
            given = binascii.a2b_base64(encoded, strict_mode=True) if scheme.lower() == "basic" else b""
        except ValueError:  # also binascii.Error
            given = b""
        # A start needs no module for this.
        from hashlib import sha256
        from hmac import compare_digest

        digest = sha256(given).digest()
        found = [compare_digest(digest, sha256(pair.encode()).digest()) for pair in self.pairs]
        return not any(found)


EVERYONE = Logins()


class HttpServer:
    """Serves `routes` by path. Call `start` and `stop`."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        logins: Logins = EVERYONE,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.routes = routes
        self._max_connections = max_connections
        self._logins = logins
        # In the order in which they were accepted.
        self.connections: dict[HttpConnection, None] = {}
        self._server: asyncio.AbstractServer | None = None

    async def start(self, network: Network, host: str | None, port: int, tls: ServerTls | None = None) -> int:
        """Listens, and returns the port. Raises OSError."""
        # A client that finds the queue full tries again only after a second.
        self._server = await network.listen(
            lambda: HttpConnection(self), host, port, backlog=MAX_CONNECTIONS, tls=tls
        )
        return port_of(self._server) or port

    async def stop(self) -> None:
        """Stops listening and cuts every connection."""
        if self._server is not None:
            self._server.close()
            # A connection that was accepted just now is set up first, or nothing would ever close it.
            await self._server.wait_closed()
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)  # the connections end in the next turn

    def make_room(self) -> None:
        """Closes a connection if there are too many for another one."""
        if len(self.connections) >= self._max_connections:
            _close_one(list(self.connections))

    def limit_unread(self) -> None:
        """Closes a connection if too many hold a piece of a page that their clients do not read."""
        unread = [found for found in self.connections if found.is_unread]
        if len(unread) > MAX_UNREAD:
            _close_one(unread)

    async def answer(self, method: str, path: str, authorization: str, peer: str) -> Answer:
        """The answer to a request; `authorization` is its header of this name, empty if it has none."""
        if method not in _METHODS:
            allowed = {"Allow": ", ".join(_METHODS)}
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, [b"Method Not Allowed\n"], headers=allowed)
        route = self.routes.get(path)
        if route is None:
            return text_answer(HTTPStatus.NOT_FOUND, f"there are {', '.join(self.routes)}")
        if self._logins.refuses(path, authorization):
            if authorization:
                self._logins.on_refused(peer, path)
            asked = {"WWW-Authenticate": 'Basic realm="metrics", charset="UTF-8"'}
            return Answer(HTTPStatus.UNAUTHORIZED, [b"Unauthorized\n"], headers=asked)
        return await route()


def _close_one(connections: Sequence[HttpConnection]) -> None:
    """Closes the connection that has waited longest for its client, or the oldest if all wait for this server."""
    waiting = [found for found in connections if found.waits_since_s is not None]
    min(waiting or connections, key=lambda found: found.waits_since_s or 0.0).abort()


class HttpConnection(asyncio.Protocol):
    """One connection: reads a request, sends its answer, and closes."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = bytearray()
        self._peer = ""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.waits_since_s: float | None = None
        """Since when this connection waits for its client, by the clock of the event loop."""
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the transport."""
        # A cast, because uvloop's transports are no subclasses of asyncio's.
        transport = self._transport = cast(asyncio.Transport, transport)
        self._server.make_room()
        self._server.connections[self] = None
        self._peer = text_of(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(_UNSENT_BYTES)
        self._wait()
        self._close_after(HEAD_TIMEOUT_S)

    @property
    def is_unread(self) -> bool:
        """Whether the client has not read what was sent, so that no more is sent."""
        return not self._may_write.is_set()

    def _wait(self) -> None:
        self.waits_since_s = asyncio.get_running_loop().time()

    def _close_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def data_received(self, data: bytes) -> None:
        """Called by the transport."""
        if self._task is not None or self._transport is None:
            return  # bytes behind the request
        # The end may have begun in the bytes before.
        searched = max(0, len(self._head) - len(_END_OF_HEAD))
        self._head += data
        end = self._head.find(_END_OF_HEAD, searched)
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._head) > MAX_HEAD_BYTES):
            self._begin(_at_once(text_answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)))
        elif end >= 0:
            self._begin(self._answer())

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport once."""
        self._server.connections.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Called by the transport when enough bytes wait for the client."""
        self._may_write.clear()
        self._wait()
        self._server.limit_unread()

    def resume_writing(self) -> None:
        """Called by the transport when the client has taken bytes."""
        self._may_write.set()
        self.waits_since_s = None

    def abort(self) -> None:
        """Cuts the connection. It counts no longer, although the transport reports its end later."""
        self._server.connections.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def _begin(self, answer: Awaitable[Answer]) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self.waits_since_s = None
        self._close_after(TIMEOUT_S)
        self._task = asyncio.get_running_loop().create_task(self._send(answer))

    async def _answer(self) -> Answer:
        first, _, rest = bytes(self._head.partition(_END_OF_HEAD)[0]).decode("latin-1").partition("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return text_answer(HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        try:
            return await self._server.answer(
                method, target.partition("?")[0], _authorization(rest), self._peer
            )
        except Exception:
            _log.exception("an HTTP request failed", extra={"path": target})
            return text_answer(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _send(self, answer: Awaitable[Answer]) -> None:
        found = await answer
        assert self._transport is not None
        self._transport.write(_head_of(found))
        if not self._head.startswith(b"HEAD "):
            for piece in found.body:
                await self._may_write.wait()
                self._transport.write(piece)
        self._wait()  # until the client has read the rest
        self._transport.close()


def _authorization(headers: str) -> str:
    for line in headers.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "authorization":
            return value.strip()
    return ""


async def _at_once(answer: Answer) -> Answer:
    return answer


def _head_of(answer: Answer) -> bytes:
    headers = {
        "Content-Type": answer.content_type,
        "Content-Length": str(sum(map(len, answer.body))),
        "Connection": "close",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
