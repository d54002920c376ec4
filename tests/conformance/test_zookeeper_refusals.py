"""The reason why a broker cannot use its ensemble is one line: another program answers, its version is too old, or it
denies access.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from felice.ensemble import Ensemble
from felice.env import SystemClock
from felice.metadata.store import NotAllowed, StoreError
from felice.metadata.zookeeper import TlsSettings, ZooKeeperSettings, ZooKeeperStore
from peers.apache_kafka import free_port
from peers.certificates import make_certificates
from peers.zookeeper import open_zookeeper, require_ensemble, secure_port

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def served_by(serve: Serve) -> AsyncIterator[str]:
    async def safely(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(safely, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield f"{host}:{port}"


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    [length] = struct.unpack("!i", await reader.readexactly(4))
    return await reader.readexactly(length)


# For the connection, and for the session. A machine under heavy load gets to no attempt within the first.
TIMEOUTS_MS = ((600, 4_000), (15_000, 30_000))


async def assert_refused(connect: str, reason: str) -> str:
    """An attempt to begin a session ends in time with one line that gives this reason. Returns the line."""
    for timeout_ms, session_ms in TIMEOUTS_MS:
        with pytest.raises(StoreError) as refused:
            async with asyncio.timeout(timeout_ms / 1000 + 60):
                await open_zookeeper(connect, session_timeout_ms=session_ms, connection_timeout_ms=timeout_ms)
        if reason in str(refused.value):
            break
    said = str(refused.value)
    assert "\n" not in said
    assert reason in said
    return said


async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_frame(reader)


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def answer_garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_frame(reader)
    writer.write(struct.pack("!i", 5) + b"what?")


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (speak_http, "what answers there is no ZooKeeper"),
        (hang_up, "socket connection broken"),
        (say_nothing, "nothing was heard"),
        (answer_garbage, "invalid server response"),
    ],
)
def test_an_address_without_zookeeper_is_reported_in_time(serve: Serve, reason: str) -> None:
    async def scenario() -> None:
        async with served_by(serve) as address:
            said = await assert_refused(address, reason)
            assert address in said
            assert any(f"{timeout_ms} ms" in said for timeout_ms, _ in TIMEOUTS_MS)

    asyncio.run(scenario())


def test_a_host_name_without_an_address_is_reported() -> None:
    asyncio.run(assert_refused("no-such-host.invalid:2181", "no host of it has an address"))


def test_a_zookeeper_before_3_6_is_refused_by_its_version() -> None:
    unimplemented = -6

    async def old_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        session = struct.pack("!iiqi", 0, 4_000, 77, 16) + bytes(16) + b"\0"
        writer.write(struct.pack("!i", len(session)) + session)
        [xid] = struct.unpack_from("!i", await read_frame(reader))
        writer.write(struct.pack("!iiqi", 16, xid, 1, unimplemented))

    async def scenario() -> None:
        async with served_by(old_server) as address:
            await assert_refused(address, "older than 3.6")

    asyncio.run(scenario())


def test_an_ensemble_without_quorum_is_reported(tmp_path: Path) -> None:
    ensemble = require_ensemble(tmp_path)
    with ensemble:
        for node in ensemble.nodes[1:]:
            node.kill()
        asyncio.run(assert_refused(ensemble.nodes[0].address, "quorum"))


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with require_ensemble(tmp_path_factory.mktemp("zookeeper"), nodes=1) as ensemble:
        yield ensemble


def test_nodes_with_access_lists_are_their_owners(ensemble: Ensemble) -> None:
    def settings(digest: str | None, *, sets_acl: bool = False) -> ZooKeeperSettings:
        return ZooKeeperSettings(
            (ensemble.connect,),
            "/acl",
            session_timeout_ms=60_000,
            connection_timeout_ms=60_000,
            digest=digest,
            sets_acl=sets_acl,
        )

    async def scenario() -> None:
        owner = await ZooKeeperStore.open(settings("felice:right", sets_acl=True), SystemClock())
        await owner.create("/config", b"")
        await owner.create("/config/users", b"")
        await owner.create("/config/users/alice", b"a secret")
        await owner.create("/topic", b"for all to read")
        await owner.set("/topic", b"still")
        for digest in (None, "felice:wrong"):
            stranger = await ZooKeeperStore.open(settings(digest), SystemClock())
            assert (await stranger.get("/topic")).data == b"still"
            with pytest.raises(NotAllowed, match="/topic.*zookeeper.digest.auth"):
                await stranger.set("/topic", b"taken")
            with pytest.raises(NotAllowed, match="/config/users/alice"):
                await stranger.get("/config/users/alice")
            with pytest.raises(NotAllowed, match="/config/users/alice"):
                await stranger.get_many(["/topic", "/config/users/alice"])
            await stranger.close()
        again = await ZooKeeperStore.open(settings("felice:right"), SystemClock())
        assert (await again.get("/config/users/alice")).data == b"a secret"
        await again.close()
        await owner.close()

    asyncio.run(scenario())


def test_a_write_too_large_for_zookeeper_is_refused_before_it_is_sent(ensemble: Ensemble) -> None:
    async def scenario() -> None:
        store = await open_zookeeper(
            ensemble.connect, "/large", session_timeout_ms=60_000, connection_timeout_ms=60_000
        )
        with pytest.raises(StoreError, match=r"/a: a write of 1100\d{3} bytes is more than ZooKeeper takes"):
            await store.create("/a", b"x" * 1_100_000)
        assert await store.create("/a", b"x" * 1_000_000) == "/a"
        assert len((await store.get("/a")).data) == 1_000_000
        await store.close()

    asyncio.run(scenario())


def test_tls_asks_for_certificates_both_ways(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    port = free_port()

    async def write(host: str, tls: TlsSettings | None, timeout_ms: int = 60_000) -> None:
        settings = ZooKeeperSettings((f"{host}:{port}",), "/tls", connection_timeout_ms=timeout_ms, tls=tls)
        store = await ZooKeeperStore.open(settings, SystemClock())
        await store.create("/n-", b"safe", sequential=True)
        await store.close()

    async def assert_refused(host: str, tls: TlsSettings | None, reason: str) -> None:
        for timeout_ms in (800, 15_000):
            with pytest.raises(StoreError) as error:
                await write(host, tls, timeout_ms=timeout_ms)
            if reason in str(error.value):
                break
        assert reason in str(error.value)

    async def scenario() -> None:
        ca, client = tmp_path / "ca.pem", tmp_path / "client.pem"
        await write("localhost", TlsSettings(ca, client))
        await write("127.0.0.1", TlsSettings(ca, client, checks_hostname=False))
        await assert_refused("127.0.0.1", TlsSettings(ca, client), "certificate")
        await assert_refused("localhost", TlsSettings(None, client), "certificate")
        await assert_refused("localhost", TlsSettings(ca), "no ZooKeeper that serves")
        await assert_refused("localhost", None, "no ZooKeeper that serves")
        missing = TlsSettings(tmp_path / "none.pem", client)
        await assert_refused("localhost", missing, "none.pem: zookeeper.ssl.truststore.location")

    secure = secure_port(port, tmp_path)
    with require_ensemble(tmp_path / "zookeeper", nodes=1, settings=secure, with_tls=True):
        asyncio.run(scenario())
