"""The watcher: what follows a change of the store."""

from __future__ import annotations

import asyncio
import logging

import pytest

from felice.metadata import ClusterImage, Create, layout
from felice.metadata.layout import TopicNode
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
