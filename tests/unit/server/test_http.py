"""The HTTP server for monitoring, against clients that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest

import strangers
from felice.env import SystemNetwork
from felice.server.monitoring import http as server_module
from felice.server.monitoring.http import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    MAX_UNREAD,
    Answer,
    HttpServer,
    Logins,
    text_answer,
)
from waiting import until

BODY = [b"x" * 100_000] * 50


async def _hello() -> Answer:
    return text_answer(HTTPStatus.OK, "hello")


async def _large() -> Answer:
    return Answer(HTTPStatus.OK, BODY)


async def _broken() -> Answer:
    raise ValueError("broken")


class Serving:
    def __init__(self, max_connections: int = MAX_CONNECTIONS) -> None:
        routes = {"/hello": _hello, "/large": _large, "/broken": _broken}
        self.server = HttpServer(routes, max_connections=max_connections)
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


def run(scenario: Callable[[Serving], Awaitable[None]], max_connections: int = MAX_CONNECTIONS) -> None:
    async def serve() -> None:
        serving = Serving(max_connections)
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


@pytest.mark.parametrize("bytes_at_first", [b"", b"GET /hello HTTP/1.1\r\nHost: "])
def test_a_request_that_does_not_end_is_closed_at_its_deadline(
    bytes_at_first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(serving: Serving) -> None:
        began = asyncio.get_running_loop().time()
        reader, writer = await serving.connect()
        writer.write(bytes_at_first)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert asyncio.get_running_loop().time() - began >= 0.2
        writer.close()

    monkeypatch.setattr(server_module, "HEAD_TIMEOUT_S", 0.2)
    monkeypatch.setattr(server_module, "TIMEOUT_S", 600.0)
    run(scenario)


def test_a_head_above_its_limit_is_refused_also_if_it_ends() -> None:
    async def scenario(serving: Serving) -> None:
        got = await serving.ask(b"GET /hello HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES + b"\r\n\r\n")
        assert got.split(b" ")[1] == b"431"

    run(scenario)


def test_the_end_of_a_head_may_arrive_byte_by_byte() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        for byte in b"GET /hello HTTP/1.1\r\n\r\n":
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.read()).endswith(b"hello\n")
        writer.close()

    run(scenario)


@pytest.mark.parametrize("kind", strangers.KINDS)
@pytest.mark.parametrize("count", [MAX_UNREAD, 200])
def test_strangers_keep_nobody_out(kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # No deadline helps: those who waited longest for their clients give way.
    monkeypatch.setattr(server_module, "HEAD_TIMEOUT_S", 600.0)
    monkeypatch.setattr(server_module, "TIMEOUT_S", 600.0)

    async def scenario(serving: Serving) -> None:
        def ask() -> None:
            with strangers.strangers(serving.port, kind, count, "/large"):
                for _ in range(5):
                    assert strangers.get(serving.port, "/hello") == (200, b"hello\n")
                    assert strangers.get(serving.port, "/large") == (200, b"".join(BODY))

        await asyncio.to_thread(ask)
        assert len(serving.server.connections) <= MAX_CONNECTIONS
        assert sum(found.is_unread for found in serving.server.connections) <= MAX_UNREAD

    run(scenario)


def test_the_connection_that_waited_longest_for_its_client_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEAD_TIMEOUT_S", 600.0)

    async def scenario(serving: Serving) -> None:
        _, first = await serving.connect()
        await until(lambda: len(serving.server.connections) == 1)
        slow, unread = await serving.connect()
        slow._transport.pause_reading()  # type: ignore[attr-defined]
        unread.write(b"GET /large HTTP/1.1\r\n\r\n")
        await until(lambda: len(serving.server.connections) == 2)
        oldest, reading = serving.server.connections
        await until(lambda: reading.is_unread)
        _, third = await serving.connect()
        await until(lambda: len(serving.server.connections) == 3)
        youngest = list(serving.server.connections)[2]
        assert b"hello" in await serving.ask(b"GET /hello HTTP/1.1\r\n\r\n")
        assert oldest not in serving.server.connections
        await until(lambda: len(serving.server.connections) == 2)
        assert list(serving.server.connections) == [reading, youngest]
        _, fourth = await serving.connect()
        _, fifth = await serving.connect()
        await until(lambda: reading not in serving.server.connections)
        assert youngest in serving.server.connections
        for writer in (first, unread, third, fourth, fifth):
            writer.close()

    run(scenario, max_connections=3)


def test_a_client_that_does_not_read_keeps_little_memory_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        await until(lambda: serving.server.connections)
        (connection,) = serving.server.connections
        await asyncio.sleep(0.1)
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() <= 16 * 1024 + len(BODY[0])
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


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("", 401),
        ("Authorization: Basic bWU6cGFzcw==\r\n", 200),  # me:pass
        ("authorization: basic bWU6cGFzcw==\r\n", 200),
        ("Authorization: Basic eW91OnNlY3JldA==\r\n", 200),  # you:secret
        ("Authorization: Basic bWU6c2VjcmV0\r\n", 401),  # me:secret
        ("Authorization: Basic bWU6cGFzc\r\n", 401),  # no base64
        ("Authorization: Basic 8J+YgA==\r\n", 401),
        ("Authorization: Bearer bWU6cGFzcw==\r\n", 401),
        ("X-Authorization: Basic bWU6cGFzcw==\r\n", 401),
    ],
)
async def test_paths_with_a_log_in_answer_only_to_the_users(header: str, status: int) -> None:
    logins = Logins(frozenset({"me:pass", "you:secret"}), ("/large",))
    server = HttpServer({"/hello": _hello, "/large": _large}, logins)
    port = await server.start(SystemNetwork(), "127.0.0.1", 0)
    try:
        answers = []
        for path in ("/large", "/hello"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
            answers.append(await reader.read())
            writer.close()
    finally:
        await server.stop()
    assert answers[0].startswith(f"HTTP/1.1 {status} ".encode())
    assert (b"\r\nWWW-Authenticate: Basic " in answers[0]) == (status == 401)
    assert (b"xxx" in answers[0]) == (status == 200)
    assert answers[1].startswith(b"HTTP/1.1 200 ")
