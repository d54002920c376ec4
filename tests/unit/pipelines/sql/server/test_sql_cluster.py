"""What the SQL server asks of brokers, which are not here."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from felice.client.error import KafkaError, KafkaException
from felice.pipelines.sql.server.cluster import TIMEOUT_S, Cluster
from felice.pipelines.streams.task import TopicRecord


@pytest.mark.parametrize("exists", [True, False])
def test_a_row_for_a_topic_that_is_gone_says_so(monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    made: dict[str, Any] = {}

    async def late(*record: object, **more: object) -> None:
        raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))

    async def topics(names: list[str]) -> dict[str, object]:
        return dict.fromkeys(names) if exists else {}

    def producer(settings: dict[str, Any]) -> SimpleNamespace:
        made.update(settings)
        return SimpleNamespace(send_and_wait=late)

    async def write() -> None:
        cluster = Cluster({"bootstrap.servers": "broker:1", "delivery.timeout.ms": 600_000})
        monkeypatch.setattr(cluster, "topics", topics)
        await cluster.write(TopicRecord("gone", b"k", b"v", 0))

    monkeypatch.setattr("felice.pipelines.sql.server.cluster.Producer", producer)
    expected = "timed out" if exists else "there is no topic gone"
    with pytest.raises(KafkaException, match=expected):
        asyncio.run(write())
    assert made["message.timeout.ms"] == TIMEOUT_S * 1000
    assert "delivery.timeout.ms" not in made
