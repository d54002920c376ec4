"""The watcher: how changes of the store reach the image."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from felice.controller import deletion
from felice.metadata import ClusterImage, Create, StoreUnavailable, identity, image_paths, layout
from felice.metadata import watcher as watcher_module
from felice.metadata.image import ImageBuilder
from felice.metadata.layout import BrokerNode, StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.store import Delete, Node, NotAllowed, Operation, SetData
from felice.metadata.watcher import Watcher
from felice.security.acl import Acl, PatternType, Permission, ResourcePattern, ResourceType
from felice.security.acl import Operation as AclOperation
from waiting import LIMIT_S, let_run


def _topic(number: int) -> bytes:
    return layout.encode_topic(TopicNode(UUID(int=number), {0: (1,)}, {}, {}))


def test_an_exception_while_following_one_image_does_not_lose_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[list[str]] = []

    def follow(old: ClusterImage, new: ClusterImage) -> None:
        seen.append(sorted(new.topics))
        if "bad" in new.topics and "bad" not in old.topics:
            # Another change happens before the exception is raised.
            ensemble.write(ensemble.tree.plan([Create("/brokers/topics/late", _topic(1))], 0)[0])
            raise RuntimeError("a fault")

    ensemble = MemoryEnsemble()

    async def scenario() -> None:
        store = ensemble.connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        watcher = Watcher(store, follow)
        await watcher.start()
        await store.create("/brokers/topics/bad", _topic(2))
        assert await watcher.wait_until(lambda image: "late" in image.topics, LIMIT_S)
        await watcher.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert seen == [["bad"], ["bad", "late"]]
    assert "a fault" in caplog.text


class FailingStore:
    """A store that refuses reads while the test says so, and always for some paths."""

    def __init__(self, store: MemoryStore) -> None:
        self.failures = 0
        self.kept_from_us = ""
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("/", "no answer")
        if self.kept_from_us in paths:
            raise NotAllowed(self.kept_from_us, "not yours")
        return await self._store.get_many(paths)


@pytest.mark.parametrize("failures", [1, 3])
def test_a_read_that_failed_is_tried_again_and_no_change_is_lost(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "_RETRY_S", 0.001)

    async def scenario() -> None:
        store = FailingStore(MemoryEnsemble().connect())
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        watcher = Watcher(store, lambda old, new: None)
        await watcher.start()
        store.failures = failures
        await store.create("/brokers/topics/a", _topic(3))
        assert await watcher.wait_until(lambda image: "a" in image.topics, LIMIT_S)
        await watcher.stop()

    asyncio.run(scenario())


async def test_a_stop_does_not_wait_for_a_store_that_gives_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "_RETRY_S", 0.001)
    store = FailingStore(MemoryEnsemble().connect())
    await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
    watcher = Watcher(store, lambda old, new: None)
    await watcher.start()
    store.failures = failures = 1_000_000
    await store.create("/brokers/topics/a", _topic(3))
    while store.failures == failures:
        await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT_S):
        await watcher.stop()


async def test_a_watcher_that_did_not_start_has_nothing_to_catch_up_with() -> None:
    assert await Watcher(MemoryEnsemble().connect(), lambda old, new: None).catch_up(60)


def test_nodes_of_other_programs_are_not_read() -> None:
    """An ensemble without a chroot may hold many nodes of other programs."""

    async def scenario() -> None:
        store = FailingStore(MemoryEnsemble().connect())
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await store.create("/others")
        store.kept_from_us = "/others/secret"
        await store.create("/others/secret")
        watcher = Watcher(store, lambda old, new: None)
        await watcher.start()
        await store.set("/others/secret", b"changed")
        await store.create("/brokers/topics/a", _topic(3))
        assert await watcher.wait_until(lambda image: "a" in image.topics, LIMIT_S)
        await watcher.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("after_turns", range(0, 40, 2))
def test_changes_during_the_first_read_of_the_store_are_in_the_image(after_turns: int) -> None:
    """This happens when a broker registers while another one starts."""
    broker = layout.encode_broker(BrokerNode((), {}, None, 0))

    async def travel(_: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def scenario() -> None:
        ensemble = MemoryEnsemble(travel)
        store = ensemble.connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await store.create(layout.broker_path(5), broker)
        watcher = Watcher(store, lambda old, new: None)
        starting = asyncio.create_task(watcher.start())
        for _ in range(after_turns):
            await asyncio.sleep(0)
        ensemble.write(ensemble.tree.plan([Create(layout.broker_path(7), broker)], 0)[0])
        await starting
        assert await watcher.wait_until(lambda image: image.brokers.keys() == {5, 7}, LIMIT_S)
        await let_run()
        assert watcher.image.brokers.keys() == {5, 7}
        await watcher.stop()

    asyncio.run(scenario())


def test_an_image_is_shown_after_its_preparation_and_later_changes_are_in_the_next_image() -> None:
    steps: list[str] = []

    async def scenario() -> None:
        store = MemoryEnsemble().connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])

        async def prepare(image: ClusterImage) -> None:
            steps.append(f"prepare {sorted(image.topics)}")
            if list(image.topics) == ["a"]:
                await store.create("/brokers/topics/b", _topic(4))
                raise RuntimeError("a fault that costs no image")

        watcher = Watcher(store, lambda old, new: steps.append(f"show {sorted(new.topics)}"), prepare)
        await watcher.start()
        await store.create("/brokers/topics/a", _topic(3))
        assert await watcher.wait_until(lambda image: "b" in image.topics, LIMIT_S)
        await watcher.stop()

    asyncio.run(scenario())
    assert steps == ["prepare ['a']", "show ['a']", "prepare ['a', 'b']", "show ['a', 'b']"]


def test_a_topic_is_read_again_with_its_id_node() -> None:
    async def scenario() -> None:
        store = MemoryEnsemble().connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await store.create("/brokers/topics/a", _topic(1))
        watcher = Watcher(store, lambda old, new: None)
        await watcher.start()
        assert watcher.image.topics["a"].topic_id == UUID(int=1)
        await store.multi(identity.made("a", UUID(int=2)))
        assert await watcher.wait_until(lambda image: image.topics["a"].topic_id == UUID(int=2), LIMIT_S)
        assert list(watcher.image.topic_faults) == ["a"]
        await store.multi(identity.unmade("a", UUID(int=2)))
        assert await watcher.wait_until(lambda image: image.topics["a"].topic_id == UUID(int=1), LIMIT_S)
        assert not watcher.image.topic_faults
        await watcher.stop()

    asyncio.run(scenario())


def test_a_pending_deletion_is_never_taken_for_a_damaged_topic() -> None:
    """This holds whichever events of the write have arrived when the nodes are read."""

    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await store.multi([Create("/brokers/topics/a", _topic(1)), *identity.made("a", UUID(int=1))])
        watcher = Watcher(store, lambda old, new: None)
        await watcher.start()
        await watcher.stop()
        topic = watcher.image.topics["a"]
        changes, _ = ensemble.tree.plan(deletion.begun(topic), 0)
        ensemble.write(changes)
        paths = [change.path for change in changes]
        for count in range(1, len(paths) + 1):
            builder = ImageBuilder(watcher.image)
            for path in sorted(
                {*paths[:count], "/brokers/topics/a"}, key=lambda path: (path.count("/") < 5, path)
            ):
                builder.put(path, ensemble.tree.find(path))
            image = builder.build()
            assert not image.topic_faults, paths[:count]
        assert image.pending_deletions == {"a": UUID(int=1)}

    asyncio.run(scenario())


class SuddenStore:
    """A store in which a topic is replaced by another of its name after `at` further nodes were read."""

    def __init__(self, store: MemoryStore, writer: MemoryStore) -> None:
        self.at = -1
        self._store = store
        self._writer = writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes = []
        for path in paths:
            await self._replace_if_due()
            nodes += await self._store.get_many([path])
            self.at -= 1
        await self._replace_if_due()
        return nodes

    async def _replace_if_due(self) -> None:
        if self.at == 0:
            await self._writer.multi([*_without_topic(1, led_by=4), *_with_topic(2, led_by=2)])
            self.at = -1


def _with_topic(number: int, led_by: int) -> list[Operation]:
    topic_id = UUID(int=number)
    return [
        Create(layout.topic_path("a"), layout.encode_topic(TopicNode(topic_id, {0: (2, 4)}, {}, {}))),
        *identity.made("a", topic_id),
        Create(layout.partitions_path("a")),
        Create(layout.partition_path("a", 0)),
        Create(layout.state_path("a", 0), layout.encode_state(StateNode(led_by, 0, 1, (2, 4)))),
    ]


def _without_topic(number: int, led_by: int) -> list[Operation]:
    created = [one.path for one in _with_topic(number, led_by) if isinstance(one, Create)]
    return [Delete(path) for path in reversed(created)]


@pytest.mark.parametrize(
    ("at", "is_topic_changed"), [(0, False), (1, False), (0, True), (1, True), (2, True)]
)
def test_no_topic_is_shown_with_the_leader_of_another_topic_of_its_name(
    at: int, is_topic_changed: bool
) -> None:
    """Node versions begin at 0 again, and so do leader epochs: two brokers would lead one partition in one epoch."""
    leaders: set[tuple[UUID, int]] = set()

    def follow(old: ClusterImage, new: ClusterImage) -> None:
        leaders.update(
            (topic.topic_id, partition.leader)
            for topic in new.topics.values()
            for partition in topic.partitions
            if partition.leader >= 0
        )

    async def scenario() -> None:
        ensemble = MemoryEnsemble()
        writer = ensemble.connect()
        await writer.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await writer.multi(_with_topic(1, led_by=4))
        store = SuddenStore(ensemble.connect(), writer)
        watcher = Watcher(store, follow)
        await watcher.start()
        store.at = at
        state = SetData(layout.state_path("a", 0), layout.encode_state(StateNode(4, 0, 1, (4,))))
        node = await writer.get(layout.topic_path("a"))
        await writer.multi(
            [SetData(layout.topic_path("a"), node.data), state] if is_topic_changed else [state]
        )
        assert await watcher.wait_until(lambda image: UUID(int=2) in image.topic_names, LIMIT_S)
        assert await watcher.catch_up(1.0)
        await watcher.stop()

    asyncio.run(scenario())
    assert leaders == {(UUID(int=1), 4), (UUID(int=2), 2)}


def _states(topic: str, count: int, number: int = 1) -> list[Operation]:
    replicas = dict.fromkeys(range(count), (1,))
    node = layout.encode_topic(TopicNode(UUID(int=number), replicas, {}, {}))
    creates = [Create(layout.topic_path(topic), node), Create(layout.partitions_path(topic))]
    creates += [one for one in identity.made(topic, UUID(int=number)) if isinstance(one, Create)]
    state = layout.encode_state(StateNode(leader=1, leader_epoch=0, isr=(1,), controller_epoch=1))
    for index in range(count):
        creates += [
            Create(layout.partition_path(topic, index)),
            Create(layout.state_path(topic, index), state),
        ]
    return list(creates)


@pytest.mark.parametrize(("topics", "partitions"), [(1, 3100), (150, 30)])
def test_other_work_runs_while_a_large_cluster_is_read(
    monkeypatch: pytest.MonkeyPatch, topics: int, partitions: int
) -> None:
    put, puts_a_turn = watcher_module._put, [0]
    build, left_to_the_last_turn = ImageBuilder.build, 0

    def noted(builder: ImageBuilder) -> ClusterImage:
        nonlocal left_to_the_last_turn
        left_to_the_last_turn += len(builder._partitions)
        return build(builder)

    def counted(builder: ImageBuilder, path: str, node: Node | None) -> None:
        puts_a_turn[-1] += 1
        put(builder, path, node)

    async def note_turns() -> None:
        while True:
            await asyncio.sleep(0)
            puts_a_turn.append(0)

    async def scenario() -> ClusterImage:
        store = MemoryEnsemble().connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        for number in range(topics):
            await store.multi(_states(f"topic-{number}", partitions, number + 1))
        watcher = Watcher(store, lambda old, new: None)
        turns = asyncio.create_task(note_turns())
        await watcher.start()
        turns.cancel()
        await watcher.stop()
        return watcher.image

    monkeypatch.setattr(watcher_module, "_put", counted)
    monkeypatch.setattr(ImageBuilder, "build", noted)
    image = asyncio.run(scenario())
    assert left_to_the_last_turn == 0
    assert [len(topic.partitions) for topic in image.topics.values()] == [partitions] * topics
    assert sum(puts_a_turn) > 3000
    assert max(puts_a_turn) <= watcher_module.NODES_A_TURN


def test_a_partitions_state_leaves_the_topics_names_as_they_are() -> None:
    async def scenario() -> tuple[ClusterImage, ClusterImage]:
        store = MemoryEnsemble().connect()
        await store.multi([*(Create(path) for path in layout.PERSISTENT_PATHS), *_states("topic", 2)])
        watcher = Watcher(store, lambda old, new: None)
        await watcher.start()
        before = watcher.image
        await store.set(
            layout.state_path("topic", 1),
            layout.encode_state(StateNode(leader=-1, leader_epoch=1, isr=(1,), controller_epoch=1)),
        )
        assert await watcher.wait_until(lambda image: image is not before, LIMIT_S)
        await watcher.stop()
        return before, watcher.image

    before, after = asyncio.run(scenario())
    # A cluster may have thousands of topics, and a change of a state must not cost work for each of them.
    assert after.topic_names is before.topic_names
    changed = after.partition("topic", 1)
    assert changed is not None and changed.leader == -1


class WatchedReads:
    """A store that notes what is read; `before_answer` runs once, between the next read and its answer."""

    def __init__(self, store: MemoryStore) -> None:
        self.read: list[str] = []
        self.asked_for_children: list[str] = []
        self.before_answer: Callable[[], Awaitable[object]] | None = None
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self.read += paths
        act, self.before_answer = self.before_answer, None
        if act is not None:
            await act()
        return await self._store.get_many(paths)

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        self.asked_for_children += paths
        return await self._store.children_many(paths)


def _led_by(leader: int) -> bytes:
    return layout.encode_state(StateNode(leader, 1, 1, (1,)))


def _watched(scenario: Callable[[MemoryEnsemble, WatchedReads, Watcher], Awaitable[None]]) -> None:
    """Runs the scenario with the topic `t` of three partitions; the store has noted no reads yet."""

    async def run() -> None:
        ensemble = MemoryEnsemble()
        store = WatchedReads(ensemble.connect())
        await store.multi([*(Create(path) for path in layout.PERSISTENT_PATHS), *_states("t", 3)])
        watcher = Watcher(store, lambda old, new: None)
        await watcher.start()
        store.read.clear()
        store.asked_for_children.clear()
        await scenario(ensemble, store, watcher)
        await watcher.stop()

    asyncio.run(run())


async def _reconnect(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
    ensemble.suspend(store.session_id)
    ensemble.resume(store.session_id)
    assert await watcher.catch_up(60)


def test_after_lost_events_each_partition_costs_one_read() -> None:
    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        await _reconnect(ensemble, store, watcher)
        assert sorted(path for path in store.read if path.startswith(f"{layout.topic_path('t')}/")) == [
            *(layout.state_path("t", partition) for partition in range(3)),
            layout.topic_id_path("t", UUID(int=1)),
        ]
        assert store.read.count(layout.topic_path("t")) == 1
        assert sorted(path for path in store.asked_for_children if image_paths.topic_of(path)) == [
            layout.partitions_path("t"),
            layout.identity_path("t"),
        ]

    _watched(scenario)


def test_what_did_not_change_while_events_were_lost_is_the_same_object() -> None:
    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        await store.multi(_states("other", 2, number=2))
        assert await watcher.catch_up(60)
        before = watcher.image
        await _reconnect(ensemble, store, watcher)
        assert watcher.image is before
        ensemble.suspend(store.session_id)
        ensemble.write(ensemble.tree.plan([SetData(layout.state_path("other", 1), _led_by(-1))], 0)[0])
        ensemble.resume(store.session_id)
        assert await watcher.catch_up(60)
        assert watcher.image.topics["t"] is before.topics["t"]
        changed = watcher.image.partition("other", 1)
        assert changed is not None and changed.leader == -1

    _watched(scenario)


def test_a_partition_without_a_state_keeps_its_reassignment_after_lost_events() -> None:
    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        node = TopicNode(UUID(int=9), {0: (1, 2)}, {0: (2,)}, {0: (1,)})
        await store.create(layout.topic_path("new"), layout.encode_topic(node))
        await store.multi([Create(layout.partitions_path("new")), Create(layout.partition_path("new", 0))])
        assert await watcher.catch_up(60)
        await _reconnect(ensemble, store, watcher)
        partition = watcher.image.partition("new", 0)
        assert partition is not None
        assert (partition.adding, partition.removing) == ((2,), (1,))

    _watched(scenario)


def test_a_changed_state_is_read_without_its_topics_node() -> None:
    """The node of a topic with 10,000 partitions has 150 kB, and each broker reads each change."""

    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        await store.set(layout.state_path("t", 2), _led_by(-1))
        assert await watcher.catch_up(60)
        assert store.read == [layout.state_path("t", 2)]
        changed = watcher.image.partition("t", 2)
        assert changed is not None and changed.leader == -1

    _watched(scenario)


def test_the_topics_node_is_read_with_a_state_that_is_not_the_known_one() -> None:
    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        path = layout.state_path("t", 2)
        await store.multi([Delete(path), Create(path, _led_by(1))])
        assert await watcher.catch_up(60)
        assert store.read == [path, layout.topic_path("t")]

    _watched(scenario)


async def _shrink(store: WatchedReads) -> bytes:
    """A tool writes a node of one partition for the topic `t`. Returns the node as it was."""
    node: Node = await store.get(layout.topic_path("t"))
    shrunk = TopicNode(UUID(int=1), {0: (1,)}, {}, {})
    await store.set(layout.topic_path("t"), layout.encode_topic(shrunk))
    return node.data


def test_states_of_partitions_that_an_operator_restored_are_read_with_the_topics_node() -> None:
    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        whole = await _shrink(store)
        started_later = Watcher(store, lambda old, new: None)  # type: ignore[arg-type]
        await started_later.start()
        assert len(started_later.image.topics["t"].partitions) == 1
        await store.set(layout.topic_path("t"), whole)
        assert await started_later.catch_up(60)
        assert [one.leader for one in started_later.image.topics["t"].partitions] == [1, 1, 1]
        await started_later.stop()

    _watched(scenario)


@pytest.mark.parametrize("reads", [1, 2])
def test_the_states_of_restored_partitions_are_not_those_of_another_topic_of_the_name(reads: int) -> None:
    """The topic is deleted and recreated while the node, or then the states of the gained partitions, are read."""
    shown: set[tuple[UUID, int]] = set()

    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        whole = await _shrink(store)
        started_later = Watcher(
            store,  # type: ignore[arg-type]
            lambda old, new: shown.update(
                (topic.topic_id, one.leader) for topic in new.topics.values() for one in topic.partitions
            ),
        )
        await started_later.start()

        async def replace_the_topic() -> None:
            nonlocal reads
            reads -= 1
            if reads:
                store.before_answer = replace_the_topic
                return
            created = [one.path for one in _states("t", 3) if isinstance(one, Create)]
            led_by_2 = [SetData(layout.state_path("t", number), _led_by(2)) for number in range(3)]
            writer = ensemble.connect()
            await writer.multi([*map(Delete, reversed(created)), *_states("t", 3, number=2), *led_by_2])

        store.before_answer = replace_the_topic
        await store.set(layout.topic_path("t"), whole)
        assert await started_later.catch_up(60)
        await started_later.stop()

    _watched(scenario)
    assert shown >= {(UUID(int=1), 1), (UUID(int=2), 2)}
    assert not shown & {(UUID(int=1), 2), (UUID(int=2), 1)}


@pytest.mark.parametrize("are_events_lost", [False, True])
def test_a_deletion_that_begins_while_its_topics_node_is_read_is_not_reported_as_a_fault(
    are_events_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        node: Node = await store.get(layout.topic_path("t"))

        async def begin_the_deletion() -> None:
            begun = deletion.begun(replace(watcher.image.topics["t"], version=node.version + 1))
            if are_events_lost:
                ensemble.suspend(store.session_id)
            await ensemble.connect().multi(begun)
            if are_events_lost:
                ensemble.resume(store.session_id)

        store.before_answer = begin_the_deletion
        await store.set(layout.topic_path("t"), node.data)
        assert await watcher.catch_up(60)
        assert watcher.image.pending_deletions == {"t": UUID(int=1)}

    _watched(scenario)
    assert not caplog.records


def test_a_fault_is_reported_once_even_if_its_topic_changed_while_it_was_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        path = layout.topic_path("t")
        for repair in range(2):
            whole: Node = await store.get(path)
            store.before_answer = lambda: store.set(layout.state_path("t", 0), _led_by(-1))
            await store.set(path, b"{")
            assert await watcher.catch_up(60)
            await store.set(layout.state_path("t", 1), _led_by(-1))
            await _reconnect(ensemble, store, watcher)
            assert [record.levelname for record in caplog.records] == ["ERROR"] * (repair + 1)
            await store.set(path, whole.data)
            assert await watcher.catch_up(60)

    _watched(scenario)


def test_another_fault_of_a_topic_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        without_partitions = layout.encode_topic(TopicNode(UUID(int=1), {}, {}, {}))
        for number, data in enumerate((b"{", without_partitions), 1):
            await store.set(layout.topic_path("t"), data)
            assert await watcher.catch_up(60)
            assert len(caplog.records) == number

    _watched(scenario)
    assert "it has no partitions" in str(vars(caplog.records[1]))


def test_states_of_a_new_topic_are_not_read_before_they_exist() -> None:
    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        await store.create(layout.topic_path("new"), _topic(2))
        assert await watcher.catch_up(60)
        assert store.read == [layout.topic_path("new")]

    _watched(scenario)


Changes = list[SetData]
DuringTheRead = Callable[[MemoryEnsemble, WatchedReads, Changes], Awaitable[object]]


def _first_image_of_a_reassignment(apply: DuringTheRead) -> tuple[int, tuple[int, ...]]:
    """The leader and the replicas in the first image after one transaction that gives a partition other replicas, and
    a leader that its topic's old node does not list. `apply` writes it while an older change of the state is read.
    """
    seen: list[tuple[int, tuple[int, ...]]] = []

    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        node = TopicNode(UUID(int=1), dict.fromkeys(range(3), (1, 2)), {}, {})
        state, topic = layout.state_path("t", 0), layout.topic_path("t")
        watcher._on_image = lambda old, new: seen.extend(
            (partition.leader, partition.replicas) for partition in new.topics["t"].partitions[:1]
        )
        changes = [SetData(topic, layout.encode_topic(node)), SetData(state, _led_by(2))]
        store.before_answer = lambda: apply(ensemble, store, changes)
        await store.set(state, _led_by(-1))
        assert await watcher.catch_up(60)

    _watched(scenario)
    return seen[0]


def test_a_topics_node_that_changes_while_its_state_is_read_is_in_the_same_image() -> None:
    assert _first_image_of_a_reassignment(lambda _, store, changes: store.multi(changes)) == (2, (1, 2))


def test_a_topics_node_whose_event_was_lost_while_its_state_is_read_is_in_the_same_image() -> None:
    async def lose_the_events(ensemble: MemoryEnsemble, store: WatchedReads, changes: Changes) -> None:
        ensemble.suspend(store.session_id)
        ensemble.write(ensemble.tree.plan(changes, 0)[0])
        ensemble.resume(store.session_id)

    assert _first_image_of_a_reassignment(lose_the_events) == (2, (1, 2))


@pytest.mark.parametrize("name", ["partitions", "topic_id"])
def test_acls_of_a_resource_with_the_name_of_a_node_below_topics_are_read(name: str) -> None:
    resource = ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED)
    path = layout.acls_path(resource)
    denied = Acl("User:a", "*", AclOperation.READ, Permission.DENY)

    async def scenario(ensemble: MemoryEnsemble, store: WatchedReads, watcher: Watcher) -> None:
        parents = [layout.PREFIXED_ACLS.rpartition("/")[0], layout.PREFIXED_ACLS, path.rpartition("/")[0]]
        await store.multi([*map(Create, parents), Create(path, layout.encode_acls([denied]))])
        assert await watcher.catch_up(60)
        assert watcher.image.acls == {resource: (denied,)}
        other = Watcher(store, lambda old, new: None)  # type: ignore[arg-type]
        await other.start()
        assert other.image.acls == {resource: (denied,)}
        await other.stop()

    _watched(scenario)
