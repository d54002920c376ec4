"""Sessions when real ZooKeeper servers die, are suspended, or end the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from kazoo.client import KazooClient

from felice.ensemble import Ensemble
from felice.metadata import Event, EventKind, NoNode, SessionExpired, SessionState, StoreUnavailable
from felice.metadata.zookeeper import ZooKeeperStore
from peers.zookeeper import open_zookeeper, require_ensemble
from waiting import until

# Where a session is to end, and where it is to outlive a server that comes back.
SHORT_MS, LONG_MS = 2_000, 120_000
LONG_SESSIONS = {"maxSessionTimeout": str(LONG_MS)}
CONNECTION_MS = 60_000


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with require_ensemble(tmp_path_factory.mktemp("zookeeper"), nodes=1, settings=LONG_SESSIONS) as ensemble:
        yield ensemble


@pytest.fixture
def ensemble(started: Ensemble) -> Iterator[Ensemble]:
    """One ensemble for all tests of the module; after each test all servers run again."""
    yield started
    node = started.nodes[0]
    if node.is_running:
        node.resume()
    node.start()
    started.wait_until_ready()


def run(
    connect: str,
    chroot: str,
    scenario: Callable[[ZooKeeperStore], Awaitable[None]],
    *,
    session_timeout_ms: int = LONG_MS,
) -> None:
    async def whole() -> None:
        store = await open_zookeeper(
            connect, chroot, session_timeout_ms=session_timeout_ms, connection_timeout_ms=CONNECTION_MS
        )
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(whole())


def test_a_session_outlives_the_death_of_its_server(ensemble: Ensemble) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        states: list[SessionState] = []
        events: list[Event] = []
        store.watch_session(states.append)
        store.watch("/", events.append)
        await store.create("/me", ephemeral=True)
        session_id = store.session_id
        await asyncio.to_thread(ensemble.nodes[0].kill)
        await until(lambda: store.session_state is SessionState.SUSPENDED)
        waiting = [asyncio.create_task(store.create("/later")), asyncio.create_task(store.get("/me"))]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in waiting)
        ensemble.nodes[0].start()
        assert await waiting[0] == "/later"
        assert (await waiting[1]).ephemeral_owner == session_id == store.session_id
        await store.create("/last")
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        # The watch is set again before anything is sent, so nothing after `MISSED` is missed.
        assert events == [
            Event(EventKind.CREATED, "/me"),
            Event(EventKind.MISSED, "/"),
            Event(EventKind.CREATED, "/later"),
            Event(EventKind.CREATED, "/last"),
        ]

    run(ensemble.connect, "/outlives", scenario)


def test_a_write_with_a_lost_response_raises_and_a_read_is_repeated(ensemble: Ensemble) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        await store.create("/a", b"one")
        ensemble.nodes[0].pause()
        writing = asyncio.create_task(store.set("/a", b"two", version=0))
        many = asyncio.create_task(store.multi([]))
        reading = asyncio.create_task(store.get_many(["/a", "/none"]))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(ensemble.nodes[0].kill)
        with pytest.raises(StoreUnavailable, match="/a"):
            await writing
        assert await many == []
        ensemble.nodes[0].start()
        node, nothing = await reading
        assert node is not None and node.data == b"one" and nothing is None
        assert await store.set("/a", b"two", version=0) == 1

    run(ensemble.connect, "/doubt", scenario)


def test_an_expired_session_is_renewed_without_its_ephemeral_nodes(
    ensemble: Ensemble,
) -> None:
    session_ms = SHORT_MS

    async def scenario(store: ZooKeeperStore) -> None:
        told: list[SessionState] = []
        events: list[Event] = []
        store.watch_session(told.append)
        store.watch("/", events.append)
        await store.create("/me", b"old", ephemeral=True)
        first = store.session_id
        ensemble.nodes[0].pause()
        writing = asyncio.create_task(store.create("/b"))
        reading = asyncio.create_task(store.get("/me"))
        await until(lambda: store.session_state is SessionState.EXPIRED)
        assert told[-1] is SessionState.EXPIRED
        for task in (writing, reading):
            with pytest.raises((SessionExpired, StoreUnavailable)):
                await task
        with pytest.raises(SessionExpired):
            await store.get("/me")
        # Nothing ended the session at ZooKeeper, which stood still: its node is still there.
        ensemble.nodes[0].resume()
        await store.renew()
        assert store.session_id != first
        await until(lambda: store.session_state is SessionState.CONNECTED)
        with pytest.raises(NoNode):
            await store.get("/me")
        await store.create("/me", b"new", ephemeral=True)
        await until(lambda: told[-1] is SessionState.CONNECTED)
        missed, created = Event(EventKind.MISSED, "/"), Event(EventKind.CREATED, "/me")
        # Each lost connection adds one MISSED event.
        assert missed in events
        others = [event for event in events if event != missed]
        assert others[0] == others[-1] == created

    try:
        run(ensemble.connect, "/given-up", scenario, session_timeout_ms=session_ms)
    except (SessionExpired, StoreUnavailable):
        # On a machine under heavy load so short a session may also end too early.
        ensemble.nodes[0].resume()
        session_ms = 10 * SHORT_MS
        run(ensemble.connect, "/given-up-later", scenario, session_timeout_ms=session_ms)


def test_a_session_ended_by_zookeeper_is_reported_and_not_replaced_silently(ensemble: Ensemble) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        states: list[SessionState] = []
        store.watch_session(states.append)
        await store.create("/me", ephemeral=True)
        await asyncio.to_thread(end_from_outside, ensemble.connect, store)
        await until(lambda: SessionState.EXPIRED in states)
        with pytest.raises(SessionExpired):
            await store.create("/b")
        await asyncio.sleep(0.5)
        assert store.session_state is SessionState.EXPIRED
        await store.renew()
        assert await store.exists("/me") is None

    run(ensemble.connect, "/ended", scenario)


def end_from_outside(connect: str, store: ZooKeeperStore) -> None:
    """Takes over the session and closes it, as ZooKeeper's own tests do to expire one."""
    client = store._session._client
    thief = KazooClient(connect, client_id=(client._session_id, client._session_passwd))
    thief.start(60)
    thief.stop()
    thief.close()


