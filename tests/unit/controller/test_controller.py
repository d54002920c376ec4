"""The controller's role: elections, the loss of the role, and its duties."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest

from felice.config import BrokerConfig
from felice.controller import cluster_admin, duties
from felice.controller import controller as controller_module
from felice.controller.cluster_admin import ClusterAdmin
from felice.controller.controller import Controller
from felice.controller.topic_plans import NewTopic
from felice.env import SystemClock
from felice.metadata import ClusterImage, Create, Node, SetData, StoreUnavailable, layout
from felice.metadata.image import PartitionImage
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION, BrokerNode, Endpoint, StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.store import Operation
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.uuids import format_uuid
from waiting import LIMIT_S

FIRST_ID, SECOND_ID, NEW_ID = UUID(int=8), UUID(int=9), UUID(int=100)


class Candidate:
    def __init__(self, store: MemoryStore, broker_id: int, **options: str) -> None:
        config = BrokerConfig.parse({name.replace("_", "."): text for name, text in options.items()})[0]
        self.store = store
        self.watcher = Watcher(store, lambda old, new: self.controller.on_image())
        new_ids = map(UUID, map("{:032x}".format, itertools.count(NEW_ID.int)))
        self.controller = Controller(
            store, self.watcher, SystemClock(), broker_id, lambda: config, lambda: next(new_ids)
        )

    async def start(self) -> None:
        await self.watcher.start()
        self.controller.start()

    async def sees(self, condition: Callable[[ClusterImage], bool]) -> None:
        assert await self.watcher.wait_until(condition, LIMIT_S), self.watcher.image
        await _turns()

    async def stop(self) -> None:
        await self.controller.stop()
        await self.watcher.stop()


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(scenario: Callable[[MemoryEnsemble], Awaitable[None]]) -> None:
    async def whole() -> None:
        ensemble = MemoryEnsemble()
        admin = ensemble.connect()
        await admin.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await admin.create(layout.CONTROLLER_EPOCH, b"4")
        await scenario(ensemble)

    asyncio.run(whole())


async def _topic_led_by_the_dead(store: MemoryStore) -> None:
    """`a-0` on brokers 1 and 2, of which 1 is gone."""
    node = BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, None, 0)
    await store.create(layout.broker_path(2), layout.encode_broker(node))
    await store.multi(
        [
            Create(layout.topic_path("a"), layout.encode_topic(TopicNode(FIRST_ID, {0: (1, 2)}, {}, {}))),
            Create(layout.partitions_path("a")),
            Create(layout.partition_path("a", 0)),
            Create(layout.state_path("a", 0), layout.encode_state(StateNode(1, 0, 4, (1, 2)))),
        ]
    )


def _leader(image: ClusterImage) -> int:
    partition = image.partition("a", 0)
    return -1 if partition is None else partition.leader


def test_one_of_many_candidates_is_elected_and_does_the_duties() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        candidates = [Candidate(ensemble.connect(), broker_id) for broker_id in (1, 2, 3)]
        await asyncio.gather(*(one.start() for one in candidates))
        await candidates[0].sees(lambda image: image.controller_id > 0)
        assert sorted(one.controller.epoch for one in candidates) == [0, 0, 5]
        assert sum(one.controller.is_controller for one in candidates) == 1
        await _topic_led_by_the_dead(ensemble.connect())
        await candidates[2].sees(lambda image: _leader(image) == 2)
        for one in candidates:
            await one.stop()

    run(scenario)


def test_nothing_is_decided_twice_while_the_image_lags(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await _topic_led_by_the_dead(admin)
        count = 2 * MAX_STATES_PER_TRANSACTION + 1
        replicas: dict[int, tuple[int, ...]] = dict.fromkeys(range(count), (2,))
        await admin.create(
            layout.topic_path("b"), layout.encode_topic(TopicNode(SECOND_ID, replicas, {}, {}))
        )
        await one.start()
        await one.sees(lambda image: all(row.leader == 2 for row in image.topics["b"].partitions))
        await one.stop()

    with caplog.at_level(logging.DEBUG, "felice.controller"):
        run(scenario)
    assert "another writer was first" not in caplog.text


def test_a_decision_that_would_break_an_invariant_is_not_written(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await _topic_led_by_the_dead(admin)
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        while not caplog.records:
            await asyncio.sleep(0)
        await admin.create(
            layout.topic_path("b"), layout.encode_topic(TopicNode(SECOND_ID, {0: (2,)}, {}, {}))
        )
        await one.sees(lambda image: (row := image.partition("b", 0)) is not None and row.leader == 2)
        assert _leader(one.watcher.image) == 1, "it keeps its state"
        assert one.controller.is_controller
        await one.stop()

    # The dead leader's successor would have the epoch of the dead leader.
    def elect(partition: PartitionImage, *_: object, **__: object) -> StateNode | None:
        return StateNode(2, 0, 5, (2,)) if partition.leader == 1 else None

    monkeypatch.setattr(duties, "elect_after_liveness_change", elect)
    caplog.set_level(logging.ERROR)
    run(scenario)
    facts = [vars(record) for record in caplog.records]
    assert [(fact["invariant"], "partition=a-0" in fact["reason"]) for fact in facts] == [("R2", True)]


def test_a_controller_epoch_that_goes_back_ends_the_duties(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await one.start()
        await one.sees(lambda image: image.controller_epoch == 5)
        await admin.set(layout.CONTROLLER_EPOCH, b"3")
        await one.sees(lambda image: image.controller_epoch == 3)
        await _topic_led_by_the_dead(admin)
        await one.sees(lambda image: "a" in image.topics)
        assert _leader(one.watcher.image) == 1
        await admin.set(layout.CONTROLLER_EPOCH, b"6")
        await admin.delete(layout.CONTROLLER)
        await one.sees(lambda image: _leader(image) == 2)
        await one.stop()

    caplog.set_level(logging.ERROR)
    run(scenario)
    assert [vars(record)["invariant"] for record in caplog.records] == ["C3"]


def test_an_election_whose_answer_was_lost_is_noticed() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one = Candidate(ensemble.connect(), 1)
        await one.store.multi(
            [
                Create(layout.CONTROLLER, layout.encode_controller(1, 0), ephemeral=True),
                SetData(layout.CONTROLLER_EPOCH, b"5", 0),
            ]
        )
        await _topic_led_by_the_dead(one.store)
        await one.start()
        await one.sees(lambda image: _leader(image) == 2)
        assert one.controller.epoch == 5
        await one.stop()

    run(scenario)


def test_a_new_session_does_not_inherit_an_election() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        earlier = ensemble.connect()
        await earlier.create(layout.CONTROLLER, layout.encode_controller(1, 0), ephemeral=True)
        one = Candidate(ensemble.connect(), 1)
        await _topic_led_by_the_dead(one.store)
        await one.start()
        await _turns()
        assert not one.controller.is_controller
        assert _leader(one.watcher.image) == 1
        await earlier.close()
        await one.sees(lambda image: _leader(image) == 2)
        assert one.controller.epoch == 5
        await one.stop()

    run(scenario)


def test_an_operator_who_deletes_the_controller_node_triggers_an_election() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one = Candidate(ensemble.connect(), 1)
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        await ensemble.connect().delete(layout.CONTROLLER)
        await one.sees(lambda image: image.controller_epoch == 6 and image.controller_id == 1)
        assert one.controller.epoch == 6
        await one.stop()

    run(scenario)


def test_one_that_was_replaced_without_hearing_of_it_gives_up_at_its_next_write() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        version = (await admin.get(layout.CONTROLLER_EPOCH)).version
        # The election and the change are one transaction: the image shows both before the controller knows of either.
        await admin.set(layout.CONTROLLER_EPOCH, b"9", version)
        await _topic_led_by_the_dead(admin)
        await one.sees(lambda image: "a" in image.topics and image.controller_epoch == 9)
        assert _leader(one.watcher.image) == 1
        await one.stop()

    run(scenario)


def test_an_unusable_store_is_reported_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "_PAUSE_AFTER_FAULT_S", 0)
    reasons = ["away", "away", "elsewhere", "elsewhere", ""] * 2

    async def scenario(ensemble: MemoryEnsemble) -> None:
        one = Candidate(ensemble.connect(), 1)
        get = one.store.get

        async def unsure(path: str) -> Node:
            if reasons and (reason := reasons.pop(0)):
                raise StoreUnavailable(path, reason)
            return await get(path)

        monkeypatch.setattr(one.store, "get", unsure)
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        # A duty succeeded: the next error is logged again.
        await ensemble.connect().delete(layout.CONTROLLER)
        await one.sees(lambda image: image.controller_epoch == 6)
        await one.stop()

    with caplog.at_level(logging.WARNING, "felice.controller"):
        run(scenario)
    said = [vars(record)["reason"] for record in caplog.records]
    assert said == [str(StoreUnavailable(layout.CONTROLLER_EPOCH, why)) for why in ("away", "elsewhere")] * 2


def test_a_new_controller_balances_leaderships_soon_after_its_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next periodic check may be leader.imbalance.check.interval.seconds away."""
    monkeypatch.setattr(controller_module, "_FIRST_BALANCE_S", 0.05)

    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, two, admin = (
            Candidate(ensemble.connect(), 1),
            Candidate(ensemble.connect(), 2),
            ensemble.connect(),
        )
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        await two.start()
        await asyncio.sleep(0.2)  # longer than the first check after a start
        await one.stop()
        await _topic_led_by_the_dead(admin)
        node = await admin.get(layout.broker_path(2))
        await admin.create(layout.broker_path(1), node.data)
        await admin.set(layout.state_path("a", 0), layout.encode_state(StateNode(2, 1, 4, (1, 2))), 0)
        await two.sees(lambda image: _leader(image) == 2)
        ensemble.expire(one.store.session_id)
        await two.sees(lambda image: _leader(image) == 1)
        await two.stop()

    run(scenario)


