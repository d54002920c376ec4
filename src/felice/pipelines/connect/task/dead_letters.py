"""The dead-letter topic of a sink: records that failed, with the bytes that they had in their topic.

Keeps true:  `flush` returns only when every record that was reported is in the topic. The task commits no offset
             before.
Source:      KIP-298: names of the headers, and their order.
"""

from __future__ import annotations

import traceback

from felice.client.confluent.producer import Producer
from felice.client.error import KafkaError
from felice.client.model import Message
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.task.sending import send
from felice.pipelines.connect.task.tolerance import Failure

_PREFIX = "__connect.errors."


class DeadLetters:
    """Writes failed records to a topic. The producer belongs to it."""

    def __init__(
        self, producer: Producer, topic: str, connector: str, task: int, *, adds_headers: bool
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._connector, self._task = connector, task
        self._adds_headers = adds_headers
        self._error: KafkaError | None = None

    def report(self, failure: Failure) -> None:
        """Sends a record. One that is no message of a topic has no bytes to keep. Raises `ConnectError`."""
        message = failure.message
        if message is None:
            return
        headers = list(message.headers() or ())
        if self._adds_headers:
            headers += self._context(failure, message)
        send(
            self._producer,
            self._topic,
            self._on_delivery,
            self._raise_error,
            key=message.key(),
            value=message.value(),
            headers=headers,
            timestamp=max(0, message.timestamp()[1]),
        )
        self._producer.poll(0)
        self._raise_error()

    def flush(self, timeout_s: float) -> None:
        """Waits until all records are in the topic. Raises `RetriableError` after the time, and `ConnectError`."""
        left = self._producer.flush(timeout_s)
        self._raise_error()
        if left:
            raise RetriableError(
                f"{left} records were not written to the dead-letter topic {self._topic} in {timeout_s:g} s"
            )

    def close(self) -> None:
        """Closes the producer."""
        self._producer.close(0)

    def _on_delivery(self, error: KafkaError | None, message: Message | None) -> None:
        self._error = self._error or error

    def _raise_error(self) -> None:
        if (error := self._error) is not None:
            self._error = None
            raise ConnectError(
                f"a record was not written to the dead-letter topic {self._topic}: {error.str()}"
            )

    def _context(self, failure: Failure, message: Message) -> list[tuple[str, bytes | None]]:
        error = failure.error
        texts = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "connector.name": self._connector,
            "task.id": self._task,
            "stage": failure.stage.value,
            "class.name": failure.executing,
            "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
            "exception.message": str(error),
            "exception.stacktrace": "".join(traceback.format_exception(error)),
        }
        return [(_PREFIX + name, str(text).encode()) for name, text in texts.items()]
