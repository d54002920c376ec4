"""Records waiting to be sent: one open batch per partition, with a bound on the whole. Pure but for its lock.

Keeps true:  Records of a partition leave in the order in which they were appended. The number of records and bytes
             never exceeds its bounds: `append` raises `BufferError` instead, and then nothing was appended.
             A record counts until its delivery report was served (or the record was dropped). An empty accumulator
             therefore means that every record has its result.
How:         `append` runs in the caller's thread, under one lock, and touches one builder. It returns whether the
             sender must be woken: once per batch, not once per record.
Leaves:      connections, retries and the meaning of sequences to `sender`. The time is an argument.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from random import Random

from felice.client.error import KafkaError, KafkaException, failure, kafka_error
from felice.client.produce.batches import PartitionQueue, ProducerBatch, Report
from felice.client.produce.partitioners import Partitioner
from felice.client.produce.transaction import Transaction
from felice.client.produce.values import Headers
from felice.protocol.primitives import Buffer
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec

# Upper bound of a record's size beside its key, value and headers.
_RECORD_OVERHEAD_BYTES = 36
_HEADER_OVERHEAD_BYTES = 10
_LAST_TIMESTAMP = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds and batching, from the configuration. A `queue_records` of 0 means no bound."""

    batch_size_bytes: int = 1_000_000
    batch_records: int = 10_000
    linger_s: float = 0.005
    queue_records: int = 100_000
    queue_bytes: int = 1 << 30
    message_max_bytes: int = 1_000_000
    sticky_s: float = 0.01


@dataclass(slots=True)
class HeldRecord:
    """A record held until the partitions of its topic are known."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    report: Report | None
    size_bytes: int


class TopicQueues:
    """The queues of one topic. While `queues` is empty, the topic's partitions are unknown and records are held."""

    __slots__ = ("held", "name", "queues", "sticky", "sticky_until")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.held: deque[HeldRecord] = deque()
        self.sticky = -1
        self.sticky_until = 0.0


class Accumulator:
    """All records of one producer. Callers hold `lock`, except for `append` and `append_batch`, which take it."""

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
        headers: Headers | None,
        report: Report | None,
        now: float,
    ) -> bool:
        """Append one record; True if the sender must be woken.

        Raises `BufferError` if the accumulator is full, `KafkaException` for an invalid timestamp or partition, a
        record larger than message.max.bytes, a closed producer, or a transaction that refuses records.
        """
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
        """Choose one partition for a while: this gives fewer and fuller batches than a choice per record (KIP-480)."""
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
        headers: Headers | None,
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
            # The first open batch starts the sender's linger timer; the timer finds the batches opened later.
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
        self, topic: str, partition: int, data: Buffer, record_count: int, report: Report | None, now: float
    ) -> None:
        """Append a finished batch. The partitions of its topic must be known."""
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

    # Called by the sender, under the lock.

    def open_topic(self, name: str, partition_count: int, now: float) -> list[tuple[HeldRecord, KafkaError]]:
        """Create the queues of new partitions and append held records; return those that no partition accepts."""
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
            except Exception as error:  # the partitioner may be the application's
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
        """Return and forget the records held for a topic that does not exist."""
        self.unknown_topics.discard(name)
        topic = self.topics.get(name)
        if topic is None:
            return []
        held, topic.held = topic.held, deque()
        if not topic.queues:
            del self.topics[name]
        return list(held)

    def close_lingering(self, now: float) -> float | None:
        """Close the batches whose linger time is over; return when the next one's is, None if no batch is open."""
        due = None
        for queue, batch in list(self._open.items()):
            ready_at = batch.created + self.limits.linger_s
            if self.flushing or self.closed or ready_at <= now:
                self._close(queue)
            elif due is None or ready_at < due:
                due = ready_at
        return due

    def queues(self) -> list[PartitionQueue]:
        """Return the queues with batches ready or in flight."""
        return [
            queue
            for topic in self.topics.values()
            for queue in topic.queues
            if queue.ready or queue.in_flight
        ]

    def expire(self, queue: PartitionQueue, before: float) -> list[ProducerBatch]:
        """Remove and return the batches created before that time. Batches in flight wait for their response."""
        expired = [batch for batch in queue.ready if batch.created < before]
        for batch in expired:
            queue.ready.remove(batch)
        return expired

    def release(self, record_count: int, size_bytes: int) -> None:
        """Uncount records whose delivery report was served."""
        self.record_count -= record_count
        self.size_bytes -= size_bytes

    def purge(self) -> tuple[list[ProducerBatch], list[HeldRecord]]:
        """Remove and return all batches and records that are not in flight."""
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