def test_leaders_stay_without_automatic_balancing() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = (
            Candidate(ensemble.connect(), 1, auto_leader_rebalance_enable="false"),
            ensemble.connect(),
        )
        await _topic_led_by_the_dead(admin)
        node = await admin.get(layout.broker_path(2))
        await admin.create(layout.broker_path(1), node.data)
        await admin.set(layout.state_path("a", 0), layout.encode_state(StateNode(2, 1, 4, (1, 2))), 0)
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        for _ in range(20):
            await _turns()
        assert _leader(one.watcher.image) == 2
        await one.stop()

    run(scenario)


COUNT = 2 * MAX_STATES_PER_TRANSACTION + 1


async def _large_topic_of(one: Candidate) -> ClusterAdmin:
    """The topic `large`: more partitions than fit into a transaction, all with leaders in the image."""
    admin = ClusterAdmin(one.store, one.watcher, random.Random(1), lambda: BrokerConfig())
    requested = NewTopic("large", COUNT, 1, configs={"retention.ms": "5"})
    await admin.create_topic(requested)
    await one.sees(lambda image: all(row.partition_epoch >= 0 for row in image.topics["large"].partitions))
    return admin


def _limited(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """A store that refuses large writes, and accepts a limited number of small ones."""
    multi, left = store.multi, [writes]

    async def write(operations: Sequence[Operation]) -> list[str | int | None]:
        assert len(operations) <= 3 * MAX_STATES_PER_TRANSACTION
        if not left[0]:
            raise StoreUnavailable("/", "it was killed here")
        left[0] -= 1
        return await multi(operations)

    monkeypatch.setattr(store, "multi", write)


@pytest.mark.parametrize("writes", [1, 2, 3, 4])
def test_a_large_topic_disappears_at_once_and_any_controller_deletes_the_rest_of_its_nodes(
    monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """The writes: the beginning of the deletion, nodes of partitions three times, and the remaining nodes."""

    async def scenario(ensemble: MemoryEnsemble) -> None:
        admin = ensemble.connect()
        node = BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, None, 0)
        await admin.create(layout.broker_path(1), layout.encode_broker(node))
        before = [path for path, _, _ in ensemble.tree.walk()]
        one, two = Candidate(ensemble.connect(), 1), Candidate(ensemble.connect(), 2)
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        admin = await _large_topic_of(one)
        _limited(one.store, monkeypatch, writes)
        monkeypatch.setattr(cluster_admin, "FOLLOW_TIMEOUT_S", 0.2)
        await admin.delete_topic("large")
        assert "large" not in one.watcher.image.topics
        assert "large" not in one.watcher.image.topic_configs
        assert one.watcher.image.pending_deletions.keys() == {"large"}
        # The name is not available yet.
        with pytest.raises(ApiError, match="is being deleted") as refused:
            await admin.create_topic(NewTopic("large", 1, 1))
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await one.stop()
        ensemble.expire(one.store.session_id)
        await two.start()
        await two.sees(lambda image: image.controller_id == 2 and not image.pending_deletions)
        held = [layout.CONTROLLER]
        records = [
            path for path, _, _ in ensemble.tree.walk() if path.startswith(f"{layout.DELETED_TOPICS}/")
        ]
        assert records, "the brokers with the logs find them"
        assert [path for path, _, _ in ensemble.tree.walk() if path not in (*held, *records)] == before
        await two.stop()

    run(scenario)


def test_the_name_of_a_large_topic_is_free_when_its_deletion_returns() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        admin = ensemble.connect()
        node = BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, None, 0)
        await admin.create(layout.broker_path(1), layout.encode_broker(node))
        one = Candidate(ensemble.connect(), 1)
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        admin = await _large_topic_of(one)
        await admin.delete_topic("large")
        assert (await admin.create_topic(NewTopic("large", 1, 1))).name == "large"
        await one.stop()

    run(scenario)


