"""The core of a producer on its event loop: accumulator, cluster, sender and transactor, made from the settings.

The blocking API (`confluent.producer`) and the asyncio API (`aio.producer`) build on it. They differ only in how a
caller waits and where its callbacks run. Each passes the core an `Inbox` that receives the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from felice.client.error import KafkaError, KafkaException, failure
from felice.client.model import ClusterMetadata, ThrottleEvent
from felice.client.net.cluster import Cluster
from felice.client.net.limits import limited
from felice.client.net.statistics import Document, Statistics
from felice.client.options import ProducerSettings
from felice.client.produce.accumulator import Accumulator, HeldRecord, Limits, check_topic
from felice.client.produce.partitioners import make_partitioner
from felice.client.produce.sender import Delivered, Sender
from felice.client.produce.statistics import describe_producer
from felice.client.produce.transaction import Transaction
from felice.client.produce.transactor import Transactor


def make_accumulator(settings: ProducerSettings, clock: Callable[[], float]) -> Accumulator:
    """An accumulator with the limits, partitioner and compression of the settings; `clock` is the loop's time."""
    transactional_id = settings.transactional_id
    memory = settings.buffer_memory or settings.queue_buffering_max_kbytes * 1024
    limits = Limits(
        batch_size_bytes=min(settings.batch_size, settings.message_max_bytes),
        batch_records=settings.batch_num_messages,
        linger_s=settings.linger_ms / 1000,
        queue_records=settings.queue_buffering_max_messages,
        queue_bytes=memory,
        message_max_bytes=settings.message_max_bytes,
        sticky_s=settings.sticky_partitioning_linger_ms / 1000,
    )
    random = settings.env.random
    partitioner = make_partitioner(settings.partitioner, random)
    codec, level = settings.compression_type, settings.level
    transaction = Transaction(transactional_id) if transactional_id else None
    return Accumulator(limits, partitioner, clock, codec, level, random, transaction)


class Inbox(Protocol):
    """Receives the results of records, on the loop."""

    def on_delivered(self, delivered: Delivered) -> None:
        """A batch was acknowledged or failed."""

    def on_dropped(self, record: HeldRecord, error: KafkaError) -> None:
        """A record failed before it was assigned to a partition."""

    def tell(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call a callback of the application with these arguments."""


class ProducerCore:
    """Accumulator, cluster, sender and transactor of one producer, on the running loop."""

    def __init__(self, settings: ProducerSettings, accumulator: Accumulator, inbox: Inbox) -> None:
        self.accumulator = accumulator
        self._settings = settings
        self._inbox = inbox
        self.cluster = Cluster(settings, self._on_error, self._on_throttled)
        self.sender = Sender(self.cluster, accumulator, settings, inbox.on_delivered, inbox.on_dropped)
        # A record for a new partition is refused until the sender has seen the partition.
        self.cluster.on_refreshed = self.sender.wake
        self.statistics = Statistics(self.cluster, settings, self._describe, inbox.tell)
        self.statistics.start()
        transaction = accumulator.transaction
        self._transactor = (
            Transactor(self.cluster, self.sender, transaction, settings) if transaction is not None else None
        )

    def _on_error(self, error: KafkaError) -> None:
        if self._settings.error_cb is not None:
            self._inbox.tell(self._settings.error_cb, error)

    def _on_throttled(self, event: ThrottleEvent) -> None:
        if self._settings.throttle_cb is not None:
            self._inbox.tell(self._settings.throttle_cb, event)

    def _describe(self, document: Document) -> None:
        if self.sender.counts is not None:
            describe_producer(document, self.cluster, self.accumulator, self.sender.counts)

    @property
    def transactor(self) -> Transactor:
        """The transactor; raises without `transactional.id`."""
        if self._transactor is None:
            raise failure(KafkaError._NOT_CONFIGURED, 'transactions need a "transactional.id"')
        return self._transactor

    @classmethod
    async def start(cls, settings: ProducerSettings, accumulator: Accumulator, inbox: Inbox) -> ProducerCore:
        """Create the producer on the running event loop."""
        return cls(settings, accumulator, inbox)

    async def metadata(
        self,
        topics: Iterable[str] | None,
        timeout_s: float | None = None,
        code: int = KafkaError._TRANSPORT,
    ) -> ClusterMetadata:
        """Refresh and return the cluster's metadata, of all topics if None. An empty name stands for no topic.

        `timeout_s` is `request.timeout.ms` if it is None or negative. After it, the call raises `code`.
        """
        limit_s = self.cluster.timeout_s if timeout_s is None or timeout_s < 0 else timeout_s
        return await self.cluster.describe(topics, limit_s, code)

    async def open_topic(self, topic: str, timeout_s: float) -> tuple[int, Sequence[int]]:
        """Return the number of partitions of a topic, and those with a leader (all if none has one).

        By then, the records that were held for the topic are appended.
        """
        check_topic(topic)
        try:
            async with limited(timeout_s, f"metadata of {topic}: no answer"):
                await self.sender.open_topic(topic, timeout_s)
        except KafkaException as error:
            if error.code == KafkaError._TIMED_OUT and self.cluster.why_no_metadata is not None:
                raise self.cluster.why_no_metadata from None
            raise
        with self.accumulator.lock:
            opened = self.accumulator.topics[topic]
            return opened.count, opened.led

    async def close(self) -> None:
        """Refuse further records, fail those that are left, and close the connections."""
        with self.accumulator.lock:
            self.accumulator.close()
        self.sender.close()
        await self.cluster.close()
