"""`SerializingProducer`: a producer that converts objects to bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from felice.client.confluent.producer import Producer
from felice.client.produce.batches import Report
from felice.client.produce.values import HeadersInput
from felice.client.serialization.serdes import Serdes

__all__ = ["SerializingProducer"]

K = TypeVar("K")
V = TypeVar("V")


class SerializingProducer(Producer, Generic[K, V]):
    """A `Producer` whose `produce` accepts objects.

    Besides a producer's configuration it accepts `key.serializer` and `value.serializer`: callables
    `(obj, SerializationContext) -> bytes`, such as those of `felice.client.serialization`; or
    `key.serializer.builder` and `value.serializer.builder`.
    """

    def __init__(self, conf: Mapping[str, object]) -> None:
        self._serdes = Serdes(conf, "serializer")
        with self._serdes.closed_on_error():
            super().__init__(self._serdes.config)
            self._serdes.offer_cluster_id(self.cluster_id)

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: HeadersInput = None,
    ) -> None:
        """Serialize and queue one record. Note that the key comes before the value here.

        Raises `KeySerializationError` or `ValueSerializationError` with the serializer's exception, and the errors of
        `Producer.produce`.
        """
        self._check_open()
        data = self._serdes.serialize(topic, key, value, headers)
        super().produce(
            topic,
            data[1],
            data[0],
            partition,
            on_delivery=on_delivery,
            timestamp=timestamp,
            headers=headers,
        )

    def close(self, timeout: float = -1) -> bool:
        """Close the producer, then the serializers that builders created."""
        try:
            return super().close(timeout)
        finally:
            self._serdes.close()
