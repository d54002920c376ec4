"""A small HTTP server for monitoring: GET and HEAD, one request for each connection.

Keeps true: memory and time are bounded for every input, and for clients that never read: at most `MAX_CONNECTIONS`,
            `MAX_HEAD_BYTES` of a request, and `TIMEOUT_S` for a connection from its beginning to its end. A page is
            sent in pieces: the next piece when the client has taken most of the previous one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from http import HTTPStatus

from felice.dataclass import dataclass
from felice.env import Network
from felice.env.network import port_of

_log = logging.getLogger("felice.server")

MAX_CONNECTIONS = 32
MAX_HEAD_BYTES = 8 * 1024
TIMEOUT_S = 20.0
_END_OF_HEAD = b"\r\n\r\n"
_UNSENT_BYTES = 64 * 1024
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


class HttpServer:
    """Serves `routes` by path. Call `start` and `stop`."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        self.connections: set[HttpConnection] = set()
        self._server: asyncio.AbstractServer | None = None

    async def start(self, network: Network, host: str | None, port: int) -> int:
        """Listens, and returns the port. Raises OSError."""
        self._server = await network.listen(lambda: HttpConnection(self), host, port)
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

    async def answer(self, method: str, path: str) -> Answer:
        """The answer to a request."""
        if method not in _METHODS:
            allowed = {"Allow": ", ".join(_METHODS)}
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, [b"Method Not Allowed\n"], headers=allowed)
        route = self.routes.get(path)
        if route is None:
            return text_answer(HTTPStatus.NOT_FOUND, f"there are {', '.join(self.routes)}")
        return await route()


class HttpConnection(asyncio.Protocol):
    """One connection: reads a request, sends its answer, and closes."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._server.connections) >= MAX_CONNECTIONS:
            transport.abort()
            return
        self._server.connections.add(self)
        transport.set_write_buffer_limits(_UNSENT_BYTES)
        self._deadline = asyncio.get_running_loop().call_later(TIMEOUT_S, self.abort)

    def data_received(self, data: bytes) -> None:
        """Called by the transport."""
        if self._task is not None or self._transport is None:
            return  # bytes behind the request
        self._head += data
        if _END_OF_HEAD in self._head:
            self._transport.pause_reading()
            self._begin(self._answer())
        elif len(self._head) > MAX_HEAD_BYTES:
            self._transport.pause_reading()
            self._begin(_at_once(text_answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport once."""
        self._server.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Called by the transport when enough bytes wait for the client."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Called by the transport when the client has taken bytes."""
        self._may_write.set()

    def abort(self) -> None:
        """Cuts the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _begin(self, answer: Awaitable[Answer]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._send(answer))

    async def _answer(self) -> Answer:
        words = bytes(self._head.partition(b"\r\n")[0]).decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return text_answer(HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        try:
            return await self._server.answer(method, target.partition("?")[0])
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
        self._transport.close()


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
