"""The same as `felice.client.aio`, under the name that confluent_kafka used while its asyncio API was new."""

from __future__ import annotations

from felice.client.aio import AIOConsumer, AIOProducer

__all__ = ["AIOConsumer", "AIOProducer"]
