"""The watcher: what follows a change of the store."""

from __future__ import annotations

import asyncio
import logging

import pytest

from felice.metadata import ClusterImage, Create, layout
from felice.metadata.layout import BrokerNode, TopicNode
from felice.metadata.memory import MemoryEnsemble
from felice.metadata.watcher import Watcher


def test_a_fault_in_following_one_image_costs_nobody_the_next(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[list[str]] = []

    def follow(old: ClusterImage, new: ClusterImage) -> None:
        seen.append(sorted(new.topics))
        if "bad" in new.topics and "bad" not in old.topics:
            # Something else changes before the fault comes to light.
            ensemble.write(ensemble.tree.plan([Create("/brokers/topics/late", topic)], 0)[0])
            raise RuntimeError("a fault")

    topic = layout.encode_topic(TopicNode(None, {0: (1,)}, {}, {}))
    ensemble = MemoryEnsemble()

    async def scenario() -> None:
        store = ensemble.connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        watcher = Watcher(store, follow)
        await watcher.start()
        await store.create("/brokers/topics/bad", topic)
        assert await watcher.wait_until(lambda image: "late" in image.topics, 1.0)
        await watcher.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert seen == [["bad"], ["bad", "late"]]
    assert "a fault" in caplog.text


@pytest.mark.parametrize("after_turns", range(0, 40, 2))
def test_what_changes_while_the_store_is_first_read_is_in_the_image(after_turns: int) -> None:
    """As when a broker registers while another one starts."""
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
        assert await watcher.wait_until(lambda image: image.brokers.keys() == {5, 7}, 1.0)
        await asyncio.sleep(0.01)
        assert watcher.image.brokers.keys() == {5, 7}
        await watcher.stop()

    asyncio.run(scenario())
