"""What a producer sent, counted by topic and partition for its statistics."""

from __future__ import annotations

from felice.client.model import Partition
from felice.client.net.traffic import Window
from felice.client.produce.batches import ProducerBatch


class ProducerCounts:
    """What the sender counts: called on the loop."""

    def __init__(self) -> None:
        self.records: dict[Partition, int] = {}
        self.bytes: dict[Partition, int] = {}
        self.batch_bytes: dict[str, Window] = {}
        self.batch_records: dict[str, Window] = {}

    def on_sent(self, batch: ProducerBatch) -> None:
        """A batch leaves in a request."""
        self.batch_bytes.setdefault(batch.topic, Window()).add(len(batch.data))
        self.batch_records.setdefault(batch.topic, Window()).add(batch.record_count)

    def on_delivered(self, batch: ProducerBatch) -> None:
        """A batch was written."""
        key = (batch.topic, batch.partition)
        self.records[key] = self.records.get(key, 0) + batch.record_count
        self.bytes[key] = self.bytes.get(key, 0) + len(batch.data)
