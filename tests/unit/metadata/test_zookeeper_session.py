"""The lease of a session with ZooKeeper counts from the time at which the last answered request was sent."""

from __future__ import annotations

import asyncio

import pytest

from felice.metadata.store import SessionExpired, SessionState
from felice.metadata.zookeeper.requests import AddWatch
from felice.metadata.zookeeper.session import ZooKeeperSession
from felice.metadata.zookeeper.settings import ZooKeeperSettings

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


async def connected(server: FakeZooKeeper, clock: HandClock, owner: Owner) -> ZooKeeperSession:
    settings = ZooKeeperSettings((server.address,))
    session = ZooKeeperSession(settings, None, clock, owner)  # type: ignore[arg-type]
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
        async with asyncio.timeout(30), FakeZooKeeper(timeout_ms=TIMEOUT_MS) as server:
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
        async with asyncio.timeout(30), FakeZooKeeper(timeout_ms=TIMEOUT_MS) as server:
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
