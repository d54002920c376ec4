"""`AsyncSerializingProducer` and `AsyncDeserializingConsumer`: coroutines that convert objects to bytes and back.

Create both with `await`: `producer = await AsyncSerializingProducer({...})`. Serializers and deserializers may be
coroutine functions.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator, Mapping
from typing import Any, Generic, Self, TypeVar

from felice.client.aio.confluent import AIOConsumer, AIOProducer
from felice.client.error import (
    ConsumeError,
    KeyDeserializationError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from felice.client.model import Message
from felice.client.produce.values import HeadersInput
from felice.client.serialization import MessageField, SerializationContext
from felice.client.serialization.serdes import AsyncSerdes

K = TypeVar("K")
V = TypeVar("V")


async def _settled(value: object) -> object:
    return await value if inspect.isawaitable(value) else value


class AsyncSerializingProducer(AIOProducer, Generic[K, V]):
    """An `AIOProducer` whose `produce` accepts objects: see `SerializingProducer` for its configuration."""

    # confluent_kafka's signature, too, passes its keywords on to the base class.
    def __init__(self, conf: Mapping[str, object], **kwargs: Any) -> None:
        self._serdes = AsyncSerdes(conf, "serializer")
        self._client_arguments = kwargs
        if not self._serdes.has_builders:
            self._create()

    def _create(self) -> None:
        super().__init__(self._serdes.config, **self._client_arguments)
        self._serdes.offer_cluster_id(self.cluster_id)

    def __await__(self) -> Generator[object, None, Self]:
        return self._created().__await__()

    async def _created(self) -> Self:
        if self._serdes.has_builders:
            await self._serdes.build()
            async with self._serdes.closed_on_error_later():
                self._create()
        return self

    async def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: HeadersInput = None,
    ) -> asyncio.Future[Message]:
        """Serialize and queue one record. Note that the key comes before the value here.

        Raises `KeySerializationError` or `ValueSerializationError` with the serializer's exception.
        """
        context = SerializationContext(topic, MessageField.KEY, headers)
        data: list[Any] = [key, value]
        steps = ((self._serdes.key, KeySerializationError), (self._serdes.value, ValueSerializationError))
        for index, (serde, failed) in enumerate(steps):
            context.field = (MessageField.KEY, MessageField.VALUE)[index]
            if serde is not None:
                try:
                    data[index] = await _settled(serde(data[index], context))
                except Exception as error:
                    raise failed(error) from error
        return await super().produce(
            topic, data[1], data[0], partition=partition, timestamp=timestamp, headers=headers
        )

    async def close(self) -> None:
        """Close the producer, then the serializers that builders created."""
        try:
            await super().close()
        finally:
            await self._serdes.aclose()


class AsyncDeserializingConsumer(AIOConsumer, Generic[K, V]):
    """An `AIOConsumer` whose messages hold objects: see `DeserializingConsumer` for its configuration."""

    # confluent_kafka's signature, too, passes its keywords on to the base class.
    def __init__(self, conf: Mapping[str, object], **kwargs: Any) -> None:
        self._serdes = AsyncSerdes(conf, "deserializer")
        self._client_arguments = kwargs
        if not self._serdes.has_builders:
            self._create()

    def _create(self) -> None:
        super().__init__(self._serdes.config, **self._client_arguments)
        self._serdes.offer_cluster_id(self.cluster_id)

    def __await__(self) -> Generator[object, None, Self]:
        return self._created().__await__()

    async def _created(self) -> Self:
        if self._serdes.has_builders:
            await self._serdes.build()
            async with self._serdes.closed_on_error_later():
                self._create()
        return self

    async def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message with its objects. Raises like `DeserializingConsumer.poll`."""
        messages = await self._consume_converted(1, timeout)
        if not messages:
            return None
        error = messages[0].error()
        if error is not None:
            raise ConsumeError(error, kafka_message=messages[0])
        return messages[0]

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` with their objects; error events are included unchanged.

        If a deserializer fails, the messages before that one are returned, and the next call raises its exception.
        """
        return await self._consume_converted(num_messages, timeout)

    async def _consume_converted(self, num_messages: int, timeout: float) -> list[Message]:
        limit_s = None if timeout < 0 else timeout
        return await self._open.consume_converted(num_messages, limit_s, self._deserialize)

    async def _deserialize(self, message: Message) -> None:
        if message.error() is not None:
            return
        context = SerializationContext(message.topic() or "", MessageField.KEY, message.headers())
        data: list[object] = [message.key(), message.value()]
        steps = (
            (self._serdes.key, KeyDeserializationError),
            (self._serdes.value, ValueDeserializationError),
        )
        for index, (serde, failed) in enumerate(steps):
            context.field = (MessageField.KEY, MessageField.VALUE)[index]
            if serde is not None:
                try:
                    data[index] = await _settled(serde(data[index], context))
                except Exception as error:
                    raise failed(error, message) from error
        message.set_key(data[0])
        message.set_value(data[1])

    async def close(self) -> None:
        """Close the consumer, then the deserializers that builders created."""
        try:
            await super().close()
        finally:
            await self._serdes.aclose()
