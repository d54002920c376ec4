"""Counts sent batches by topic and partition for the producer's statistics."""

from __future__ import annotations

from felice.client.model import Partition
from felice.client.net.traffic import Window
from felice.client.produce.batches import ProducerBatch


class ProducerCounts:
    """The sender's counters. Called on the loop."""

    def __init__(self) -> None:
        self.records: dict[Partition, int] = {}
        self.bytes: dict[Partition, int] = {}
        self.batch_bytes: dict[str, Window] = {}
        self.batch_records: dict[str, Window] = {}

    def on_sent(self, batch: ProducerBatch) -> None:
        """Count a batch that is sent in a request."""
        self.batch_bytes.setdefault(batch.topic, Window()).add(len(batch.data))
        self.batch_records.setdefault(batch.topic, Window()).add(batch.record_count)

    def on_delivered(self, batch: ProducerBatch) -> None:
        """Count a batch that a broker acknowledged."""
        key = (batch.topic, batch.partition)
        self.records[key] = self.records.get(key, 0) + batch.record_count
        self.bytes[key] = self.bytes.get(key, 0) + len(batch.data)
