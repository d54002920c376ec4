"""The offsets of a connector in the offsets topic of the workers, as a task reads and writes them.

Keeps true:  `read` returns what was committed before it was called, also by the task's own transactions: it reads the
             topic to its end each time. Records of aborted and of open transactions are not seen.
             `write` returns when all offsets are in the topic.
             A key is always in the partition where Kafka's workers write it, so its newest offset is its last one.
Source:      Kafka Connect's `KafkaOffsetBackingStore`; keys and values are those of `offset_records`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from felice.client.confluent.consumer import Consumer
from felice.client.confluent.producer import Producer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import OFFSET_BEGINNING, Message, TopicPartition
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.json_records import skipped
from felice.pipelines.connect.storage.offset_records import (
    OffsetKey,
    key_bytes,
    key_from_bytes,
    key_of,
    partition_of,
    value_bytes,
    value_from_bytes,
)

_BATCH = 500
_SLICE_S = 0.5
PARTITIONER = "murmur2_random"
"""The partitioner of Java's producer."""
READING: Mapping[str, object] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "group.id": "felice-connect-offsets",  # a name that the client demands; no group is joined
}
WRITING: Mapping[str, object] = {"acks": "all", "enable.idempotence": True, "partitioner": PARTITIONER}


def read_some(consumer: Consumer) -> list[Message]:
    """The messages that are there; waits a short time for the first of them."""
    first = consumer.poll(_SLICE_S)
    return [] if first is None else [first, *consumer.consume(_BATCH, 0)]


class TopicOffsets:
    """The offsets of one connector (`OffsetStore`). Safe to use from several threads. `close` it at the end."""

    def __init__(
        self,
        connector: str,
        topic: str,
        consumer: Mapping[str, object],
        producer: Mapping[str, object],
        timeout_s: float = 60.0,
    ) -> None:
        """`consumer` and `producer` are their configurations. `timeout_s` limits each read and each write."""
        self._connector = connector
        self._topic = topic
        self._timeout_s = timeout_s
        self._producer_config = {
            **producer,
            **WRITING,
            "message.timeout.ms": max(1, int(timeout_s * 1000)),
        }
        self._producer: Producer | None = None
        self._consumer = Consumer({**consumer, **READING})
        self._lock = threading.Lock()
        self._next: dict[int, int] = {}
        """Of each partition, the offset after what was read."""
        self._offsets: dict[OffsetKey, dict[str, Any]] = {}

    def read(self, partitions: Sequence[Place]) -> list[Place | None]:
        """The committed offsets, or None. Raises `ConnectError` if brokers do not answer in time."""
        with self._lock:
            self._refresh()
            return [self._offsets.get(key_of(self._connector, one)) for one in partitions]

    def all(self) -> list[tuple[Place, Place]]:
        """Every partition of the source with its offset. Raises `ConnectError`."""
        with self._lock:
            self._refresh()
            return [(partition_of(key), found) for key, found in self._offsets.items()]

    def write(self, offsets: Sequence[tuple[Place, Place | None]]) -> None:
        """Writes offsets to the topic. Raises `ConnectError` if one of them may not be there."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message | None) -> None:
            if error is not None:
                failures.append(error)

        with self._lock:
            producer = self._producer = self._producer or Producer(self._producer_config)
            try:
                for partition, offset in offsets:
                    key = key_bytes(key_of(self._connector, partition))
                    value = None if offset is None else value_bytes(offset)
                    producer.produce(self._topic, value, key, on_delivery=delivered)
                left = producer.flush(self._timeout_s)
            except (KafkaException, BufferError) as error:
                raise ConnectError(f"cannot write to the offsets topic {self._topic}: {error}") from error
        if failures:
            raise self._failed("write to", failures[0])
        if left:
            raise ConnectError(
                f"cannot write to the offsets topic {self._topic}: no answer in {self._timeout_s:g} s"
            )

    def close(self) -> None:
        """Closes the clients."""
        with self._lock:
            self._consumer.close()
            if self._producer is not None:
                self._producer.close(0)

    # Reading

    def _refresh(self) -> None:
        try:
            self._read_to_end()
        except KafkaException as error:
            raise self._failed("read", error.error) from error

    def _read_to_end(self) -> None:
        give_up_at = time.monotonic() + self._timeout_s
        self._start_again()
        # A partition that begins to be read again says once where its end is.
        unfinished = set(self._next)
        while unfinished:
            if time.monotonic() > give_up_at:
                raise ConnectError(
                    f"cannot read the offsets topic {self._topic}: its end was not reached in {self._timeout_s:g} s"
                )
            for message in read_some(self._consumer):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    self._apply(message)
                    self._next[partition] = (message.offset() or 0) + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(partition)
                elif error.fatal() or not error.retriable():
                    raise KafkaException(error)

    def _start_again(self) -> None:
        """Reads all partitions on from where they were left."""
        found = self._consumer.list_topics(self._topic, self._timeout_s).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        self._next = {number: self._next.get(number, OFFSET_BEGINNING) for number in found.partitions}
        self._consumer.assign([TopicPartition(self._topic, *at) for at in self._next.items()])

    def _apply(self, message: Message) -> None:
        key, value = message.key(), message.value()
        try:
            place = key_from_bytes(key or b"")
            if value is None:
                self._offsets.pop(place, None)
            elif place[0] == self._connector:
                self._offsets[place] = value_from_bytes(value)
        except ConnectError as error:
            skipped("offsets", key, message.offset() or 0, error)

    def _failed(self, what: str, error: KafkaError) -> ConnectError:
        return ConnectError(f"cannot {what} the offsets topic {self._topic}: {error.str()}")
