"""The contract of every metadata store: the same tests run with each of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from felice.env import SystemClock, SystemDisk
from felice.env.network import local_pair, open_local
from felice.metadata import (
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    SetData,
    StoreError,
)
from felice.metadata.embedded import EmbeddedStore
from felice.metadata.memory import MemoryEnsemble
from felice.metadata.served import ServedStore, StoreServer
from felice.metadata.store import NoChildrenForEphemerals
from peers.zookeeper import open_zookeeper

OpenStore = Callable[[], Awaitable[MetadataStore]]

# No session of these tests expires: each is closed. ZooKeeper shortens this to 40 s.
SESSION_MS = 60_000


@pytest.fixture(params=["memory", "embedded", "served", "zookeeper"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Opens a session; the nodes stay after it, in every store."""
    if request.param == "memory":
        ensemble = MemoryEnsemble()
        return lambda: at_once(ensemble.connect())
    if request.param == "embedded":
        return lambda: at_once(EmbeddedStore.open(SystemDisk(), tmp_path / "metadata"))
    if request.param == "served":
        keeper = Keeper(tmp_path / "metadata")
        return keeper.connect
    where: str = request.getfixturevalue("zookeeper")
    chroot = f"/contracts/{uuid.uuid4()}"
    return lambda: open_zookeeper(
        where, chroot, session_timeout_ms=SESSION_MS, connection_timeout_ms=SESSION_MS
    )


class Keeper:
    """A store in this process, as the parent of broker processes has it."""

    def __init__(self, directory: Path) -> None:
        self._store = EmbeddedStore.open(SystemDisk(), directory)
        self._server = StoreServer(self._store, session_timeout_s=SESSION_MS / 1000)
        self._serving: set[asyncio.Task[None]] = set()

    async def connect(self) -> ServedStore:
        ours, theirs = local_pair()
        self._serving.add(asyncio.create_task(self._server.serve(*await open_local(ours))))
        return await ServedStore.open(*await open_local(theirs), SystemClock())


async def at_once(store: MetadataStore) -> MetadataStore:
    return store


