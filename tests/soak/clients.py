"""Producers, consumers and administrators of two libraries behind one API: librdkafka's and our own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import confluent_kafka.admin

import felice.client
from checkers.history import Read, Written

# Long enough for a machine under heavy load.
WAIT_S = 180


@dataclass(frozen=True, slots=True)
class Library:
    name: str
    package: Any
    admin: Any


CONFLUENT = Library("confluent-kafka", confluent_kafka, confluent_kafka.admin)
FELICE = Library("felice", felice.client, felice.client)


def library_of(number: int) -> Library:
    """The library for a round: they take turns."""
    return (CONFLUENT, FELICE)[number % 2]


class Topics:
    """Creates and deletes topics over one connection that lasts as long as the load."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int, **configs: object) -> str:
        named = {key.replace("_", "."): str(value) for key, value in configs.items()}
        wanted = confluent_kafka.admin.NewTopic(name, partitions, 1, config=named)
        self._admin.create_topics([wanted])[name].result(WAIT_S)
        return name

    def delete(self, *names: str) -> None:
        for future in self._admin.delete_topics(list(names)).values():
            future.result(WAIT_S)


class Ledger:
    """What one writer sent, and the acknowledgements."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self._offsets: dict[tuple[int, int], int | None] = {}
        self.failures: list[str] = []

    def send(self, producer: Any, topic: str, number: int, partition: int, size: int = 100) -> None:
        self._offsets[number, partition] = None
        value = f"{self.writer}:{number}:".encode().ljust(size, b".")
        producer.produce(topic, value, partition=partition, on_delivery=self._promised(number))

    def _promised(self, number: int) -> Callable[[Any, Any], None]:
        def keep(error: Any, message: Any) -> None:
            if error is None:
                self._offsets[number, message.partition()] = message.offset()
            else:
                self.failures.append(f"record {number} of {self.writer} failed: {error}")

        return keep

    def written(self) -> list[Written]:
        return [Written(self.writer, n, p, offset) for (n, p), offset in sorted(self._offsets.items())]


def read_of(message: Any) -> Read:
    writer, number, _ = message.value().decode().split(":")
    return Read(writer, int(number), message.partition(), message.offset())


def read_all(
    bootstrap: str,
    topic: str,
    partitions: int,
    library: Library = CONFLUENT,
    isolation: str = "read_committed",
) -> Iterator[Any]:
    """Every message of a topic, each partition from the beginning to the end."""
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    package = library.package
    consumer = package.Consumer(options)
    try:
        consumer.assign(
            [package.TopicPartition(topic, p, package.OFFSET_BEGINNING) for p in range(partitions)]
        )
        ended: set[int] = set()
        deadline = time.monotonic() + WAIT_S
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{library.name} did not reach the end of {topic}"
            for message in consumer.consume(1000, 1):
                if message.error() is None:
                    yield message
                else:
                    assert message.error().code() == package.KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
    finally:
        consumer.close()
