"""Keys of the other kind of client cause a warning where librdkafka warns, and none where it does not."""

from __future__ import annotations

import logging
from typing import Any

import confluent_kafka
import pytest

from felice.client.keys import Key
from felice.client.options import KEYS, ConsumerSettings, ProducerSettings

# Keys of Java or of the Python package, which librdkafka does not know.
UNKNOWN_TO_LIBRDKAFKA = {"buffer.memory", "on_delivery", "on_commit"}
VALUES = {
    "acks": "all",
    "auto.offset.reset": "earliest",
    "compression.type": "none",
    "group.id": "g",
    "group.instance.id": "i",
    "group.remote.assignor": "range",
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "range",
    "partitioner": "murmur2",
    "transactional.id": "t",
}
OF_ONE_KIND = [key for key in KEYS if key.clients in ("p", "c") and key.name not in UNKNOWN_TO_LIBRDKAFKA]


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def value_of(key: Key) -> Any:
    if key.name in VALUES:
        return VALUES[key.name]
    return str(key.default).lower() if isinstance(key.default, bool) else key.default


def librdkafka_warns(kind: str, name: str, value: Any) -> bool:
    heard = _Heard()
    logger = logging.Logger("librdkafka")
    logger.addHandler(heard)
    if kind == "p":
        confluent_kafka.Producer({name: value}, logger=logger).poll(0.02)
    else:
        consumer = confluent_kafka.Consumer({"group.id": "g", name: value}, logger=logger)
        consumer.poll(0.02)
        consumer.close()
    return any("will be ignored" in line for line in heard.lines)


@pytest.mark.parametrize("key", OF_ONE_KIND, ids=lambda key: key.name)
def test_key_of_the_other_kind_is_warned_of_as_librdkafka_does(key: Key) -> None:
    other = ConsumerSettings if key.clients == "p" else ProducerSettings
    value = value_of(key)
    ours = other.parse({"bootstrap.servers": "h", key.name: value}).without_effect
    assert bool(ours) == librdkafka_warns(other.kind, key.name, value)