def test_a_closed_store_cannot_be_renewed_even_while_it_is_being(ensemble: Ensemble) -> None:
    async def scenario() -> None:
        store = await open_zookeeper(
            ensemble.connect, "/closed", session_timeout_ms=SHORT_MS, connection_timeout_ms=CONNECTION_MS
        )
        ensemble.nodes[0].pause()
        try:
            await until(lambda: store.session_state is SessionState.EXPIRED)
            renewing = asyncio.create_task(store.renew())
            await asyncio.sleep(0.2)
            # ZooKeeper stands still: without the end of `close` it takes forever.
            async with asyncio.timeout(120):
                await store.close()
                with pytest.raises(SessionExpired):
                    await renewing
        finally:
            ensemble.nodes[0].resume()

    asyncio.run(scenario())


def test_a_session_goes_on_when_the_leader_of_three_is_killed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async def scenario(ensemble: Ensemble, store: ZooKeeperStore) -> None:
        states: list[SessionState] = []
        store.watch_session(states.append)
        await store.create("/counter", b"0")
        await store.create("/me", ephemeral=True)
        leader = await asyncio.to_thread(ensemble.leader)
        await asyncio.to_thread(leader.kill)
        version, unknown = 0, 0
        for number in range(1, 21):
            try:
                version = await store.set("/counter", str(number).encode(), version)
            except StoreUnavailable:
                # Whether it happened is read, not guessed.
                unknown += 1
                version = (await store.get("/counter")).version
        # At most one write is in doubt for each lost connection.
        assert unknown <= states.count(SessionState.SUSPENDED)
        assert SessionState.EXPIRED not in states
        assert (await store.get("/me")).ephemeral_owner == store.session_id
        assert version >= 20 - unknown
        leader.start()
        await asyncio.to_thread(ensemble.wait_until_ready)

    async def whole(ensemble: Ensemble) -> None:
        store = await open_zookeeper(
            ensemble.connect, session_timeout_ms=LONG_MS, connection_timeout_ms=CONNECTION_MS
        )
        await scenario(ensemble, store)
        await store.close()

    with require_ensemble(tmp_path_factory.mktemp("ensemble"), settings=LONG_SESSIONS) as ensemble:
        asyncio.run(whole(ensemble))
