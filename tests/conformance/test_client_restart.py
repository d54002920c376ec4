"""Our client while its broker restarts on the same port: every record arrives once."""

import time
from pathlib import Path
from typing import Any

import pytest

from felice.client import AdminClient, Consumer, KafkaError, NewTopic, Producer
from felice.server.process.embedded import EmbeddedBroker
from peers.apache_kafka import free_port
from waiting import LIMIT_S

pytestmark = pytest.mark.felice_only


def test_producer_and_consumer_outlive_a_restart(tmp_path: Path) -> None:
    port = free_port()
    config = {"bootstrap.servers": f"127.0.0.1:{port}", "reconnect.backoff.max.ms": 200}
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failures.append(error)

    with EmbeddedBroker(tmp_path, port):
        with AdminClient(config) as admin:
            admin.create_topics([NewTopic("t", 2)])["t"].result(LIMIT_S)
        producer = Producer({**config, "on_delivery": report})
        consumer = Consumer(
            {
                **config,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 100,
            }
        )
        consumer.subscribe(["t"])
        for number in range(50):
            producer.produce("t", b"%d" % number)
        assert producer.flush(LIMIT_S) == 0
        read = [message for message in consumer.consume(50, LIMIT_S) if message.error() is None]
        assert len(read) == 50
    for number in range(50, 100):
        producer.produce("t", b"%d" % number)
    assert producer.flush(0.3) == 50
    with EmbeddedBroker(tmp_path, port):
        assert producer.flush(LIMIT_S) == 0
        deadline = time.monotonic() + LIMIT_S
        while len(read) < 100 and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                read.append(message)
        consumer.close()
        producer.close()
    assert not failures
    assert sorted(int(message.value()) for message in read) == list(range(100))
