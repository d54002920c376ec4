"""The client for programs with an event loop.

`Producer`, `Consumer` and `Admin` are this project's own coroutine API. `AIOProducer`, `AIOConsumer` and the two
classes with serializers have confluent_kafka's names and arguments.
"""

from __future__ import annotations

from felice.client.admin.core import Admin
from felice.client.aio.confluent import AIOConsumer, AIOProducer
from felice.client.aio.consumer import AsyncConsumer as Consumer
from felice.client.aio.producer import AsyncProducer as Producer
from felice.client.aio.serializing import AsyncDeserializingConsumer, AsyncSerializingProducer

__all__ = [
    "AIOConsumer",
    "AIOProducer",
    "Admin",
    "AsyncDeserializingConsumer",
    "AsyncSerializingProducer",
    "Consumer",
    "Producer",
]
