"""`DeserializingConsumer`: a consumer that converts the bytes of messages to objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from felice.client.confluent.consumer import Consumer
from felice.client.error import ConsumeError
from felice.client.model import Message
from felice.client.serialization.serdes import Serdes

__all__ = ["DeserializingConsumer"]

K = TypeVar("K")
V = TypeVar("V")


class DeserializingConsumer(Consumer, Generic[K, V]):
    """A `Consumer` whose messages hold objects as key and value.

    Besides a consumer's configuration it accepts `key.deserializer` and `value.deserializer`: callables
    `(bytes, SerializationContext) -> obj`, such as those of `felice.client.serialization`; or
    `key.deserializer.builder` and `value.deserializer.builder`.
    """

    def __init__(self, conf: Mapping[str, object]) -> None:
        self._serdes = Serdes(conf, "deserializer")
        with self._serdes.closed_on_error():
            super().__init__(self._serdes.config)
            self._serdes.offer_cluster_id(self.cluster_id)

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message with its objects; None if there is none within `timeout` seconds (-1: no limit).

        Raises `ConsumeError` for an error event, `KeyDeserializationError` or `ValueDeserializationError` with the
        deserializer's exception; `kafka_message` has the message.
        """
        message = super().poll(timeout)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        try:
            return self._serdes.deserialize(message)
        except Exception:
            raise
        except BaseException:
            # A signal handler raised: nobody has seen the message, the next call returns it.
            self._delivery.untake(message)
            raise

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Raise `NotImplementedError`, as confluent_kafka does: use `poll`."""
        raise NotImplementedError("a DeserializingConsumer has no consume: use poll")

    def close(self) -> None:
        """Close the consumer, then the deserializers that builders created."""
        try:
            super().close()
        finally:
            self._serdes.close()
