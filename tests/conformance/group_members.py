"""librdkafka's consumers in groups that share one topic: for tests of both group protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer

from conformance.targets import Target
from conformance.topics import create_topic, produce_values

PARTITIONS = 6
TIMEOUT_S = 150.0


def filled_topic(broker: Target, name: str) -> str:
    """Creates a topic with ten records in each partition."""
    create_topic(broker, name, PARTITIONS)
    fill(broker, name)
    return name


def fill(broker: Target, topic: str, records: int = 10) -> None:
    """Produces so many records to each partition of a topic."""
    with broker.wire() as wire:
        for partition in range(PARTITIONS):
            produce_values(wire, topic, [f"{partition}-{n}".encode() for n in range(records)], partition)


@contextmanager
def opened_consumers(broker: Target, **defaults: Any) -> Iterator[Callable[..., Consumer]]:
    """A function that opens a consumer of a group, with `_` for `.` in its settings. All are closed at the end."""
    opened: list[Consumer] = []

    def another(group: str, **settings: Any) -> Consumer:
        chosen = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **defaults, **settings}
        config = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            **{key.replace("_", "."): value for key, value in chosen.items()},
        }
        opened.append(Consumer(config))
        return opened[-1]

    yield another
    for consumer in opened:
        consumer.close()


def held(consumer: Consumer) -> set[int]:
    return {partition.partition for partition in consumer.assignment()}


def shares(*consumers: Consumer) -> Callable[[], bool]:
    """Whether the consumers share all partitions evenly, each partition once."""

    def holds() -> bool:
        sets = [held(consumer) for consumer in consumers]
        sizes = {len(partitions) for partitions in sets}
        return max(sizes) - min(sizes) <= 1 and sorted(p for s in sets for p in s) == list(range(PARTITIONS))

    return holds
