"""`AsyncSerializingProducer` and `AsyncDeserializingConsumer`: coroutines that convert objects to bytes and back.

Create both with `await`: `producer = await AsyncSerializingProducer({...})`. Serializers and deserializers may be
coroutine functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

from felice.client.aio.confluent import AIOConsumer, AIOProducer
from felice.client.error import ConsumeError
from felice.client.model import Message
from felice.client.produce.values import HeadersInput
from felice.client.serialization.serdes import AsyncSerdes

K = TypeVar("K")
V = TypeVar("V")


class _WithSerdes:
    """Converts for the client that it is mixed into, which is created when builders have built the converters."""

    _kind: ClassVar[str]

    # confluent_kafka's signature, too, passes its keywords on to the base class.
    def __init__(self, conf: Mapping[str, object], **kwargs: Any) -> None:
        self._serdes = AsyncSerdes(conf, self._kind)
        self._client_arguments = kwargs
        if not self._serdes.has_builders:
            self._create()

    def _create(self) -> None:
        super().__init__(self._serdes.config, **self._client_arguments)  # type: ignore[call-arg]
        self._serdes.offer_cluster_id(self.cluster_id)  # type: ignore[attr-defined]

    def __await__(self) -> Generator[object, None, Self]:
        return self._created().__await__()

    async def _created(self) -> Self:
        if self._serdes.has_builders:
            await self._serdes.build()
            async with self._serdes.closed_on_error_later():
                self._create()
        return self

    async def close(self) -> None:
        """Close the client, then the serializers or deserializers that builders created."""
        try:
            await super().close()  # type: ignore[misc]
        finally:
            await self._serdes.aclose()


class AsyncSerializingProducer(_WithSerdes, AIOProducer, Generic[K, V]):
    """An `AIOProducer` whose `produce` accepts objects: see `SerializingProducer` for its configuration."""

    _kind = "serializer"

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
        data = await self._serdes.serialize_later(topic, key, value, headers)
        return await super().produce(
            topic, data[1], data[0], partition=partition, timestamp=timestamp, headers=headers
        )


class AsyncDeserializingConsumer(_WithSerdes, AIOConsumer, Generic[K, V]):
    """An `AIOConsumer` whose messages hold objects: see `DeserializingConsumer` for its configuration."""

    _kind = "deserializer"

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
        await self._serdes.deserialize_later(message)
