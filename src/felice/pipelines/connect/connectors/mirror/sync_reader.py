"""Reads the topic of offset syncs to its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from felice.client.confluent.consumer import Consumer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import OFFSET_BEGINNING, TopicPartition
from felice.pipelines.connect.connectors.mirror.clusters import failure_of, may_pass
from felice.pipelines.connect.connectors.mirror.records import offset_sync
from felice.pipelines.connect.connectors.mirror.translation import Sync, Translation
from felice.pipelines.connect.model.errors import RetriableError
from felice.pipelines.connect.storage.topic_clients import READING, read_some
from felice.protocol.primitives import MalformedMessage

_log = logging.getLogger("felice.connect.mirror")


class SyncReader:
    """Follows the topic. The topic has one partition."""

    def __init__(self, settings: Mapping[str, object], topic: str) -> None:
        self.translation = Translation()
        self._topic = topic
        self._next = 0
        self._consumer = Consumer({**settings, **READING})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read(self, limit_s: float) -> None:
        """Reads all syncs that are there now. Raises `RetriableError` if that takes longer, and `ConnectError`."""
        give_up_at = time.monotonic() + limit_s
        start, end = self._limits(limit_s)
        while max(self._next, start) < end:
            if time.monotonic() > give_up_at:
                raise RetriableError(f"the topic {self._topic} was not read to its end in {limit_s:g} s")
            for message in read_some(self._consumer):
                error = message.error()
                if error is None:
                    self._next = (message.offset() or 0) + 1
                    self._take(message.key(), message.value())
                elif error.fatal() or not (may_pass(error) or error.code() == KafkaError._PARTITION_EOF):
                    raise failure_of(KafkaException(error), f"cannot read the topic {self._topic}")

    def _limits(self, limit_s: float) -> tuple[int, int]:
        """The topic's first offset, and the offset after its last record."""
        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), limit_s)
        except KafkaException as error:
            raise failure_of(error, f"cannot read the topic {self._topic}") from error
        if found is None:
            raise RetriableError(f"the end of the topic {self._topic} is not known")
        return found

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or value is None:
            return
        try:
            partition, offsets = offset_sync(key, value)
        except MalformedMessage as error:
            _log.warning("a record of the topic %s is no offset sync: %s", self._topic, error)
            return
        sync = Sync(offsets.upstream_offset, offsets.downstream_offset)
        self.translation.add((partition.topic, partition.partition), sync)
