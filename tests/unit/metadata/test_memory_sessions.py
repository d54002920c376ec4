"""Faults of sessions that tests and simulations inject: suspension, expiry, delayed and lost answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from felice.metadata import (
    ClusterImage,
    Create,
    Event,
    EventKind,
    SessionExpired,
    SessionState,
    StoreUnavailable,
    layout,
)
from felice.metadata.layout import TopicNode
from felice.metadata.memory import MemoryEnsemble
from felice.metadata.watcher import Watcher
from waiting import LIMIT_S, let_run


def _topic(number: int) -> bytes:
    return layout.encode_topic(TopicNode(UUID(int=number), {0: (1,)}, {}, {}))


def run(scenario: Callable[[MemoryEnsemble], Awaitable[None]]) -> None:
    asyncio.run(scenario(MemoryEnsemble()))  # type: ignore[arg-type]


def test_an_expired_session_loses_its_nodes_and_is_renewed_under_another_id() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        mine, other = ensemble.connect(), ensemble.connect()
        states: list[SessionState] = []
        mine.watch_session(states.append)
        events: list[Event] = []
        mine.watch("/", events.append)
        await mine.create("/me", ephemeral=True)
        first = mine.session_id
        ensemble.expire(first)
        assert await other.exists("/me") is None
        with pytest.raises(SessionExpired):
            await mine.get("/")
        await other.create("/unheard")
        await mine.renew()
        assert mine.session_id != first
        await mine.create("/me", ephemeral=True)
        assert (await other.get("/me")).ephemeral_owner == mine.session_id
        assert states == [SessionState.EXPIRED, SessionState.CONNECTED]
        assert events == [
            Event(EventKind.CREATED, "/me"),
            Event(EventKind.MISSED, "/"),
            Event(EventKind.CREATED, "/me"),
        ]

    run(scenario)


def test_calls_of_a_suspended_session_wait_until_it_is_resumed_or_expires() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        store = ensemble.connect()
        await store.create("/a")
        ensemble.suspend(store.session_id)
        reading = asyncio.create_task(store.get("/a"))
        writing = asyncio.create_task(store.create("/b"))
        await asyncio.sleep(0)
        assert not reading.done() and ensemble.tree.find("/b") is None
        ensemble.resume(store.session_id)
        assert (await reading).version == 0
        assert await writing == "/b"
        ensemble.suspend(store.session_id)
        reading = asyncio.create_task(store.get("/a"))
        await asyncio.sleep(0)
        ensemble.expire(store.session_id)
        with pytest.raises(SessionExpired):
            await reading

    run(scenario)


def test_a_write_whose_answer_was_lost_happened_and_its_caller_gets_an_unknown_outcome() -> None:
    async def scenario() -> None:
        on_the_way = asyncio.Queue[asyncio.Future[None]]()

        async def travel(session_id: int) -> None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            on_the_way.put_nowait(future)
            await future

        ensemble = MemoryEnsemble(travel)
        store = ensemble.connect()
        writing = asyncio.create_task(store.create("/a"))
        (await on_the_way.get()).set_result(None)
        answer = await on_the_way.get()
        assert ensemble.tree.find("/a") is not None
        ensemble.suspend(store.session_id)
        ensemble.resume(store.session_id)
        answer.set_result(None)
        with pytest.raises(StoreUnavailable):
            await writing

    asyncio.run(scenario())


def test_the_image_catches_up_after_a_suspended_session() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        store, other = ensemble.connect(), ensemble.connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await store.create("/brokers/topics/goes", _topic(1))
        images: list[ClusterImage] = []
        watcher = Watcher(store, lambda old, new: images.append(new))
        await watcher.start()
        ensemble.suspend(store.session_id)
        await other.create("/brokers/topics/comes", _topic(2))
        await other.delete("/brokers/topics/goes")
        ensemble.resume(store.session_id)
        assert await watcher.wait_until(lambda image: set(image.topics) == {"comes"}, LIMIT_S)
        seen = len(images)
        ensemble.suspend(store.session_id)
        ensemble.resume(store.session_id)
        await let_run()
        assert len(images) == seen, "nothing changed, so nobody is told"
        ensemble.expire(store.session_id)
        await other.create("/brokers/topics/later", _topic(3))
        await store.renew()
        assert await watcher.wait_until(lambda image: "later" in image.topics, LIMIT_S)
        await watcher.stop()

    run(scenario)


def test_a_damaged_node_is_skipped() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        store = ensemble.connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await store.create("/brokers/topics/bad", b"{not json")
        await store.create("/brokers/topics/good", _topic(4))
        watcher = Watcher(store, lambda old, new: None)
        await watcher.start()
        assert set(watcher.image.topics) == {"good"}
        await watcher.stop()

    run(scenario)
