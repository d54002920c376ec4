"""Which pairs of offsets a mirror writes down, so that the places of groups can be translated.

Keeps true:  a pair is written for the first record of a partition after a start, after every `max_lag` records, where
             offsets of the source are left out, and where the mirror's offsets fall. The newest pair that was left out
             follows when offsets are committed, so that the end of a partition that is quiet is known, too.
Source:      `MirrorSourceTask.PartitionState` and `OffsetSyncWriter` of Kafka.
"""

from __future__ import annotations

import logging

from felice.client.confluent.producer import Producer
from felice.client.error import KafkaError
from felice.client.model import Message
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.mirror.records import OffsetSyncKey, OffsetSyncValue, encoded
from felice.pipelines.connect.connectors.mirror.translation import Sync

_log = logging.getLogger("felice.connect.mirror")


class OffsetSyncs:
    """Chooses and writes the pairs of one task. `producer` writes to the cluster that has the topic."""

    def __init__(self, producer: Producer, topic: str, max_lag: int) -> None:
        self._producer = producer
        self._topic = topic
        self._max_lag = max_lag
        self._last: dict[TopicPartition, Sync] = {}
        """The newest pairs."""
        self._written: dict[TopicPartition, int] = {}
        """The mirror's offsets of the last pairs that were chosen."""
        self._left_out: dict[TopicPartition, Sync] = {}
        self._chosen: dict[TopicPartition, Sync] = {}

    def mirrored(self, partition: TopicPartition, sync: Sync) -> None:
        """A record is in the mirror."""
        last, written = self._last.get(partition), self._written.get(partition)
        self._last[partition] = sync
        if (
            last is None
            or written is None
            or sync.downstream - (written + 1) >= self._max_lag
            or sync.upstream - last.upstream != 1
            or sync.downstream < last.downstream
        ):
            self._choose(partition, sync)
            self._write()
        else:
            self._left_out[partition] = sync

    def committed(self) -> None:
        """The task's offsets were committed: writes what was left out."""
        for partition, sync in list(self._left_out.items()):
            self._choose(partition, sync)
        self._write()

    def close(self, timeout_s: float) -> None:
        """Waits for what is on its way."""
        self._producer.flush(timeout_s)
        self._producer.close(0)

    def _choose(self, partition: TopicPartition, sync: Sync) -> None:
        self._written[partition] = sync.downstream
        self._chosen[partition] = sync
        self._left_out.pop(partition, None)

    def _write(self) -> None:
        """Writes the chosen pairs, as long as the producer takes them. Later pairs replace one that is lost."""
        for partition, sync in list(self._chosen.items()):
            key, value = encoded(
                OffsetSyncKey(topic=partition[0], partition=partition[1]),
                OffsetSyncValue(upstream_offset=sync.upstream, downstream_offset=sync.downstream),
            )
            try:
                self._producer.produce(self._topic, value, key, partition=0, on_delivery=_delivered)
            except BufferError:
                break
            del self._chosen[partition]
        self._producer.poll(0)


def _delivered(error: KafkaError | None, message: Message | None) -> None:
    if error is not None:
        _log.warning("an offset sync is lost: %s", error.str())
