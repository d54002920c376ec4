"""How the topics of workers are read and written by consumers and producers.

Keeps true:  a key is always in the partition where Kafka's workers write it, so its newest record is its last one.
             `write_records` returns when all records are in the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from felice.client.confluent.consumer import Consumer
from felice.client.confluent.producer import Producer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import Message
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.json_records import Record

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
_WRITING: Mapping[str, object] = {"acks": "all", "enable.idempotence": True, "partitioner": PARTITIONER}


def writing(config: Mapping[str, object], timeout_s: float) -> dict[str, object]:
    """The configuration of a producer for such a topic, which gives a record up after this time."""
    return {**config, **_WRITING, "message.timeout.ms": max(1, int(timeout_s * 1000))}


def read_some(consumer: Consumer) -> list[Message]:
    """The messages that are there; waits a short time for the first of them."""
    first = consumer.poll(_SLICE_S)
    return [] if first is None else [first, *consumer.consume(_BATCH, 0)]


def write_records(
    producer: Producer, what: str, topic: str, records: Iterable[Record], timeout_s: float
) -> dict[int, int]:
    """Writes records to a topic, which errors call `what`. Returns the last offset of each partition.

    Raises `ConnectError` if one of them may not be there.
    """
    failures: list[KafkaError] = []
    written: dict[int, int] = {}

    def delivered(error: KafkaError | None, message: Message | None) -> None:
        if error is not None:
            failures.append(error)
        elif message is not None:
            written[message.partition() or 0] = message.offset() or 0

    try:
        for key, value in records:
            producer.produce(topic, value, key, on_delivery=delivered)
        left = producer.flush(timeout_s)
    except (KafkaException, BufferError) as error:
        raise ConnectError(f"cannot write to the {what} topic {topic}: {error}") from error
    if failures:
        raise ConnectError(f"cannot write to the {what} topic {topic}: {failures[0].str()}")
    if left:
        raise ConnectError(f"cannot write to the {what} topic {topic}: no answer in {timeout_s:g} s")
    return written
