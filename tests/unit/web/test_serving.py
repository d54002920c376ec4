"""The start and the stop of a server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from starlette.applications import Starlette

from felice.web.application import application
from felice.web.hosts import host_of, is_loopback, known_hosts
from felice.web.limits import Limits
from felice.web.login import Login
from felice.web.serving import CannotListen, WebServer
from felice.web.tls import server_tls
from felice.web.users import FileUsers, write_users
from peers.authority import Authority
from unit.web.serving_app import ROUTES, Serving, parse, request_of, run
from waiting import until


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_an_address_in_use_is_one_line_and_the_application_does_not_start() -> None:
    began: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        began.append("began")
        yield

    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            server = WebServer(application(ROUTES, lifespan=lifespan), "127.0.0.1", port)
            with pytest.raises(CannotListen) as caught:
                await server.start()
            assert str(caught.value) == f"cannot listen at 127.0.0.1:{port}: address already in use"
        await server.stop()

    asyncio.run(scenario())
    assert began == []


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_this_machine_does_not_have_is_one_line(host: str) -> None:
    async def scenario() -> None:
        with pytest.raises(CannotListen, match=rf"cannot listen at {host}:0: \w[^\n]+$"):
            await WebServer(application(ROUTES), host, 0).start()

    asyncio.run(scenario())


def test_an_application_whose_start_fails_is_not_served() -> None:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        raise RuntimeError("no broker answers")
        yield

    async def scenario() -> None:
        server = WebServer(application(ROUTES, lifespan=lifespan), "127.0.0.1", 0)
        with pytest.raises(RuntimeError, match="no broker answers"):
            await server.start()
        assert server.port > 0
        assert not listens(server.port)

    asyncio.run(scenario())


def test_the_application_runs_before_the_first_request_and_after_the_last() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
        events.append("begin")
        yield {"name": "a"}
        events.append("end")

    async def scenario(serving: Serving) -> None:
        assert events == ["begin"]
        reader, writer = await serving.connect()
        writer.write(request_of("GET", "/wait", close=False))
        await until(lambda: serving.waiting)
        stop = asyncio.ensure_future(serving.server.stop())
        await until(lambda: not listens(serving.port))
        assert events == ["begin"]
        serving.go_on.set()
        assert parse(await reader.read())[2] == b"waited\n"
        await stop
        assert events == ["begin", "end"]
        writer.close()

    run(scenario, lifespan=lifespan, limits=Limits(stop_s=600))


def test_a_stop_ends_what_does_not_end_by_itself() -> None:
    async def scenario(serving: Serving) -> None:
        opened = [await serving.connect() for _ in range(4)]
        opened[1][1].write(request_of("GET", "/wait"))
        opened[2][1].write(request_of("POST", "/count", headers={"Content-Length": "9"}))
        opened[3][1].write(b"GET /hello HTTP/1.1\r\n")
        await until(lambda: serving.tasks == 2)
        await serving.server.stop()
        for reader, writer in opened:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        assert serving.tasks == 0
        assert not serving.connections

    run(scenario, limits=Limits(stop_s=0.2))


def test_a_stop_says_so_to_answers_that_have_no_end() -> None:
    """It waited ten seconds for each of them, and then cut it."""

    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("GET", "/wait", close=False))
        await until(lambda: serving.waiting)
        serving.server._app.state.on_stop = lambda: serving.go_on.set()
        await serving.server.stop()
        assert parse(await reader.read())[2] == b"waited\n"
        writer.close()

    run(scenario, limits=Limits(stop_s=600))


def test_a_stop_sends_the_answers_that_are_on_their_way() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request_of("GET", "/large", close=False))
        await until(lambda: serving.tasks)
        stop = asyncio.ensure_future(serving.server.stop())
        await asyncio.sleep(0)
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert len(parse(await reader.read())[2]) == 5_000_000
        await stop
        writer.close()

    run(scenario)


def test_a_stop_without_a_start_and_a_second_stop_do_nothing() -> None:
    async def scenario() -> None:
        server = WebServer(application(ROUTES), "127.0.0.1", 0)
        await server.stop()
        await server.start()
        await server.stop()
        await server.stop()

    asyncio.run(scenario())


def test_the_url_names_the_port_that_was_selected() -> None:
    async def scenario() -> None:
        async with WebServer(application(ROUTES), "127.0.0.1", 0) as server:
            assert server.url == f"http://127.0.0.1:{server.port}"

    asyncio.run(scenario())
    for host, url in (
        ("::1", "[::1]"),
        ("0.0.0.0", "localhost"),
        ("::", "localhost"),
        ("a.example", "a.example"),
    ):
        assert WebServer(application(ROUTES), host, 8081).url == f"http://{url}:8081"


@pytest.mark.parametrize(
    ("host", "has_login", "has_tls", "warning"),
    [
        ("127.0.0.1", False, False, ""),
        ("0.0.0.0", False, False, "everyone who reaches this address may use the server"),
        ("0.0.0.0", True, False, "passwords cross the network readable, because there is no TLS"),
        ("0.0.0.0", True, True, ""),
    ],
)
def test_a_server_for_other_machines_warns_if_it_is_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, has_login: bool, has_tls: bool, warning: str
) -> None:
    write_users(tmp_path / "users", {})
    Authority().issue().write_pem(tmp_path / "server.pem")
    tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "server.pem"} if has_tls else {}

    async def scenario() -> None:
        app = application(ROUTES, login=Login(FileUsers(tmp_path / "users")) if has_login else None)
        async with WebServer(app, host, 0, tls=server_tls(tls, tmp_path)):
            pass

    asyncio.run(scenario())
    assert [record.message for record in caplog.records] == [warning] * bool(warning)


@pytest.mark.parametrize(
    ("host", "header", "is_known"),
    [
        ("127.0.0.1", "localhost:8081", True),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "localhost.", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "[::1]:8081", True),
        ("127.0.0.2", "127.0.0.2:8081", True),
        ("localhost", "localhost", True),
        ("::1", "[::1]", True),
        ("127.0.0.1", "evil.example:8081", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "", False),
        ("0.0.0.0", "anything", True),
        ("192.168.1.2", "anything", True),
        ("registry.example", "anything", True),
    ],
)
def test_a_server_for_this_machine_only_knows_its_names(host: str, header: str, is_known: bool) -> None:
    known = known_hosts(host, has_login=False)
    assert (known is None) is not is_loopback(host)
    assert (known is None or host_of(header) in known) is is_known
    assert known_hosts(host, has_login=True) is None
