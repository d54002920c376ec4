"""The same as `felice.client.aio`, by the name that confluent_kafka used while it was new."""

from __future__ import annotations

from felice.client.aio import AIOConsumer, AIOProducer

__all__ = ["AIOConsumer", "AIOProducer"]
