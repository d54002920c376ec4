"""A session with ZooKeeper: what its lease counts from, and how long one attempt to connect may take."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time

import pytest

from felice.metadata.store import SessionExpired, SessionState
from felice.metadata.zookeeper import connection as connection_module
from felice.metadata.zookeeper.connection import _attempt_s
from felice.metadata.zookeeper.requests import AddWatch
from felice.metadata.zookeeper.session import ZooKeeperSession
from felice.metadata.zookeeper.settings import ZooKeeperSettings
from waiting import LIMIT_S

from .fake_zookeeper import FakeZooKeeper

pytest.importorskip("kazoo")

DATA_CHANGED = 3
# So long that kazoo sends no ping while a test runs.
TIMEOUT_MS = 10_000_000


class HandClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.s = 100.0

    def monotonic(self) -> float:
        return self.s

    def now_ms(self) -> int:
        return round(self.s * 1000)


class Owner:
    def __init__(self) -> None:
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self.states: list[SessionState] = []

    def on_session_state(self, state: SessionState) -> None:
        self.states.append(state)

    def on_watch_event(self, kind: int, path: str) -> None:
        self.events.put_nowait(path)

    def on_watch_missed(self) -> None:
        raise AssertionError("the connection was not lost")


def new_session(
    address: str,
    clock: object,
    owner: Owner,
    *,
    timeout_ms: int = 18_000,
    tls: ssl.SSLContext | None = None,
    digest: str | None = None,
) -> ZooKeeperSession:
    settings = ZooKeeperSettings((address,), session_timeout_ms=timeout_ms, digest=digest)
    return ZooKeeperSession(settings, tls, clock, owner)  # type: ignore[arg-type]


async def connected(server: FakeZooKeeper, clock: HandClock, owner: Owner) -> ZooKeeperSession:
    session = new_session(server.address, clock, owner)
    await session.connect()
    return session


def is_alive(session: ZooKeeperSession) -> bool:
    try:
        session.check_alive()
    except SessionExpired:
        return False
    return True


def test_a_watch_event_is_no_answer_and_prolongs_nothing() -> None:
    """The request has no answer when the events arrive: ZooKeeper may not have received it."""

    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S), FakeZooKeeper(timeout_ms=TIMEOUT_MS) as server:
            clock, owner = HandClock(), Owner()
            session = await connected(server, clock, owner)
            clock.s += 5000
            unanswered = asyncio.create_task(session.call(AddWatch("/")))
            await server.received.get()
            for path in ("/a", "/b"):
                server.tell(DATA_CHANGED, path)
                assert await owner.events.get() == path
            clock.s += 4900
            assert is_alive(session)
            clock.s += 100
            assert not is_alive(session)
            assert owner.states == [SessionState.EXPIRED]
            unanswered.cancel()
            await session.abandon()

    asyncio.run(scenario())


def test_an_answer_extends_the_session_from_the_time_its_request_was_sent() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S), FakeZooKeeper(timeout_ms=TIMEOUT_MS) as server:
            clock, owner = HandClock(), Owner()
            session = await connected(server, clock, owner)
            clock.s += 4000
            first = asyncio.create_task(session.call(AddWatch("/a")))
            xid = await server.received.get()
            clock.s += 3000
            second = asyncio.create_task(session.call(AddWatch("/b")))
            await server.received.get()
            clock.s += 2000
            server.tell(DATA_CHANGED, "/a")
            server.answer(xid)
            await first
            clock.s += 4900
            assert is_alive(session), "13,900 seconds after the beginning, 9,900 after the first request"
            clock.s += 100
            assert not is_alive(session)
            second.cancel()
            await session.abandon()

    asyncio.run(scenario())


def test_one_connection_without_an_answer_does_not_cost_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that starts may accept a connection and never answer on it."""
    monkeypatch.setattr(connection_module, "_attempt_s", lambda *_: 1.0)

    async def scenario() -> None:
        async with asyncio.timeout(2 * LIMIT_S), FakeZooKeeper(timeout_ms=60_000) as server:
            owner = Owner()
            session = new_session(server.address, time, owner, timeout_ms=60_000)
            await session.connect()
            server.ignored = 1
            server.drop()
            while len(owner.states) < 2:
                await asyncio.sleep(0.05)
            assert owner.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
            assert server.ignored == 0
            assert session.last_failure == f"{server.address}: no answer within 1.0 s"
            await session.abandon()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "tls", [None, ssl.create_default_context()], ids=["no connection", "no TLS handshake"]
)
def test_an_address_that_lets_no_connection_come_about_is_given_up_early(tls: ssl.SSLContext | None) -> None:
    """As a machine without power, or a server that hangs."""

    async def scenario() -> None:
        with socket.socket() as listener, socket.socket() as queued:
            listener.bind(("127.0.0.1", 0))
            # Linux drops new connections while a queue of 0 is full.
            listener.listen(0 if tls is None else 100)
            queued.connect(listener.getsockname())
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            session = new_session(address, time, Owner(), timeout_ms=9_000, tls=tls)
            connecting = asyncio.create_task(session.connect())
            async with asyncio.timeout(60):
                while session.last_failure != f"{address}: no connection within 3.0 s":
                    assert session.last_failure == "nothing was heard"
                    await asyncio.sleep(0.05)
            connecting.cancel()
            await session.abandon()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("timeout_ms", "addresses", "attempt_s"),
    [(18_000, 1, 6), (18_000, 2, 4.5), (18_000, 3, 3), (2_000, 3, 1)],
)
def test_half_of_the_addresses_can_be_tried_in_vain(
    timeout_ms: int, addresses: int, attempt_s: float
) -> None:
    assert _attempt_s(timeout_ms, addresses) == attempt_s


def test_a_login_without_an_answer_ends_with_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_attempt_s", lambda *_: 2.0)

    async def scenario() -> None:
        async with asyncio.timeout(2 * LIMIT_S), FakeZooKeeper(timeout_ms=90_000) as server:
            session = new_session(server.address, time, Owner(), timeout_ms=90_000, digest="alice:secret")
            connecting = asyncio.create_task(session.connect())
            await server.received.get()
            began_s = time.monotonic()
            # On a slow machine an attempt may have failed before its login.
            while session.last_failure != f"{server.address}: no answer within 2.0 s":
                await asyncio.sleep(0.05)
            assert time.monotonic() - began_s < LIMIT_S, "kazoo waits for the whole session timeout"
            connecting.cancel()
            await session.abandon()

    asyncio.run(scenario())