# Topics that other programs wrote


async def _store_of_topic_a(store: MemoryStore, topic_id: UUID | None, *below: str) -> None:
    """Partition `a-0`, led by broker 2, with these topic-id nodes."""
    node = BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, None, 0)
    await store.create(layout.broker_path(2), layout.encode_broker(node))
    identity = layout.identity_path("a")
    await store.multi(
        [
            Create(layout.topic_path("a"), layout.encode_topic(TopicNode(topic_id, {0: (2,)}, {}, {}))),
            Create(layout.partitions_path("a")),
            Create(layout.partition_path("a", 0)),
            Create(layout.state_path("a", 0), layout.encode_state(StateNode(2, 3, 4, (2,)))),
            *([Create(identity)] if below else []),
            *(Create(f"{identity}/{name}") for name in below if name),
        ]
    )


async def _told_id(store: MemoryStore) -> tuple[UUID | None, list[str]]:
    """The id in the node of `a`, and the topic-id nodes."""
    text = layout.decode_topic((await store.get(layout.topic_path("a"))).data)
    topic_id_nodes = await store.children_many([layout.identity_path("a")])
    return text.topic_id, topic_id_nodes[0] or []


FIRST_MARK = format_uuid(FIRST_ID)


@pytest.mark.parametrize(
    ("told", "below", "comes_to"),
    [
        (None, (), NEW_ID),  # as Kafka's tools wrote topics before 2.8
        (None, ("",), NEW_ID),
        (None, (FIRST_MARK,), FIRST_ID),
        (SECOND_ID, (FIRST_MARK,), FIRST_ID),
    ],
)
def test_a_topic_ends_with_one_id(told: UUID | None, below: tuple[str, ...], comes_to: UUID) -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await _store_of_topic_a(admin, told, *below)
        await one.start()
        await one.sees(lambda image: "a" in image.topics and not image.topic_faults)
        assert await _told_id(admin) == (comes_to, [format_uuid(comes_to)])
        topic = one.watcher.image.topics["a"]
        assert topic.topic_id == comes_to
        assert (topic.partitions[0].leader, topic.partitions[0].leader_epoch) == (2, 3)
        # Writes can be bound to the id.
        await admin.delete(layout.broker_path(2))
        await one.sees(lambda image: _leader(image) == -1)
        await one.stop()

    run(scenario)


