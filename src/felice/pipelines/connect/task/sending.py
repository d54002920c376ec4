"""Sends a record with a producer whose queue may be full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from felice.client.confluent.producer import Producer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import Message

Report = Callable[[KafkaError | None, Message | None], None]

_WAIT_S = 0.1


def send(
    producer: Producer, topic: str, on_delivery: Report, after_wait: Callable[[], None], **record: Any
) -> None:
    """Queues a record (`record` as for `produce`), and waits while the queue is full: `after_wait` may raise then.

    A record that the producer refuses at once is reported to `on_delivery`, too.
    """
    while True:
        try:
            producer.produce(topic, on_delivery=on_delivery, **record)
            return
        except BufferError:
            producer.poll(_WAIT_S)
            after_wait()
        except KafkaException as error:
            on_delivery(error.args[0], None)
            return
