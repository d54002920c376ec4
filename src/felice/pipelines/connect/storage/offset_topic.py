"""The offsets of a connector in the offsets topic of the workers, as a task reads and writes them.

Keeps true:  `read` returns what was committed before it was called, also by the task's own transactions: it reads the
             topic to its end each time. Records of aborted and of open transactions are not seen.
             `write` returns when all offsets are in the topic.
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
from felice.pipelines.connect.storage.topic_clients import READING, read_some, write_records, writing


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
        self._producer_config = writing(producer, timeout_s)
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
        records = [
            (key_bytes(key_of(self._connector, partition)), None if offset is None else value_bytes(offset))
            for partition, offset in offsets
        ]
        with self._lock:
            producer = self._producer = self._producer or Producer(self._producer_config)
            write_records(producer, "offsets", self._topic, records, self._timeout_s)

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
            raise ConnectError(f"cannot read the offsets topic {self._topic}: {error.error.str()}") from error

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