@pytest.mark.parametrize("edit", ["text", "id_node", "id_node alone", "both"])
def test_a_topic_id_that_an_operator_removes_is_restored_while_it_is_known(edit: str) -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await _store_of_topic_a(admin, FIRST_ID, FIRST_MARK)
        await one.start()
        await one.sees(lambda image: _leader(image) == 2 and image.controller_id == 1)
        path = layout.topic_path("a")
        if edit != "text":
            await admin.delete(layout.topic_id_path("a", FIRST_ID))
            if edit != "id_node alone":
                await admin.delete(layout.identity_path("a"))
        if edit in ("text", "both"):
            await admin.set(path, layout.encode_topic(TopicNode(None, {0: (2,)}, {}, {})))
            await one.sees(lambda image: image.topics["a"].version >= 2)
        await admin.delete(layout.broker_path(2))
        await one.sees(lambda image: _leader(image) == -1)
        assert one.watcher.image.topics["a"].topic_id == FIRST_ID
        assert await _told_id(admin) == (FIRST_ID, [FIRST_MARK])
        await one.stop()

    run(scenario)


def test_a_copied_topic_node_gets_another_id() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await _store_of_topic_a(admin, FIRST_ID, FIRST_MARK)
        await one.start()
        await one.sees(lambda image: _leader(image) == 2)
        copied = (await admin.get(layout.topic_path("a"))).data
        await admin.create(layout.topic_path("b"), copied)
        await one.sees(lambda image: "b" in image.topics and image.topics["b"].partitions[0].leader == 2)
        ids = {name: topic.topic_id for name, topic in one.watcher.image.topics.items()}
        assert ids == {"a": FIRST_ID, "b": NEW_ID} and not one.watcher.image.topic_faults
        await one.stop()

    run(scenario)


