"""The role of the controller: how it is won, kept, lost and won again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from felice.config import BrokerConfig
from felice.controller import role, service
from felice.controller.role import ControllerRole
from felice.controller.service import Controller, NewTopic
from felice.controller.writing import STATES_A_TRANSACTION
from felice.env import Environment, SystemClock, SystemDisk, SystemNetwork
from felice.metadata import ClusterImage, Create, Node, SetData, StoreUnavailable, layout
from felice.metadata.layout import BrokerNode, Endpoint, StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.store import Operation
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode


class Candidate:
    def __init__(self, store: MemoryStore, broker_id: int, **options: str) -> None:
        config = BrokerConfig.parse({name.replace("_", "."): text for name, text in options.items()})[0]
        self.store = store
        self.watcher = Watcher(store, lambda old, new: self.role.on_image())
        self.role = ControllerRole(store, self.watcher, SystemClock(), broker_id, lambda: config)

    async def start(self) -> None:
        await self.watcher.start()
        self.role.start()

    async def sees(self, condition: Callable[[ClusterImage], bool]) -> None:
        assert await self.watcher.wait_until(condition, 5), self.watcher.image
        await _turns()

    async def stop(self) -> None:
        await self.role.stop()
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
            Create(layout.topic_path("a"), layout.encode_topic(TopicNode(None, {0: (1, 2)}, {}, {}))),
            Create(layout.partitions_path("a")),
            Create(layout.partition_path("a", 0)),
            Create(layout.state_path("a", 0), layout.encode_state(StateNode(1, 0, 4, (1, 2)))),
        ]
    )


def _leader(image: ClusterImage) -> int:
    partition = image.partition("a", 0)
    return -1 if partition is None else partition.leader


def test_of_many_candidates_one_wins_and_does_what_is_due() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        candidates = [Candidate(ensemble.connect(), broker_id) for broker_id in (1, 2, 3)]
        await asyncio.gather(*(one.start() for one in candidates))
        await candidates[0].sees(lambda image: image.controller_id > 0)
        assert sorted(one.role.epoch for one in candidates) == [0, 0, 5]
        assert sum(one.role.is_controller for one in candidates) == 1
        await _topic_led_by_the_dead(ensemble.connect())
        await candidates[2].sees(lambda image: _leader(image) == 2)
        for one in candidates:
            await one.stop()

    run(scenario)


def test_nothing_is_decided_twice_while_the_image_lags(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await _topic_led_by_the_dead(admin)
        count = 2 * STATES_A_TRANSACTION + 1
        replicas: dict[int, tuple[int, ...]] = dict.fromkeys(range(count), (2,))
        await admin.create(layout.topic_path("b"), layout.encode_topic(TopicNode(None, replicas, {}, {})))
        await one.start()
        await one.sees(lambda image: all(row.leader == 2 for row in image.topics["b"].partitions))
        await one.stop()

    with caplog.at_level(logging.DEBUG, "felice.controller"):
        run(scenario)
    assert "lost a race" not in caplog.text


def test_a_role_that_was_won_without_an_answer_is_found_out() -> None:
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
        assert one.role.epoch == 5
        await one.stop()

    run(scenario)


def test_what_an_earlier_session_won_is_not_this_ones() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        earlier = ensemble.connect()
        await earlier.create(layout.CONTROLLER, layout.encode_controller(1, 0), ephemeral=True)
        one = Candidate(ensemble.connect(), 1)
        await _topic_led_by_the_dead(one.store)
        await one.start()
        await _turns()
        assert not one.role.is_controller
        assert _leader(one.watcher.image) == 1
        await earlier.close()
        await one.sees(lambda image: _leader(image) == 2)
        assert one.role.epoch == 5
        await one.stop()

    run(scenario)


def test_an_operator_who_deletes_the_node_has_the_next_elected() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one = Candidate(ensemble.connect(), 1)
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        await ensemble.connect().delete(layout.CONTROLLER)
        await one.sees(lambda image: image.controller_epoch == 6 and image.controller_id == 1)
        assert one.role.epoch == 6
        await one.stop()

    run(scenario)


def test_one_that_was_replaced_without_hearing_of_it_gives_up_at_its_next_write() -> None:
    async def scenario(ensemble: MemoryEnsemble) -> None:
        one, admin = Candidate(ensemble.connect(), 1), ensemble.connect()
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        version = (await admin.get(layout.CONTROLLER_EPOCH)).version
        # In one transaction with what it would react to: its image has both, its role knows of neither.
        await admin.set(layout.CONTROLLER_EPOCH, b"9", version)
        await _topic_led_by_the_dead(admin)
        await one.sees(lambda image: "a" in image.topics and image.controller_epoch == 9)
        assert _leader(one.watcher.image) == 1
        await one.stop()

    run(scenario)


def test_that_the_store_cannot_be_used_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "_PAUSE_AFTER_FAULT_S", 0)
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
        # It acted: what goes wrong next is said again.
        await ensemble.connect().delete(layout.CONTROLLER)
        await one.sees(lambda image: image.controller_epoch == 6)
        await one.stop()

    with caplog.at_level(logging.WARNING, "felice.controller"):
        run(scenario)
    said = [vars(record)["reason"] for record in caplog.records]
    assert said == [str(StoreUnavailable(layout.CONTROLLER_EPOCH, why)) for why in ("away", "elsewhere")] * 2


COUNT = 2 * STATES_A_TRANSACTION + 1


async def _large_topic_of(one: Candidate) -> Controller:
    """`large`, in the image with all its leaders, of more partitions than one transaction takes."""
    env = Environment(SystemClock(), SystemDisk(), SystemNetwork(), random.Random(1))
    controller = Controller(one.store, one.watcher, env, 1, lambda: BrokerConfig())
    wish = NewTopic("large", COUNT, 1, configs={"retention.ms": "5"})
    await controller.create_topic(wish)
    await one.sees(lambda image: all(row.partition_epoch >= 0 for row in image.topics["large"].partitions))
    return controller


def _limited(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """A store that takes no large write, and of small ones no more than so many."""
    multi, left = store.multi, [writes]

    async def write(operations: Sequence[Operation]) -> list[str | int | None]:
        assert len(operations) <= 3 * STATES_A_TRANSACTION
        if not left[0]:
            raise StoreUnavailable("/", "it was killed here")
        left[0] -= 1
        return await multi(operations)

    monkeypatch.setattr(store, "multi", write)


@pytest.mark.parametrize("writes", [1, 2, 3, 4])
def test_a_large_topic_goes_at_once_and_its_nodes_wherever_a_controller_stopped(
    monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Written are: that it goes, three times nodes of partitions, and the rest."""

    async def scenario(ensemble: MemoryEnsemble) -> None:
        admin = ensemble.connect()
        node = BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, None, 0)
        await admin.create(layout.broker_path(1), layout.encode_broker(node))
        before = [path for path, _, _ in ensemble.tree.walk()]
        one, two = Candidate(ensemble.connect(), 1), Candidate(ensemble.connect(), 2)
        await one.start()
        await one.sees(lambda image: image.controller_id == 1)
        controller = await _large_topic_of(one)
        _limited(one.store, monkeypatch, writes)
        monkeypatch.setattr(service, "_FOLLOW_TIMEOUT_S", 0.2)
        await controller.delete_topic("large")
        assert "large" not in one.watcher.image.topics
        assert "large" not in one.watcher.image.topic_configs
        assert one.watcher.image.doomed.keys() == {"large"}
        # The name is not free yet.
        with pytest.raises(ApiError, match="is being deleted") as refused:
            await controller.create_topic(NewTopic("large", 1, 1))
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await one.stop()
        ensemble.expire(one.store.session_id)
        await two.start()
        await two.sees(lambda image: image.controller_id == 2 and not image.doomed)
        held = [layout.CONTROLLER]
        assert [path for path, _, _ in ensemble.tree.walk() if path not in held] == before
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
        controller = await _large_topic_of(one)
        await controller.delete_topic("large")
        assert (await controller.create_topic(NewTopic("large", 1, 1))).name == "large"
        await one.stop()

    run(scenario)
