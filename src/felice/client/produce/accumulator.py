"""Records waiting to be sent: one open batch per partition, a bounded whole. Pure but for its lock.

Keeps true:  records of a partition leave in the order in which they were appended. The number of records and bytes
             held never exceeds its bounds: then `append` raises `BufferError`, and nothing is half appended.
             A record is counted until its report was served (or it was dropped), so an empty accumulator means
             that everything was answered for.
How:         `append` runs in the caller's thread under one lock and touches one builder. It tells whether the
             sender must be woken, which is once per batch, not once per record.
Leaves:      sockets, retries and sequences' meaning to `sender`; the time is an argument.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any

from felice.client.error import KafkaError, KafkaException, failure, kafka_error
from felice.client.produce.batches import PartitionQueue, ProducerBatch, Report
from felice.client.produce.partitioners import Partitioner
from felice.client.produce.transaction import Transaction
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec

# Upper bound of what a record takes beside its key, value and headers.
_RECORD_OVERHEAD_BYTES = 36
_HEADER_OVERHEAD_BYTES = 10
_LAST_TIMESTAMP = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds and batching, from the configuration."""

    batch_size_bytes: int = 1_000_000
    batch_records: int = 10_000
    linger_s: float = 0.005
    queue_records: int = 100_000
    queue_bytes: int = 1 << 30
    message_max_bytes: int = 1_000_000
    sticky_s: float = 0.01


