"""Changes of the cluster on a store in memory: writes, refusals, and a change of the controller in between."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from felice.config import BrokerConfig
from felice.controller import cluster_admin, deletion, leaderships, writing
from felice.controller.cluster_admin import ClusterAdmin
from felice.controller.duties import TopicChange, state_change
from felice.controller.leaderships import Leaderships
from felice.controller.producer_id_blocks import ProducerIdBlocks
from felice.controller.topic_plans import NewTopic
from felice.controller.writing import write_decisions
from felice.metadata import Create, Delete, EventKind, identity, layout
from felice.metadata.layout import BrokerNode, Endpoint, StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.store import Operation, StoreError
from felice.metadata.tree import Change
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode
from waiting import LIMIT_S


class Fixture:
    """Changes of a cluster of `brokers` registered brokers."""

    def __init__(self, ensemble: MemoryEnsemble, store: MemoryStore) -> None:
        self.ensemble = ensemble
        self.store = store
        self.config = BrokerConfig.parse({"num.partitions": "2"})[0]
        self.watcher = Watcher(store, lambda old, new: None)
        self.admin = ClusterAdmin(store, self.watcher, random.Random(7), lambda: self.config)


def run(scenario: Callable[[Fixture], Awaitable[None]], brokers: int = 1) -> None:
    async def whole() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        for broker_id in range(1, brokers + 1):
            node = BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, None, 0)
            await store.create(layout.broker_path(broker_id), layout.encode_broker(node), ephemeral=True)
        fixture = Fixture(ensemble, store)
        await store.create(layout.CONTROLLER_EPOCH, b"1")
        await fixture.watcher.start()
        await scenario(fixture)
        await fixture.watcher.stop()

    asyncio.run(whole())


def without_records(ensemble: MemoryEnsemble) -> list[str]:
    """The paths of all nodes but deletion records, which wait for the brokers that have the logs."""
    return [path for path, _, _ in ensemble.tree.walk() if not path.startswith(f"{layout.DELETED_TOPICS}/")]


async def _replace(f: Fixture, name: str) -> uuid.UUID:
    """Replaces a topic of one partition by one of two, without a watch event."""
    successor = uuid.uuid4()
    await f.store.multi(
        [
            Delete(layout.state_path(name, 0)),
            Delete(layout.topic_path(name) + "/partitions/0"),
            Delete(layout.topic_path(name) + "/partitions"),
            *identity.unmade(name, f.watcher.image.topics[name].topic_id),
            Delete(layout.topic_path(name)),
            Create(
                layout.topic_path(name),
                layout.encode_topic(TopicNode(successor, {0: (1,), 1: (1,)}, {}, {})),
            ),
            *identity.made(name, successor),
            Create(layout.topic_path(name) + "/partitions"),
            Create(layout.topic_path(name) + "/partitions/0"),
            Create(layout.topic_path(name) + "/partitions/1"),
        ]
    )
    return successor


async def expect(awaitable: Awaitable[object], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as error:
        await awaitable
    assert error.value.code == code, error.value


def test_a_created_topic_is_in_the_image_with_leaders_when_the_call_returns() -> None:
    async def scenario(f: Fixture) -> None:
        planned = await f.admin.create_topic(NewTopic("orders", configs={"retention.ms": "5"}))
        topic = f.watcher.image.topics["orders"]
        assert topic.topic_id == planned.topic_id
        assert [(p.leader, p.leader_epoch, p.isr) for p in topic.partitions] == [(1, 0, (1,))] * 2
        assert f.watcher.image.topic_configs["orders"] == {"retention.ms": "5"}

    run(scenario)


def test_impossible_topics_are_refused_with_kafkas_codes() -> None:
    async def scenario(f: Fixture) -> None:
        create = f.admin.create_topic
        await create(NewTopic("a.b"))
        await expect(create(NewTopic("a.b")), ErrorCode.TOPIC_ALREADY_EXISTS)
        await expect(create(NewTopic("a_b")), ErrorCode.INVALID_TOPIC_EXCEPTION)
        await expect(create(NewTopic("a b")), ErrorCode.INVALID_TOPIC_EXCEPTION)
        await expect(create(NewTopic("c", 0)), ErrorCode.INVALID_PARTITIONS)
        await expect(create(NewTopic("c", 10_001)), ErrorCode.INVALID_PARTITIONS)
        await expect(create(NewTopic("c", 1, 0)), ErrorCode.INVALID_REPLICATION_FACTOR)
        await expect(create(NewTopic("c", 1, 2)), ErrorCode.INVALID_REPLICATION_FACTOR)
        await expect(create(NewTopic("c", assignment={0: (9,)})), ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        await expect(create(NewTopic("c", 1, assignment={0: (1,)})), ErrorCode.INVALID_REQUEST)
        await expect(create(NewTopic("c", configs={"retention.ms": "x"})), ErrorCode.INVALID_CONFIG)
        await expect(create(NewTopic("c", configs={"no.such": "x"})), ErrorCode.INVALID_CONFIG)
        await expect(create(NewTopic("c", configs={"retention.ms": None})), ErrorCode.INVALID_CONFIG)
        assert list(f.watcher.image.topics) == ["a.b"]

    run(scenario)


def test_validate_only_checks_everything_and_writes_nothing() -> None:
    async def scenario(f: Fixture) -> None:
        before = f.ensemble.tree.zxid
        planned = await f.admin.create_topic(NewTopic("a", 3), validate_only=True)
        assert len(planned.partitions) == 3
        await expect(f.admin.create_topic(NewTopic("a", 0), validate_only=True), ErrorCode.INVALID_PARTITIONS)
        assert f.ensemble.tree.zxid == before

    run(scenario)


def test_concurrent_creations_of_one_name_create_one_topic() -> None:
    async def scenario(f: Fixture) -> None:
        wishes = [f.admin.create_topic(NewTopic("same")) for _ in range(4)]
        results = await asyncio.gather(*wishes, return_exceptions=True)
        errors = [result for result in results if isinstance(result, ApiError)]
        assert [error.code for error in errors] == [ErrorCode.TOPIC_ALREADY_EXISTS] * 3

    run(scenario)


def test_a_deleted_topic_leaves_nothing_and_comes_back_under_another_id() -> None:
    async def scenario(f: Fixture) -> None:
        before = [path for path, _, _ in f.ensemble.tree.walk()]
        first = await f.admin.create_topic(NewTopic("a", configs={"retention.ms": "5"}))
        await f.admin.delete_topic("a")
        assert without_records(f.ensemble) == before
        await expect(f.admin.delete_topic("a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        second = await f.admin.create_topic(NewTopic("a"))
        assert first.topic_id != second.topic_id
        assert f.watcher.image.topic_configs["a"] == {}

    run(scenario)


def test_partitions_are_added_and_never_taken() -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", 2))
        grow = f.admin.create_partitions
        await grow("a", 5, None, validate_only=True)
        assert len(f.watcher.image.topics["a"].partitions) == 2
        await grow("a", 5, None)
        assert [p.leader for p in f.watcher.image.topics["a"].partitions] == [1] * 5
        for count in (5, 4, 10_001):
            await expect(grow("a", count, None), ErrorCode.INVALID_PARTITIONS)
        await expect(grow("a", 7, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        await expect(grow("a", 6, [[9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        await expect(grow("b", 6, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await grow("a", 6, [[1]])

    run(scenario)


def test_partitions_added_at_once_are_decided_one_after_the_other() -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", 2))
        grow = f.admin.create_partitions
        await asyncio.gather(grow("a", 3, None), grow("a", 5, None))
        assert len(f.watcher.image.topics["a"].partitions) == 5
        results = await asyncio.gather(grow("a", 8, None), grow("a", 7, None), return_exceptions=True)
        assert [getattr(result, "code", None) for result in results] == [None, ErrorCode.INVALID_PARTITIONS]

    run(scenario)


def test_a_topic_that_is_being_deleted_takes_no_configuration() -> None:
    """Otherwise the configuration would stay, and apply to the next topic of that name."""

    async def scenario(f: Fixture) -> None:
        before = [path for path, _, _ in f.ensemble.tree.walk()]
        await f.admin.create_topic(NewTopic("a", 2))
        results = await asyncio.gather(
            f.admin.delete_topic("a"),
            f.admin.change_topic_config("a", lambda old: {"retention.ms": "7"}),
            f.admin.create_partitions("a", 5, None),
            f.admin.delete_topic("a"),
            return_exceptions=True,
        )
        codes = [getattr(result, "code", None) for result in results]
        assert codes == [None, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3]
        assert without_records(f.ensemble) == before

    run(scenario)


def test_a_late_deletion_spares_a_new_topic_of_the_same_name() -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", 1))
        topic = f.watcher.image.topics["a"]
        # The image is old; in the store a larger topic has taken the name.
        successor = await _replace(f, "a")
        await expect(f.admin.delete_topic("a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert f.watcher.image.topics["a"].topic_id == successor != topic.topic_id

    run(scenario)


def test_a_plan_made_under_a_replaced_controller_is_made_again() -> None:
    async def scenario(f: Fixture) -> None:
        f.ensemble.write([Change(EventKind.CHANGED, layout.CONTROLLER_EPOCH, b"99")])  # the image is old
        await f.admin.create_topic(NewTopic("a"))
        state = layout.decode_state((await f.store.get(layout.state_path("a", 0))).data)
        assert state.controller_epoch == 99

    run(scenario)


def test_a_plan_is_written_only_under_the_controller_of_its_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The image may show the next controller between the plan and its write."""

    async def scenario(f: Fixture) -> None:
        exists, asked = f.store.exists, []

        async def slowly(path: str) -> Any:
            asked.append(path)
            if len(asked) == 1:
                f.ensemble.write([Change(EventKind.CHANGED, layout.CONTROLLER_EPOCH, b"99")])
                assert await f.watcher.wait_until(lambda image: image.controller_epoch == 99, LIMIT_S)
            return await exists(path)

        monkeypatch.setattr(f.store, "exists", slowly)
        await f.admin.create_topic(NewTopic("a"))
        assert asked == [layout.topic_config_path("a")] * 2
        state = layout.decode_state((await f.store.get(layout.state_path("a", 0))).data)
        assert state.controller_epoch == 99

    run(scenario)


