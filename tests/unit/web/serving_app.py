"""An application with a few routes, served in the test's process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from felice.web.application import application
from felice.web.bodies import use_long
from felice.web.crowd import Crowd
from felice.web.errors import HttpError
from felice.web.media import accepted, json_body
from felice.web.serving import WebServer


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello\n")


async def name(request: Request) -> Response:
    return JSONResponse(request.path_params)


async def count(request: Request) -> Response:
    return JSONResponse({"bytes": len(await request.body())})


async def read_json(request: Request) -> Response:
    return JSONResponse(await json_body(request), media_type=accepted(request, ["application/json"]))


async def large(request: Request) -> Response:
    return Response(b"x" * 5_000_000)


async def broken(request: Request) -> Response:
    raise ValueError("a secret of the server")


async def broken_later(request: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        yield b"a part"
        raise ValueError("a secret of the server")

    return StreamingResponse(parts())


async def refused(request: Request) -> Response:
    raise HttpError(422, 42201, "Invalid schema", "look at it")


async def user(request: Request) -> Response:
    return PlainTextResponse(request.user.display_name)


async def wait(request: Request) -> Response:
    state = request.app.state
    state.waiting = getattr(state, "waiting", 0) + 1
    if not hasattr(state, "go_on"):
        state.go_on = asyncio.Event()
    await state.go_on.wait()
    return PlainTextResponse("waited\n")


async def parts(request: Request) -> Response:
    """Does something else after the first part of the body."""
    size = 0
    async for part in request.stream():
        if size == 0:
            await wait(request)
        size += len(part)
    return JSONResponse({"bytes": size})


async def hold(request: Request) -> Response:
    await request.body()
    return await wait(request)


async def follow(request: Request) -> Response:
    """Reads the body for as long as it comes."""
    use_long(request)
    size = 0
    with suppress(ClientDisconnect):
        async for part in request.stream():
            size += len(part)
            request.app.state.waiting = size
    return JSONResponse({"bytes": size})


ROUTES = [
    Route("/hello", hello),
    Route("/names/{name}", name),
    Route("/names/{name}/of/{other}", name),
    Route("/versions/{version:int}", name),
    Route("/count", count, methods=["POST"]),
    Route("/count", hello, methods=["DELETE"]),
    Route("/json", read_json, methods=["POST"]),
    Route("/large", large),
    Route("/broken", broken),
    Route("/broken-later", broken_later),
    Route("/refused", refused),
    Route("/parts", parts, methods=["POST"]),
    Route("/follow", follow, methods=["POST"]),
    Route("/hold", hold, methods=["POST"]),
    Route("/user", user),
    Route("/wait", wait),
]


class Serving:
    """A running server and what tests do with it."""

    def __init__(self, server: WebServer) -> None:
        self.server = server
        self.port = server.port

    @property
    def crowd(self) -> Crowd:
        assert self.server._crowd is not None
        return self.server._crowd

    @property
    def connections(self) -> list[Any]:
        return list(self.server._state.connections)

    @property
    def tasks(self) -> int:
        """How many requests are being handled."""
        return len(self.server._state.tasks)

    @property
    def waiting(self) -> int:
        """How many requests have come to `/wait`."""
        return getattr(self.server._app.state, "waiting", 0)

    @property
    def go_on(self) -> asyncio.Event:
        """Lets those at `/wait` go on."""
        event: asyncio.Event = self.server._app.state.go_on
        return event

    async def answer(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
        """The next answer on a connection that stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        status, headers, _ = parse(head)
        return status, headers, await reader.readexactly(int(headers["content-length"]))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer to these bytes; the connection must close after it."""
        reader, writer = await self.connect()
        writer.write(request)
        try:
            return parse(await reader.read())
        finally:
            writer.close()


def request_of(
    method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, close: bool = True
) -> bytes:
    """The bytes of a request. Without a body and a header about it, it has none."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class NoAnswer(Exception):
    """The connection ended before a whole head arrived."""


def parse(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        raise NoAnswer(answer)
    first, *lines = head.decode().split("\r\n")
    headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Serving]:
    async with WebServer(application(ROUTES, **options), "127.0.0.1", 0) as server:
        yield Serving(server)
    assert server._crowd is not None
    assert len(server._crowd) == 0
    assert not server._state.connections


def run(scenario: Callable[[Serving], Awaitable[None]], **options: Any) -> None:
    async def serve() -> None:
        async with asyncio.timeout(120), serving(**options) as found:
            await scenario(found)

    asyncio.run(serve())