@dataclass(slots=True)
class HeldRecord:
    """A record whose topic's partitions are not known yet."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any
    report: Report | None
    size_bytes: int


class TopicQueues:
    """Empty `queues`: the topic is not known yet and its records are held."""

    __slots__ = ("held", "name", "queues", "sticky", "sticky_until")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.held: deque[HeldRecord] = deque()
        self.sticky = -1
        self.sticky_until = 0.0


class Accumulator:
    """Everything is called under `lock`, which `append` takes itself."""

    def __init__(
        self,
        limits: Limits,
        partitioner: Partitioner,
        codec: int = 0,
        level: int = -1,
        random: Random | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        self.transaction = transaction
        self.limits = limits
        self.lock = threading.Lock()
        self.topics: dict[str, TopicQueues] = {}
        self.record_count = 0
        self.size_bytes = 0
        self.flushing = 0
        self.closed = False
        self.unknown_topics: set[str] = set()
        self._partitioner = partitioner
        self._random = random or Random()
        self._codec = Codec(codec)
        self._level = None if level < 0 else level
        self._open: dict[PartitionQueue, ProducerBatch] = {}

    def append(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Any,
        report: Report | None,
        now: float,
    ) -> bool:
        """Take in one record; True if the sender has something new to do."""
        if not isinstance(topic, str):
            raise TypeError(f"expected topic as str, got {type(topic).__name__}")
        if not 0 <= timestamp <= _LAST_TIMESTAMP:
            raise failure(KafkaError._INVALID_ARG, f"timestamp {timestamp} is not a time in milliseconds")
        size = _RECORD_OVERHEAD_BYTES
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            size += sum(len(k) + len(v or b"") + _HEADER_OVERHEAD_BYTES for k, v in headers)
        if size > self.limits.message_max_bytes:
            raise failure(
                KafkaError.MSG_SIZE_TOO_LARGE,
                f"record of about {size} bytes, message.max.bytes is {self.limits.message_max_bytes}",
            )
        with self.lock:
            self._check_room(size)
            queues = self.topics.get(topic)
            if queues is None or not queues.queues:
                wake = self._hold(HeldRecord(topic, partition, timestamp, key, value, headers, report, size))
            else:
                queue = self._choose(queues, partition, key, now)
                wake = self._append_to(queue, timestamp, key, value, headers, report, size, now)
            self.record_count += 1
            self.size_bytes += size
        return wake

    def _check_room(self, size: int) -> None:
        limits = self.limits
        self._check_open()
        if self.record_count >= limits.queue_records > 0 or self.size_bytes + size > limits.queue_bytes:
            raise BufferError("Local: Queue full")

    def _check_open(self) -> None:
        if self.closed:
            raise failure(KafkaError._STATE, "the producer is closed")
        refused = self.transaction.refusal() if self.transaction is not None else None
        if refused is not None:
            raise KafkaException(refused)

    def _hold(self, record: HeldRecord) -> bool:
        topic = record.topic
        queues = self.topics.setdefault(topic, TopicQueues(topic))
        queues.held.append(record)
        if topic in self.unknown_topics:
            return False
        self.unknown_topics.add(topic)
        return True

    def _choose(self, topic: TopicQueues, partition: int, key: bytes | None, now: float) -> PartitionQueue:
        queues = topic.queues
        if partition < 0:
            chosen = self._partitioner(key, len(queues))
            partition = self._stick(topic, now) if chosen is None else chosen
        if not 0 <= partition < len(queues):
            raise failure(
                KafkaError._UNKNOWN_PARTITION, f"{topic.name}-{partition}: the topic has {len(queues)}"
            )
        return queues[partition]

    def _stick(self, topic: TopicQueues, now: float) -> int:
        """One partition for a while: fewer, fuller batches than one turn per record (KIP-480)."""
        if now >= topic.sticky_until or topic.sticky < 0:
            topic.sticky = self._random.randrange(len(topic.queues))
            topic.sticky_until = now + self.limits.sticky_s
        return topic.sticky

    def _append_to(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Any,
        report: Report | None,
        size: int,
        now: float,
    ) -> bool:
        batch = queue.open
        wake = False
        if batch is not None and batch.size_bytes + size > self.limits.batch_size_bytes:
            self._close(queue)
            batch, wake = None, True
        if batch is None:
            # The first open batch starts the sender's linger timer; later ones are found when it fires.
            wake = wake or not self._open
            batch = self._begin(queue, now)
        assert batch.builder is not None
        batch.builder.append(timestamp, key, value, headers or ())
        if report is not None:
            batch.reports.append((batch.record_count, report))
        batch.record_count += 1
        batch.size_bytes += size
        if (
            batch.record_count >= self.limits.batch_records
            or batch.size_bytes >= self.limits.batch_size_bytes
        ):
            self._close(queue)
            wake = True
        return wake

    def _begin(self, queue: PartitionQueue, now: float) -> ProducerBatch:
        batch = ProducerBatch(queue.topic, queue.partition, now)
        batch.builder = BatchBuilder(self._codec, self._level, transactional=self.transaction is not None)
        queue.open = self._open[queue] = batch
        return batch

    def _close(self, queue: PartitionQueue) -> None:
        batch = self._open.pop(queue)
        queue.open = None
        queue.ready.append(batch)

    def append_batch(
        self, topic: str, partition: int, data: Any, record_count: int, report: Report | None, now: float
    ) -> None:
        """Take in a batch that is built already. Its topic must be known."""
        size = len(data)
        with self.lock:
            self._check_open()
            if self.record_count and self.record_count + record_count > self.limits.queue_records > 0:
                raise BufferError("Local: Queue full")
            queue = self._choose(self.topics[topic], partition, None, now)
            if queue.open is not None:
                self._close(queue)
            batch = ProducerBatch(topic, partition, now)
            batch.data, batch.record_count, batch.size_bytes = data, record_count, size
            if report is not None:
                batch.reports = [(index, report) for index in range(record_count)]
            queue.ready.append(batch)
            self.record_count += record_count
            self.size_bytes += size

    # The sender's side, under the lock.

    def open_topic(self, name: str, partition_count: int, now: float) -> list[tuple[HeldRecord, KafkaError]]:
        """Partitions of a topic became known, or more of them; returns held records that fit nowhere."""
        topic = self.topics.setdefault(name, TopicQueues(name))
        for number in range(len(topic.queues), partition_count):
            topic.queues.append(PartitionQueue(name, number))
        self.unknown_topics.discard(name)
        misfits: list[tuple[HeldRecord, KafkaError]] = []
        held, topic.held = topic.held, deque()
        for record in held:
            if record.partition >= partition_count:
                misfits.append((record, KafkaError(KafkaError._UNKNOWN_PARTITION)))
                continue
            try:
                queue = self._choose(topic, record.partition, record.key, now)
            except Exception as error:  # of a partitioner that is the application's
                misfits.append((record, kafka_error(error)))
                continue
            self._append_to(
                queue,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
                record.report,
                record.size_bytes,
                now,
            )
        return misfits

    def drop_topic(self, name: str) -> list[HeldRecord]:
        """The topic will not be known: give up what is held for it."""
        self.unknown_topics.discard(name)
        topic = self.topics.get(name)
        if topic is None:
            return []
        held, topic.held = topic.held, deque()
        if not topic.queues:
            del self.topics[name]
        return list(held)

    def close_lingering(self, now: float) -> float | None:
        """Close batches whose time is up; returns when the next one's is, None if none is open."""
        due = None
        for queue, batch in list(self._open.items()):
            ready_at = batch.created + self.limits.linger_s
            if self.flushing or self.closed or ready_at <= now:
                self._close(queue)
            elif due is None or ready_at < due:
                due = ready_at
        return due

    def queues(self) -> list[PartitionQueue]:
        """Queues that have something to send or under way."""
        return [
            queue
            for topic in self.topics.values()
            for queue in topic.queues
            if queue.ready or queue.in_flight
        ]

    def expire(self, queue: PartitionQueue, before: float) -> list[ProducerBatch]:
        """Batches that waited too long. Those under way are left to their reply."""
        expired = [batch for batch in queue.ready if batch.created < before]
        for batch in expired:
            queue.ready.remove(batch)
        return expired

    def release(self, record_count: int, size_bytes: int) -> None:
        """Records that were answered for."""
        self.record_count -= record_count
        self.size_bytes -= size_bytes

    def purge(self) -> tuple[list[ProducerBatch], list[HeldRecord]]:
        """Take out everything that is not under way."""
        for queue in list(self._open):
            self._close(queue)
        batches: list[ProducerBatch] = []
        held: list[HeldRecord] = []
        for topic in self.topics.values():
            held += topic.held
            topic.held.clear()
            for queue in topic.queues:
                batches += queue.ready
                queue.ready.clear()
        return batches, held
