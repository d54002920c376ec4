"""The task of the source: reads partitions of the source cluster, and notes where their records are in the target.

Keeps true:  a record keeps its partition, key, value, headers and time, and the order of its partition.
             Reading goes on after the last record whose offset was committed; the source's own groups are not touched.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from felice.client.confluent.consumer import Consumer
from felice.client.confluent.producer import Producer
from felice.client.error import KafkaException
from felice.client.model import OFFSET_BEGINNING, OFFSET_END, Message, TopicPartition
from felice.pipelines.connect.connector.base import SourceTask
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.connector.contexts import TopicPartition as Partition
from felice.pipelines.connect.connectors.mirror.clusters import SOURCE, Clusters, failure_of, may_pass
from felice.pipelines.connect.connectors.mirror.offset_syncs import OffsetSyncs
from felice.pipelines.connect.connectors.mirror.options import PARTITIONS
from felice.pipelines.connect.connectors.mirror.options import SOURCE as OPTIONS
from felice.pipelines.connect.connectors.mirror.places import (
    CLUSTER,
    OFFSET,
    PARTITION,
    TOPIC,
    partition_of,
)
from felice.pipelines.connect.connectors.mirror.translation import Sync
from felice.pipelines.connect.model.record import Header, SourceRecord
from felice.pipelines.connect.model.schema import BYTES, Schema

_log = logging.getLogger("felice.connect.mirror")

_BATCH = 2_000
_FLUSH_S = 5.0
_BYTES = Schema(BYTES, optional=True)
_READING: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "group.id": "felice-mirror",  # a name that the client demands; no group is joined
}


class MirrorSourceTask(SourceTask):
    """Mirrors its partitions."""

    _clients = ExitStack()
    """Closes the clients that `start` has made, the last one first."""

    def start(self, config: Mapping[str, str]) -> None:
        """Goes on after the last offsets."""
        self._clients = ExitStack()
        values = OPTIONS.parse(dict(config))
        self._wait_s: float = values["consumer.poll.timeout.ms"] / 1000
        self._clusters = Clusters(config, values)
        self._clients.callback(self._clusters.close)
        names, alias = self._clusters.names, self._clusters.source_alias
        mine = [partition_of(text) for text in config[PARTITIONS].split(",")]
        self._places: dict[Partition, Place] = {
            one: {CLUSTER: alias, TOPIC: one[0], PARTITION: one[1]} for one in mine
        }
        self._remote = {topic: names.remote(alias, topic) for topic, _ in mine}
        self._syncs = (
            self._made_syncs(values["offset.lag.max"]) if values["emit.offset-syncs.enabled"] else None
        )
        if self._syncs is not None:
            self._clients.callback(self._syncs.close, _FLUSH_S)
        settings = {
            "auto.offset.reset": "earliest",
            **self._clusters.settings(SOURCE, "consumer"),
            **_READING,
        }
        self._consumer = Consumer(settings)
        self._clients.callback(self._consumer.close)
        self._consumer.assign(self._beginnings(str(settings["auto.offset.reset"])))

    def poll(self) -> Sequence[SourceRecord] | None:
        """The records that are there; waits for some."""
        first = self._consumer.poll(self._wait_s)
        if first is None:
            return None
        messages = [first, *self._consumer.consume(_BATCH, 0)]
        return [self._record(one) for one in messages if not self._is_error(one)]

    def commit_record(self, record: SourceRecord, topic: str | None, partition: int, offset: int) -> None:
        """Notes where the record is in the target."""
        if self._syncs is not None and topic is not None and offset >= 0:
            place = record.source_partition
            sync = Sync(record.source_offset[OFFSET], offset)
            self._syncs.mirrored((place[TOPIC], place[PARTITION]), sync)

    def commit(self) -> None:
        """Writes the offset syncs that were left out."""
        if self._syncs is not None:
            self._syncs.committed()

    def close(self) -> None:
        """Closes the clients."""
        self._clients.close()

    def _made_syncs(self, max_lag: int) -> OffsetSyncs:
        cluster, topic = self._clusters.syncs
        settings = {**self._clusters.settings(cluster, "producer"), "acks": "all", "linger.ms": 5}
        return OffsetSyncs(Producer(settings), topic, max_lag)

    def _beginnings(self, reset: str) -> list[TopicPartition]:
        start = OFFSET_END if reset in ("latest", "largest", "end") else OFFSET_BEGINNING
        known = self.context.offsets(self._places.values())
        return [
            TopicPartition(*one, start if place is None else place[OFFSET] + 1)
            for one, place in zip(self._places, known, strict=True)
        ]

    def _is_error(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.fatal() or not may_pass(error):
            raise failure_of(KafkaException(error), f"cannot read {self._clusters.source_alias}")
        _log.warning("reading %s: %s", self._clusters.source_alias, error.str())
        return True

    def _record(self, message: Message) -> SourceRecord:
        topic, partition = message.topic() or "", message.partition() or 0
        kind, time_ms = message.timestamp()
        return SourceRecord(
            self._remote[topic],
            partition,
            _BYTES,
            message.key(),
            _BYTES,
            message.value(),
            time_ms if kind else None,
            tuple(Header(name, _BYTES, value) for name, value in message.headers() or ()),
            source_partition=self._places[topic, partition],
            source_offset={OFFSET: message.offset()},
        )
