"""An unmodified client produces to a broker, and reads its records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from felice.server.process.embedded import EmbeddedBroker

confluent_kafka = pytest.importorskip("confluent_kafka")

_TIMEOUT_S = 100


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", num_partitions=2) as running:
        yield running


def _produce(broker: EmbeddedBroker, topic: str, count: int, **settings: Any) -> list[Any]:
    delivered: list[Any] = []
    failed: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        (failed if error else delivered).append(error or message)

    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, **settings})
    for number in range(count):
        producer.produce(
            topic,
            b"value-%d" % number,
            b"key",
            partition=number % 2,
            headers=[("h", b"1")],
            on_delivery=on_delivery,
        )
    assert producer.flush(_TIMEOUT_S) == 0
    assert not failed
    return delivered


def _consume(broker: EmbeddedBroker, topic: str, count: int) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in (0, 1)])
    messages: list[Any] = []
    try:
        while len(messages) < count:
            message = consumer.poll(_TIMEOUT_S)
            assert message is not None, f"only {len(messages)} of {count} came"
            assert message.error() is None
            messages.append(message)
    finally:
        consumer.close()
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produced_records_are_read_back(broker: EmbeddedBroker, codec: str) -> None:
    delivered = _produce(broker, "first", 500, **{"compression.type": codec})
    assert sorted(message.offset() for message in delivered if message.partition() == 0) == list(range(250))
    messages = _consume(broker, "first", 500)
    for partition in (0, 1):
        found = [message for message in messages if message.partition() == partition]
        assert [message.offset() for message in found] == list(range(250))
        assert [message.value() for message in found] == [b"value-%d" % n for n in range(partition, 500, 2)]
    assert messages[0].headers() == [("h", b"1")]


@pytest.mark.parametrize(
    "settings",
    [{"acks": "0"}, {"acks": "1"}, {"enable.idempotence": True}],
    ids=["acks-0", "acks-1", "idempotent"],
)
def test_every_level_of_acknowledgement(broker: EmbeddedBroker, settings: dict[str, Any]) -> None:
    _produce(broker, "levels", 100, **settings)
    assert len(_consume(broker, "levels", 100)) == 100


def test_records_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", num_partitions=2) as broker:
        _produce(broker, "kept", 100)
    with EmbeddedBroker(tmp_path / "data", num_partitions=2) as broker:
        assert len(_consume(broker, "kept", 100)) == 100
        assert {message.offset() for message in _produce(broker, "kept", 2)} == {50}


def test_large_fetches_leave_by_sendfile_whole(broker: EmbeddedBroker) -> None:
    value = bytes(range(256)) * 400
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(300):
        producer.produce("large", value, partition=0)
        producer.poll(0)
    assert producer.flush(_TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    consumer.assign([confluent_kafka.TopicPartition("large", 0, 0)])
    try:
        for offset in range(300):
            message = consumer.poll(_TIMEOUT_S)
            assert message is not None
            assert (message.offset(), message.value()) == (offset, value)
    finally:
        consumer.close()