def test_a_broker_without_a_session_changes_nothing_and_says_so() -> None:
    async def scenario(f: Fixture) -> None:
        f.ensemble.expire(f.store.session_id)
        await expect(f.admin.create_topic(NewTopic("a")), ErrorCode.NOT_CONTROLLER)

    run(scenario)


def test_reassignments_requested_together_all_begin() -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", assignment={0: (1,), 1: (1,)}))
        moves = Leaderships(f.store, f.watcher)
        found = await asyncio.gather(
            moves.reassign("a", {0: [2]}, may_change_factor=True),
            moves.reassign("a", {1: [3, 1]}, may_change_factor=True),
        )
        assert found == [{0: None}, {1: None}]
        rows = f.watcher.image.topics["a"].partitions
        assert [(row.adding, row.removing) for row in rows] == [((2,), (1,)), ((3,), ())]

    run(scenario, brokers=3)


class Restless:
    """A store in which another program writes the topics' and partitions' nodes before each write of the broker."""

    def __init__(self, store: MemoryStore, *paths: str) -> None:
        self._store = store
        self._paths = paths
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, operations: Any) -> Any:
        self.writes += 1
        for path in self._paths:
            await self._store.set(path, (await self._store.get(path)).data)
        return await self._store.multi(operations)


def test_repeated_version_conflicts_are_reported_for_each_partition() -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", assignment={0: (1, 2), 1: (2, 1)}))
        moving = Restless(f.store, layout.topic_path("a"))
        moves = {0: [2, 1], 9: [1]}
        found = await Leaderships(moving, f.watcher).reassign("a", moves, may_change_factor=True)  # type: ignore[arg-type]
        assert {index: error.code for index, error in found.items() if error} == {
            0: ErrorCode.REQUEST_TIMED_OUT,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert 1 < moving.writes < 100
        state = layout.encode_state(StateNode(2, 1, 1, (1, 2)))
        await f.store.set(layout.state_path("a", 0), state)
        await f.watcher.wait_until(lambda image: image.topics["a"].partitions[0].leader == 2, LIMIT_S)
        electing = Restless(f.store, layout.state_path("a", 0))
        outcome = await Leaderships(electing, f.watcher).elect([("a", 0), ("a", 1)], is_unclean=False)  # type: ignore[arg-type]
        assert {key: error.code for key, error in outcome.items() if error} == {
            ("a", 0): ErrorCode.REQUEST_TIMED_OUT,
            ("a", 1): ErrorCode.ELECTION_NOT_NEEDED,
        }
        assert 1 < electing.writes < 100

    run(scenario, brokers=2)


def test_a_topic_that_is_being_reassigned_gets_no_new_partitions() -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", assignment={0: (1,)}))
        moves = Leaderships(f.store, f.watcher)
        await moves.reassign("a", {0: [2]}, may_change_factor=True)
        await expect(f.admin.create_partitions("a", 2, None), ErrorCode.REASSIGNMENT_IN_PROGRESS)
        [failure] = (await moves.reassign("a", {0: [1, 2]}, may_change_factor=False)).values()
        assert failure is not None
        assert failure.code == ErrorCode.INVALID_REPLICATION_FACTOR
        await moves.reassign("a", {0: None}, may_change_factor=True)
        await f.admin.create_partitions("a", 2, None)

    run(scenario, brokers=2)


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    async def scenario(f: Fixture) -> None:
        allocator = ProducerIdBlocks(f.store, 1)
        blocks = await asyncio.gather(*(allocator.allocate() for _ in range(3)))
        assert sorted(block.start for block in blocks) == [0, 1000, 2000]
        assert all(len(block) == 1000 for block in blocks)

    run(scenario)


def test_configuration_changes_are_checked_then_followed() -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a"))
        await f.admin.change_topic_config("a", lambda old: {**old, "retention.ms": "7"})
        await f.admin.change_topic_config("a", lambda old: {**old, "segment.ms": "9"})
        assert f.watcher.image.topic_configs["a"] == {"retention.ms": "7", "segment.ms": "9"}
        bad = f.admin.change_topic_config("a", lambda old: {"retention.ms": "-5"})
        await expect(bad, ErrorCode.INVALID_CONFIG)
        await f.admin.change_topic_config("a", lambda old: {}, validate_only=True)
        assert len(f.watcher.image.topic_configs["a"]) == 2
        await f.admin.change_config(
            layout.broker_config_path("<default>"), lambda old: {"max.connections": "5"}
        )
        assert f.watcher.image.broker_configs["<default>"] == {"max.connections": "5"}

    run(scenario)


def test_min_insync_above_the_replica_count_is_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def warned() -> list[str]:
        names = [record.topic for record in caplog.records if "min.insync.replicas" in record.message]  # type: ignore[attr-defined]
        caplog.clear()
        return names

    async def scenario(f: Fixture) -> None:
        two = {"partition_count": 1, "replication_factor": 2}
        hopeful = {"min.insync.replicas": "3"}
        await f.admin.create_topic(NewTopic("a", **two, configs=hopeful), validate_only=True)
        assert warned() == []
        await f.admin.create_topic(NewTopic("a", **two, configs=hopeful))
        assert warned() == ["a"]
        await f.admin.create_topic(NewTopic("b", **two, configs={"min.insync.replicas": "2"}))
        await f.admin.change_topic_config("b", lambda _: hopeful, validate_only=True)
        assert warned() == []
        await f.admin.change_topic_config("b", lambda _: hopeful)
        assert warned() == ["b"]
        assert f.watcher.image.topic_configs == {"a": hopeful, "b": hopeful}

    run(scenario, brokers=3)


def test_replicas_are_spread_over_the_brokers_alive() -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", 6, 2))
        partitions = f.watcher.image.topics["a"].partitions
        assert {p.replicas[0] for p in partitions} == {1, 2, 3}
        assert all(len(set(p.replicas)) == 2 for p in partitions)
        assert all(p.leader == p.replicas[0] and p.isr == p.replicas for p in partitions)

    run(scenario, brokers=3)


def test_a_write_that_the_store_never_accepts_is_reported_and_keeps_the_connection() -> None:
    class Narrow:
        def __init__(self, store: MemoryStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def multi(self, operations: Sequence[Operation]) -> list[Any]:
            raise StoreError(operations[0].path, "that is too much at once")

    async def scenario(f: Fixture) -> None:
        f.admin._store = Narrow(f.store)
        with pytest.raises(ApiError, match="too much at once") as refused:
            await f.admin.create_topic(NewTopic("a"))
        assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(scenario)


def test_a_large_reassignment_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaderships, "MAX_STATES_PER_TRANSACTION", 2)
    count = 5

    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", assignment=dict.fromkeys(range(count), (1,))))
        node = await f.store.get(layout.topic_path("a"))
        moves = Leaderships(f.store, f.watcher)
        outcome = await moves.reassign("a", {number: [2] for number in range(count)}, may_change_factor=True)
        assert set(outcome.values()) == {None}
        assert (await f.store.get(layout.topic_path("a"))).version == node.version + 3

    run(scenario, brokers=2)


def test_a_decision_about_a_topic_does_not_change_a_new_topic_of_its_name() -> None:
    """The new topic's nodes have version 0, which is the version that the decision names."""

    async def scenario(f: Fixture) -> None:
        first = await f.admin.create_topic(NewTopic("a", 1))
        stale = f.watcher.image.topics["a"]
        await f.admin.delete_topic("a")
        second = await f.admin.create_topic(NewTopic("a", 1))
        assert first.topic_id != second.topic_id
        before = {path: node for path, node, _ in f.ensemble.tree.walk()}
        version = f.watcher.image.controller_epoch_version
        state = state_change(stale, stale.partitions[0], StateNode(-1, 1, 1, (1,)))
        move = TopicChange("a", stale.topic_id, TopicNode(stale.topic_id, {0: (7,)}, {}, {}), 0, (state,))
        assert await write_decisions(f.store, version, [move, state]) == [move, state]
        assert {path: node for path, node, _ in f.ensemble.tree.walk()} == before

    run(scenario)


def test_a_deleted_topic_does_not_stop_decisions_about_others() -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", 1))
        await f.admin.create_topic(NewTopic("b", 1))
        topics = f.watcher.image.topics
        decisions = [
            state_change(topics[name], topics[name].partitions[0], StateNode(1, 1, 1, (1,))) for name in "ab"
        ]
        await f.admin.delete_topic("a")
        version = f.watcher.image.controller_epoch_version
        assert await write_decisions(f.store, version, decisions) == [decisions[0]]
        assert layout.decode_state((await f.store.get(layout.state_path("b", 0))).data).leader_epoch == 1

    run(scenario)


def test_decisions_with_a_version_conflict_are_returned_for_every_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(f: Fixture) -> None:
        names = ["a", "b", "c", "d", "e"]
        for name in names:
            await f.admin.create_topic(NewTopic(name, 1))
        topics = f.watcher.image.topics
        decisions = [
            state_change(topics[name], topics[name].partitions[0], StateNode(1, 7, 1, (1,))) for name in names
        ]
        for changed in ("a", "c", "e"):
            node = await f.store.get(layout.state_path(changed, 0))
            await f.store.set(layout.state_path(changed, 0), node.data)
        monkeypatch.setattr(writing, "MAX_STATES_PER_TRANSACTION", 2)
        version = f.watcher.image.controller_epoch_version
        lost = await write_decisions(f.store, version, decisions)
        assert [decision.topic for decision in lost] == ["a", "c", "e"]
        epochs = [
            layout.decode_state((await f.store.get(layout.state_path(name, 0))).data).leader_epoch
            for name in names
        ]
        assert epochs == [0, 7, 0, 7, 0]

    run(scenario)


@pytest.mark.parametrize("act", ["grow", "configure", "delete"])
def test_a_request_about_a_topic_does_not_change_a_new_topic_of_the_same_name(act: str) -> None:
    async def scenario(f: Fixture) -> None:
        await f.admin.create_topic(NewTopic("a", 1))
        successor = await _replace(f, "a")
        before = {path: node for path, node, _ in f.ensemble.tree.walk() if path.startswith("/brokers")}
        if act == "grow":
            await expect(f.admin.create_partitions("a", 2, None), ErrorCode.INVALID_PARTITIONS)
        elif act == "configure":
            change = f.admin.change_topic_config("a", lambda old: {"retention.ms": "7"})
            await expect(change, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            await expect(f.admin.delete_topic("a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert {
            path: node for path, node, _ in f.ensemble.tree.walk() if path.startswith("/brokers")
        } == before
        assert layout.decode_topic((await f.store.get(layout.topic_path("a"))).data).topic_id == successor

    run(scenario)


@pytest.mark.parametrize("act", ["grow", "configure", "delete"])
def test_a_topic_created_without_an_id_node_works_like_any_other(act: str) -> None:
    async def scenario(f: Fixture) -> None:
        planned = await f.admin.create_topic(NewTopic("a", 1))
        await f.store.multi(identity.unmade("a", planned.topic_id))
        if act == "grow":
            await f.admin.create_partitions("a", 2, None)
            assert len(f.watcher.image.topics["a"].partitions) == 2
        elif act == "configure":
            await f.admin.change_topic_config("a", lambda old: {"retention.ms": "7"})
            assert f.watcher.image.topic_configs["a"] == {"retention.ms": "7"}
        else:
            await f.admin.delete_topic("a")
            assert await f.store.children(layout.TOPICS) == []

    run(scenario)


def test_a_large_topic_that_changes_while_its_deletion_begins_is_deleted_completely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(f: Fixture) -> None:
        planned = await f.admin.create_topic(NewTopic("a", 1))
        monkeypatch.setattr(cluster_admin, "MAX_STATES_PER_TRANSACTION", 0)
        node = await f.store.get(layout.topic_path("a"))
        deleting = asyncio.ensure_future(f.admin.delete_topic("a"))
        # This happens when a reassignment ends: the image is old.
        await f.store.set(layout.topic_path("a"), node.data)
        assert f.watcher.image.topics["a"].version == node.version
        assert await f.watcher.wait_until(lambda image: "a" in image.pending_deletions, LIMIT_S)
        version = f.watcher.image.controller_epoch_version
        await deletion.finish(f.store, version, "a", planned.topic_id)
        await deleting
        assert await f.store.children(layout.TOPICS) == []

    run(scenario)
