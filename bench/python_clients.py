"""Felice's Python client beside confluent-kafka, both with the same program on the same Felice broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.systems import Felice
from bench.workloads import Figures, scratch_topic

_BATCH = 500


@dataclass(frozen=True, slots=True)
class PythonClient:
    """A module with confluent_kafka's names, and the broker that it uses."""

    name: str
    client: Any
    bootstrap: str


@contextmanager
def own_client() -> Iterator[PythonClient]:
    """`felice.client` on a broker of its own."""
    from felice import client

    with Felice() as broker:
        yield PythonClient("felice.client", client, broker.bootstrap)


@contextmanager
def confluent_client() -> Iterator[PythonClient]:
    """`confluent_kafka` on a broker of its own."""
    import confluent_kafka

    with Felice() as broker:
        yield PythonClient("confluent-kafka", confluent_kafka, broker.bootstrap)


def python_client(records: int, record_bytes: int) -> Callable[[PythonClient], Figures]:
    """produce() in a loop, poll() in a loop, and consume(500) in a loop; six partitions."""

    def run(system: PythonClient) -> Figures:
        with scratch_topic(system.bootstrap) as topic:
            return {
                "produce records/s": _produce(system, topic, records, b"x" * record_bytes),
                "poll records/s": _poll(system, topic, records),
                f"consume({_BATCH}) records/s": _consume(system, topic, records),
            }

    return run


def _produce(system: PythonClient, topic: str, records: int, value: bytes) -> float:
    config = {
        "bootstrap.servers": system.bootstrap,
        "queue.buffering.max.messages": 1_000_000,
        "linger.ms": 5,
    }
    producer = system.client.Producer(config)
    begun = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("records were not delivered")
    return records / (time.perf_counter() - begun)


def _consumer(system: PythonClient, topic: str) -> Any:
    config = {
        "bootstrap.servers": system.bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
    }
    consumer = system.client.Consumer(config)
    consumer.subscribe([topic])
    return consumer


def _poll(system: PythonClient, topic: str, records: int) -> float:
    consumer, count, begun = _consumer(system, topic), 0, 0.0
    while count < records:
        message = consumer.poll(60)
        if message is None:
            raise RuntimeError("the records did not come")
        if message.error() is None:
            count += 1
            begun = begun or time.perf_counter()  # joining the group does not count
    seconds = time.perf_counter() - begun
    consumer.close()
    return records / seconds


def _consume(system: PythonClient, topic: str, records: int) -> float:
    consumer, count, begun = _consumer(system, topic), 0, 0.0
    while count < records:
        messages = consumer.consume(_BATCH, 60)
        if not messages:
            raise RuntimeError("the records did not come")
        count += sum(message.error() is None for message in messages)
        begun = begun or time.perf_counter()
    seconds = time.perf_counter() - begun
    consumer.close()
    return records / seconds
