"""The HTTP server for monitoring, against clients that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest

from felice.env import SystemNetwork
from felice.server import http as server_module
from felice.server.http import MAX_CONNECTIONS, MAX_HEAD_BYTES, Answer, HttpServer, text_answer
from waiting import until

BODY = [b"x" * 100_000] * 50


async def _hello() -> Answer:
    return text_answer(HTTPStatus.OK, "hello")


async def _large() -> Answer:
    return Answer(HTTPStatus.OK, BODY)


async def _broken() -> Answer:
    raise ValueError("broken")


class Serving:
    def __init__(self) -> None:
        self.server = HttpServer({"/hello": _hello, "/large": _large, "/broken": _broken})
        self.port = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> bytes:
        reader, writer = await self.connect()
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer

    async def until_gone(self) -> None:
        await until(lambda: not self.server.connections)


def run(scenario: Callable[[Serving], Awaitable[None]]) -> None:
    async def serve() -> None:
        serving = Serving()
        serving.port = await serving.server.start(SystemNetwork(), "127.0.0.1", 0)
        try:
            async with asyncio.timeout(60):
                await scenario(serving)
        finally:
            await serving.server.stop()

    asyncio.run(serve())


def test_get_and_head() -> None:
    async def scenario(serving: Serving) -> None:
        got = await serving.ask(b"GET /hello?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 6" in head
        assert body == b"hello\n"
        headed = await serving.ask(b"HEAD /hello HTTP/1.0\r\n\r\n")
        assert headed == head + b"\r\n\r\n"

    run(scenario)


def test_a_large_page_arrives_whole_at_a_slow_client() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.05)
        body = (await reader.read()).partition(b"\r\n\r\n")[2]
        assert body == b"".join(BODY)
        writer.close()

    run(scenario)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /nothing HTTP/1.1", b"404"),
        (b"POST /hello HTTP/1.1", b"405"),
        (b"GET /broken HTTP/1.1", b"500"),
        (b"GET /hello", b"400"),
        (b"GET /hello SPDY/3", b"400"),
        (b"\x16\x03\x01\x00\xff", b"400"),
        (b"", b"400"),
    ],
)
def test_other_requests_are_refused(request_line: bytes, status: bytes) -> None:
    async def scenario(serving: Serving) -> None:
        got = await serving.ask(request_line + b"\r\n\r\n")
        assert got.split(b" ")[1] == status

    run(scenario)


def test_a_head_without_end_is_refused_at_its_limit() -> None:
    async def scenario(serving: Serving) -> None:
        got = await serving.ask(b"GET /hello HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES)
        assert got.split(b" ")[1] == b"431"

    run(scenario)


def test_silent_connections_end_and_further_ones_are_closed_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(serving: Serving) -> None:
        silent = [await serving.connect() for _ in range(MAX_CONNECTIONS)]
        await until(lambda: len(serving.server.connections) >= MAX_CONNECTIONS)
        try:
            refused = await serving.ask(b"GET /hello HTTP/1.1\r\n\r\n")
        except ConnectionError:
            refused = b""
        assert refused == b""
        await serving.until_gone()  # by their deadline
        assert b"hello" in await serving.ask(b"GET /hello HTTP/1.1\r\n\r\n")
        for _, writer in silent:
            writer.close()

    monkeypatch.setattr(server_module, "TIMEOUT_S", 10.0)
    run(scenario)


def test_a_client_that_does_not_read_keeps_little_memory_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        await until(lambda: serving.server.connections)
        (connection,) = serving.server.connections
        await asyncio.sleep(0.1)
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() <= 64 * 1024 + len(BODY[0])
        # Its deadline, which comes now: on a slow machine a short one would have come before.
        deadline, loop = connection._deadline, asyncio.get_running_loop()
        assert deadline is not None and not deadline.cancelled()
        assert deadline.when() <= loop.time() + 600
        assert deadline._callback is not None and deadline._args is not None  # type: ignore[attr-defined]
        connection._deadline = loop.call_later(0, deadline._callback, *deadline._args)  # type: ignore[attr-defined]
        deadline.cancel()  # which forgets its callback
        await serving.until_gone()
        writer.close()

    monkeypatch.setattr(server_module, "TIMEOUT_S", 600.0)
    run(scenario)


@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_is_accepted_when_the_server_stops_is_closed(turns: int) -> None:
    async def stop_soon() -> socket.socket:
        server = HttpServer({})
        port = await server.start(SystemNetwork(), "127.0.0.1", 0)
        client = socket.create_connection(("127.0.0.1", port))
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        return client

    with asyncio.run(stop_soon()) as client:
        client.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    gc.collect()  # an accepted socket that nothing closed makes its collection a warning, and so an error