def run(open_store: OpenStore, scenario: Callable[[MetadataStore], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = await open_store()
        await scenario(store)
        await store.close()

    asyncio.run(whole())


def test_a_node_is_read_as_it_was_written(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        assert await store.create("/a", b"one") == "/a"
        node = await store.get("/a")
        assert (node.data, node.version) == (b"one", 0)
        assert await store.set("/a", b"two") == 1
        later = await store.get("/a")
        assert (later.data, later.version) == (b"two", 1)
        assert later.created_zxid == node.created_zxid < later.modified_zxid
        await store.delete("/a")
        assert await store.exists("/a") is None

    run(open_store, scenario)


def test_missing_and_existing_nodes_are_refused_by_name(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a")
        with pytest.raises(NodeExists, match="/a"):
            await store.create("/a")
        for refused in (store.get("/b"), store.set("/b", b""), store.delete("/b"), store.create("/b/c")):
            with pytest.raises(NoNode, match="/b"):
                await refused
        with pytest.raises(NoNode):
            await store.children("/b")

    run(open_store, scenario)


@pytest.mark.parametrize("path", ["a", "/a/", "/a//b", ""])
def test_an_invalid_path_is_refused(open_store: OpenStore, path: str) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(StoreError):
            await store.create(path)

    run(open_store, scenario)


def test_a_stale_version_writes_nothing(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"one")
        await store.set("/a", b"two", version=0)
        with pytest.raises(BadVersion):
            await store.set("/a", b"three", version=0)
        with pytest.raises(BadVersion):
            await store.delete("/a", version=0)
        assert (await store.get("/a")).data == b"two"
        await store.delete("/a", version=1)

    run(open_store, scenario)


def test_a_node_with_children_is_not_deleted(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a"), Create("/a/c"), Create("/a/b")])
        assert await store.children("/a") == ["b", "c"]
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.multi([Delete("/a/c"), Delete("/a/b"), Delete("/a")])
        assert await store.children("/") == []

    run(open_store, scenario)


def test_multi_is_atomic(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/epoch", b"1")
        outcomes = await store.multi([Check("/epoch", 0), Create("/a"), SetData("/a", b"x"), Create("/a/b")])
        assert outcomes == [None, "/a", 1, "/a/b"]
        await store.set("/epoch", b"2")
        with pytest.raises(BadVersion):
            await store.multi([Create("/c"), SetData("/a", b"y"), Check("/epoch", 0)])
        assert await store.exists("/c") is None
        assert (await store.get("/a")).data == b"x"

    run(open_store, scenario)


def test_multi_sees_its_own_writes(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(NoNode):
            await store.multi([Create("/a"), Delete("/a"), Create("/a/b")])
        with pytest.raises(NodeExists):
            await store.multi([Create("/a"), Create("/a")])
        assert await store.children("/") == []

    run(open_store, scenario)


def test_sequential_nodes_never_repeat_a_number(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/q")
        first = await store.create("/q/n_", sequential=True)
        await store.delete(first)
        second, third = await store.multi(
            [Create("/q/n_", sequential=True), Create("/q/n_", sequential=True)]
        )
        assert [first, second, third] == ["/q/n_0000000000", "/q/n_0000000001", "/q/n_0000000002"]

    run(open_store, scenario)


def test_sequential_numbers_continue_in_the_next_session(open_store: OpenStore) -> None:
    async def scenario() -> None:
        store = await open_store()
        await store.create("/q")
        await store.delete(await store.create("/q/n_", sequential=True))
        await store.close()
        again = await open_store()
        assert await again.create("/q/n_", sequential=True) == "/q/n_0000000001"
        await again.close()

    asyncio.run(scenario())


def test_ephemeral_nodes_end_with_their_session_and_others_stay(open_store: OpenStore) -> None:
    async def scenario() -> None:
        store = await open_store()
        await store.create("/ids")
        await store.create("/ids/1", b"here", ephemeral=True)
        assert (await store.get("/ids/1")).ephemeral_owner == store.session_id
        with pytest.raises(NoChildrenForEphemerals):
            await store.create("/ids/1/child")
        await store.close()
        again = await open_store()
        assert await again.exists("/ids/1") is None
        assert await again.exists("/ids") is not None
        await again.close()

    asyncio.run(scenario())


def test_a_closed_session_refuses_everything(open_store: OpenStore) -> None:
    async def scenario() -> None:
        store = await open_store()
        await store.close()
        await store.close()
        with pytest.raises(SessionExpired):
            await store.get("/")
        with pytest.raises(SessionExpired):
            await store.create("/a")

    asyncio.run(scenario())


def test_a_watch_reports_every_change_below_it_in_order_until_it_is_cancelled(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        heard: list[Event] = []
        await store.create("/t")
        cancel = store.watch("/t", heard.append)
        await store.create("/other")
        await store.multi([Create("/t/a"), Create("/t/a/b")])
        await store.set("/t", b"x")
        await store.delete("/t/a/b")
        await store.create("/tail")
        cancel()
        await store.delete("/t/a")
        assert heard == [
            Event(EventKind.CREATED, "/t/a"),
            Event(EventKind.CREATED, "/t/a/b"),
            Event(EventKind.CHANGED, "/t"),
            Event(EventKind.DELETED, "/t/a/b"),
        ]

    run(open_store, scenario)


def test_a_change_can_be_read_when_a_watch_reports_it(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        reads: list[asyncio.Task[object]] = []
        store.watch("/", lambda event: reads.append(asyncio.ensure_future(store.get(event.path))))
        await store.create("/a", b"x")
        [node] = await asyncio.gather(*reads)
        assert node == await store.get("/a")

    run(open_store, scenario)


def test_a_read_shows_no_change_before_the_events_of_its_transaction(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/t"), Create("/t/a"), Create("/t/b")])
        heard: list[str] = []
        store.watch("/t", lambda event: heard.append(event.path))
        write = asyncio.ensure_future(store.multi([SetData("/t/b", b"x"), SetData("/t", b"x")]))
        while True:
            [node] = await store.get_many(["/t/b"])
            if node is not None and node.data:
                break
            await asyncio.sleep(0)
        assert heard == ["/t/b", "/t"]
        await write

    run(open_store, scenario)


def test_one_of_several_racing_compare_and_sets_wins(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"0")
        results = await asyncio.gather(
            *(store.set("/a", str(i).encode(), version=0) for i in range(8)), return_exceptions=True
        )
        assert sum(isinstance(result, int) for result in results) == 1
        assert sum(isinstance(result, BadVersion) for result in results) == 7

    run(open_store, scenario)


def test_many_nodes_are_read_at_once_in_the_requested_order(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"one"), Create("/a/y"), Create("/a/x", b"two")])
        nodes = await store.get_many(["/a/x", "/none", "/a"])
        assert nodes == [await store.get("/a/x"), None, await store.get("/a")]
        assert await store.children_many(["/a", "/none", "/a/x"]) == [["x", "y"], None, []]
        assert await store.get_many([]) == [] == await store.children_many([])

    run(open_store, scenario)


def test_a_live_session_is_not_renewed_and_a_closed_one_cannot_be(open_store: OpenStore) -> None:
    async def scenario() -> None:
        store = await open_store()
        heard: list[SessionState] = []
        store.watch_session(heard.append)
        session_id = store.session_id
        await store.renew()
        assert (store.session_id, store.session_state) == (session_id, SessionState.CONNECTED)
        await store.close()
        assert store.session_state is SessionState.EXPIRED
        with pytest.raises(SessionExpired):
            await store.renew()
        assert heard == []

    asyncio.run(scenario())