def test_only_topics_with_a_requested_deletion_are_deleted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await _store_of_topic_a(admin, FIRST_ID, FIRST_MARK)
        await admin.create(layout.topic_path("b"), b'{"version":3,"partitions":{}}')
        await one.start()
        await one.sees(lambda image: _leader(image) == 2 and image.controller_id == 1)
        await admin.set(layout.topic_path("a"), b'{"version":3,"partitions":{}}')
        await one.sees(lambda image: image.topic_faults.keys() == {"a", "b"})
        assert not one.watcher.image.pending_deletions
        assert await admin.children(layout.TOPICS) == ["a", "b"]
        # The known topic continues; the other one begins when it gets partitions.
        for name in ("a", "b"):
            value = layout.decode_topic((await admin.get(layout.topic_path(name))).data)
            assert value.topic_id == (FIRST_ID if name == "a" else NEW_ID), "as Kafka's controller does"
            if name == "b":
                whole = layout.encode_topic(TopicNode(value.topic_id, {0: (2,)}, {}, {}))
                await admin.set(layout.topic_path(name), whole)
        await one.sees(lambda image: "b" in image.topics and image.topics["b"].partitions[0].leader == 2)
        await admin.delete(layout.broker_path(2))
        await one.sees(lambda image: _leader(image) == -1)
        await one.stop()

    with caplog.at_level(logging.ERROR):
        run(scenario)
    assert [(record.topic, record.reason) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("b", "it has no partitions"),
        ("a", "it has no partitions"),
    ]
