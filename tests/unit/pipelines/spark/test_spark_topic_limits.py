"""The limits of topics, as a broker tells them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from felice.client.blocking import BlockingConfig
from felice.pipelines.limits import TopicLimits
from felice.pipelines.spark import topic_limits as asking
from felice.pipelines.spark.connections import client_of
from felice.pipelines.spark.topic_limits import topic_limits
from felice.server.process.embedded import EmbeddedBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def config(broker: EmbeddedBroker) -> Iterator[BlockingConfig]:
    found = BlockingConfig(broker.bootstrap)
    yield found
    # A worker's process keeps its client until it ends; the process of the tests goes on.
    client_of(found).close()
    client_of.cache_clear()


def create(broker: EmbeddedBroker, name: str, config: dict[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(60)


def test_limits_are_those_of_the_topic_and_are_asked_again_after_a_while(
    broker: EmbeddedBroker, config: BlockingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A topic that does not exist yet has the defaults, until they are asked for again.
    assert topic_limits(config, "small") == TopicLimits()
    create(
        broker,
        "small",
        {"max.message.bytes": 2000, "cleanup.policy": "compact", "message.timestamp.after.max.ms": 5},
    )
    assert topic_limits(config, "small") == TopicLimits()
    monkeypatch.setattr(asking, "GOOD_FOR_S", 0)
    found = topic_limits(config, "small")
    assert (found.max_message_bytes, found.needs_key, found.after_max_ms) == (2000, True, 5)
