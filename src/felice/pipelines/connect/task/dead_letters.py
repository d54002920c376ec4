"""The dead-letter topic: records that failed. Those of a sink have the bytes that they had in their topic.

A record of a source may have no bytes yet: its dead letter is JSON with its topic, key, value and place.

Keeps true:  `flush` returns only when every record that was reported is in the topic. The task commits no offset
             before.
             After one that could not be written `flush` never succeeds again.
             A record that is too large for a topic leaves its place and its size.
Source:      KIP-298: names of the headers, and their order. Kafka keeps dead letters of sinks only.
"""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from felice.client.confluent.producer import Producer
from felice.client.error import KafkaError
from felice.client.model import Message
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.model.schema import Struct
from felice.pipelines.connect.task.sending import send
from felice.pipelines.connect.task.tolerance import Failure

_PREFIX = "__connect.errors."
_LARGEST_BYTES = 500_000
"""Brokers take records of 1 MB by default, with their headers."""


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
        """Sends a record. Raises `ConnectError`."""
        if (message := failure.message) is not None:
            self._send(
                failure, message.key(), message.value(), message.headers() or (), message.timestamp()[1]
            )
        elif (record := failure.source_record) is not None:
            self._send(failure, None, described(record), (), record.timestamp or 0)

    def _send(
        self,
        failure: Failure,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int,
    ) -> None:
        context = self._context(failure) if self._adds_headers else []
        send(
            self._producer,
            self._topic,
            self._on_delivery,
            self._raise_error,
            key=key,
            value=value,
            headers=[*headers, *context],
            timestamp=max(0, timestamp_ms),
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
            raise ConnectError(
                f"a record was not written to the dead-letter topic {self._topic}: {error.str()}"
            )

    def _context(self, failure: Failure) -> list[tuple[str, bytes | None]]:
        error = failure.error
        texts = {
            **_place(failure),
            "connector.name": self._connector,
            "task.id": self._task,
            "stage": failure.stage.value,
            "class.name": failure.executing,
            "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
            "exception.message": str(error),
            "exception.stacktrace": "".join(traceback.format_exception(error)),
        }
        return [(_PREFIX + name, str(text).encode()) for name, text in texts.items()]


def _place(failure: Failure) -> dict[str, object]:
    if (message := failure.message) is not None:
        return {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
    return {} if failure.source_record is None else {"topic": failure.source_record.topic}


def described(record: SourceRecord) -> bytes:
    """A record of a source as JSON: bytes as base64, and what JSON does not have as text."""
    place = {
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp,
        "source_partition": dict(record.source_partition),
        "source_offset": dict(record.source_offset),
    }
    headers = [[one.name, one.value] for one in record.headers]
    whole = _json({**place, "headers": headers, "key": record.key, "value": record.value})
    return whole if len(whole) <= _LARGEST_BYTES else _json({**place, "left_out_bytes": len(whole)})


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, default=_plain, skipkeys=True).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return dict(value.items()) if isinstance(value, Struct) else str(value)
