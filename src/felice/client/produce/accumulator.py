"""Records waiting to be sent: one open batch per partition, with a bound on the whole. Pure but for its lock.

Keeps true:  Records of a partition leave in the order in which they were appended. The number of records and bytes
             never exceeds its bounds: `append` raises `BufferError` instead, and then nothing was appended.
             `append_batch` accepts a batch of any size if there are no records, so that every batch can be sent.
             A record counts until its delivery report was served (or the record was dropped). An empty accumulator
             therefore means that every record has its result.
How:         `append` runs in the caller's thread. Most records go straight into the open batch of their partition: its
             kernel (`Offers.offer`) checks all bounds, and no other thread can run meanwhile, so that no lock is
             needed. All other records, for example the first of a batch, are appended under the lock.
             `append` returns whether the sender must be woken: once per batch, not once per record.
Leaves:      connections, retries and the meaning of sequences to `sender`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from random import Random

from felice.client.error import KafkaError, KafkaException, failure, kafka_error
from felice.client.produce.batches import PartitionQueue, ProducerBatch, Report
from felice.client.produce.partitioners import STICK_WITHOUT_KEY, Partitioner
from felice.client.produce.spare_buffers import SpareBuffers
from felice.client.produce.transaction import Transaction
from felice.client.produce.values import Headers
from felice.dataclass import dataclass
from felice.protocol.primitives import Buffer
from felice.records.batch import HEADER_SIZE
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec
from felice.records.kernels import Offers, OpenBatches, QueueBounds

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


def _builder(batch: ProducerBatch) -> BatchBuilder:
    """The builder of an open batch."""
    assert batch.builder is not None
    return batch.builder


class TopicQueues:
    """The queues of one topic. While `queues` is empty, the topic's partitions are unknown and records are held.

    `open` has the builders that accept records without the lock, and the sticky partition.
    """

    __slots__ = ("held", "name", "open", "queues", "sticky_until")

    def __init__(self, name: str) -> None:
        self.name = name
        self.open = OpenBatches()
        self.queues: list[PartitionQueue] = []
        self.held: deque[HeldRecord] = deque()
        self.sticky_until = 0.0


class Accumulator:
    """All records of one producer. Callers hold `lock`, except for `append` and `append_batch`, which take it.

    `clock` returns seconds that never go back.
    """

    def __init__(
        self,
        limits: Limits,
        partitioner: Partitioner,
        clock: Callable[[], float],
        codec: int = 0,
        level: int = -1,
        random: Random | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        self.transaction = transaction
        self.limits = limits
        self.lock = threading.Lock()
        self.topics: dict[str, TopicQueues] = {}
        self.flushing = 0
        self.closed = False
        self.why_closed = "the producer is closed"
        self.unknown_topics: set[str] = set()
        self._bounds = QueueBounds(limits.queue_records, limits.queue_bytes)
        self._spares = SpareBuffers()
        self._clock = clock
        self._partitioner = partitioner
        self._sticks_without_key = partitioner in STICK_WITHOUT_KEY
        self.offers = Offers(self._sticks_without_key)
        self._random = random or Random()
        self._codec = Codec(codec)
        self._level = None if level < 0 else level
        self._open: dict[PartitionQueue, ProducerBatch] = {}

    @property
    def record_count(self) -> int:
        """Number of records whose report was not served yet."""
        return self._bounds.record_count

    @property
    def size_bytes(self) -> int:
        """Size of these records in bytes."""
        return self._bounds.size_bytes

    def append(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        report: Report | None,
    ) -> bool:
        """Append one record; True if the sender must be woken.

        Raises `BufferError` if the accumulator is full, `KafkaException` for an invalid timestamp or partition, a
        record larger than message.max.bytes, a closed producer, or a transaction that refuses records.
        """
        if headers is None:
            chosen = partition
            if partition < 0 and (key is not None or not self._sticks_without_key):
                partition, chosen = self._partition_of(topic, key)
            outcome = self.offers.offer(topic, chosen, timestamp, key, value, report)
            if outcome:
                return outcome == 2 and self.close_full(topic)
        return self._append_locked(topic, partition, timestamp, key, value, headers, report)

    def _partition_of(self, topic: str, key: bytes | None) -> tuple[int, int]:
        """Ask the partitioner; return its choice (-1 if any partition will do), and the partition to try first."""
        queues = self.topics.get(topic) if type(topic) is str else None
        if queues is None or not queues.queues:
            return -1, -1
        chosen = self._partitioner(key, len(queues.queues))
        return (-1, queues.open.sticky) if chosen is None else (chosen, chosen)

    def close_full(self, topic: str) -> bool:
        """Close the batches that an offer filled. Returns True, because the sender must be woken."""
        with self.lock:
            for queue in self.topics[topic].queues:
                if queue.open is not None and _builder(queue.open).record_count >= self.limits.batch_records:
                    self._close(queue)
        return True

    def _append_locked(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        report: Report | None,
    ) -> bool:
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
        record = HeldRecord(topic, partition, timestamp, key, value, headers, report, size)
        with self.lock:
            self._check_open()
            if not self._bounds.has_room(size):
                raise BufferError("Local: Queue full")
            queues = self.topics.get(topic)
            if queues is None or not queues.queues:
                return self._hold(record)
            now = self._clock()
            return self._append_to(self._choose(queues, partition, key, now), record, now)

    def _check_open(self) -> None:
        if self.closed:
            raise failure(KafkaError._STATE, self.why_closed)
        refused = self.transaction.refusal() if self.transaction is not None else None
        if refused is not None:
            raise KafkaException(refused)

    def _hold(self, record: HeldRecord) -> bool:
        topic = record.topic
        self._topic(topic).held.append(record)
        self._bounds.add(1, record.size_bytes)
        if topic in self.unknown_topics:
            return False
        self.unknown_topics.add(topic)
        return True

    def _topic(self, name: str) -> TopicQueues:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueues(name)
            self.offers.topics[name] = topic.open
        return topic

    def _choose(self, topic: TopicQueues, partition: int, key: bytes | None, now: float) -> PartitionQueue:
        queues = topic.queues
        if partition < 0:
            chosen = self._partitioner(key, len(queues))
            partition = self._stick(topic, now) if chosen is None else chosen
        if not 0 <= partition < len(queues):
            raise failure(
                KafkaError._UNKNOWN_PARTITION,
                f"{topic.name}-{partition}: the topic has {len(queues)} partitions",
            )
        return queues[partition]

    def _stick(self, topic: TopicQueues, now: float) -> int:
        """Choose one partition for a while: this gives fewer and fuller batches than a choice per record (KIP-480)."""
        if now >= topic.sticky_until or topic.open.sticky < 0:
            topic.open.sticky = self._random.randrange(len(topic.queues))
            topic.sticky_until = now + self.limits.sticky_s
        return topic.open.sticky

    def _append_to(self, queue: PartitionQueue, record: HeldRecord, now: float) -> bool:
        batch = queue.open
        wake = False
        limit = self.limits.batch_size_bytes
        if batch is not None and _builder(batch).size_bytes + record.size_bytes > limit:
            self._close(queue)
            batch, wake = None, True
        if batch is None:
            # The first open batch starts the sender's linger timer; the timer finds the batches opened later.
            wake = wake or not self._open
            batch = self._begin(queue, now)
        builder = _builder(batch)
        if record.report is not None:
            batch.add_report(builder.record_count, record.report)
        taken = builder.append(record.timestamp, record.key, record.value, record.headers or ())
        self._bounds.add(1, taken)
        if builder.record_count >= self.limits.batch_records or builder.size_bytes >= limit:
            self._close(queue)
            wake = True
        return wake

    def _begin(self, queue: PartitionQueue, now: float) -> ProducerBatch:
        batch = ProducerBatch(queue.topic, queue.partition, now)
        transactional = self.transaction is not None
        expected = queue.expected_bytes
        memory = self._spares.take(expected)
        builder = BatchBuilder(
            self._codec, self._level, transactional=transactional, capacity=expected, memory=memory
        )
        batch.builder = builder
        if not transactional:  # a transaction decides for each record whether it accepts it
            limits = self.limits
            builder.open_for_offers(
                self._bounds, limits.batch_records, limits.batch_size_bytes, batch.reports
            )
            self.topics[queue.topic].open.add(queue.partition, builder)
        queue.open = self._open[queue] = batch
        return batch

    def _close(self, queue: PartitionQueue) -> None:
        batch = self._open.pop(queue)
        batch.close()
        self.topics[queue.topic].open.remove(queue.partition)
        queue.expected_bytes = batch.size_bytes + HEADER_SIZE
        queue.open = None
        queue.ready.append(batch)

    def append_batch(
        self, topic: str, partition: int, data: Buffer, record_count: int, report: Report | None
    ) -> None:
        """Append a finished batch. The partitions of its topic must be known.

        Raises `BufferError` if its records do not fit, and `KafkaException` as `append` does.
        """
        size = len(data)
        with self.lock:
            self._check_open()
            if self.record_count and not self._bounds.has_room(size, record_count):
                raise BufferError("Local: Queue full")
            now = self._clock()
            queue = self._choose(self.topics[topic], partition, None, now)
            if queue.open is not None:
                self._close(queue)
            batch = ProducerBatch(topic, partition, now)
            batch.data, batch.record_count, batch.size_bytes = data, record_count, size
            if report is not None:
                batch.reports = [report] * record_count
            queue.ready.append(batch)
            self._bounds.add(record_count, size)

    def leave_behind(self, why: str) -> None:
        """Refuse further records in a forked process: nothing sends them there."""
        self.lock = threading.Lock()  # A thread of the parent may have held the old lock.
        self.closed, self.why_closed = True, why
        self.offers.topics.clear()

    # Called under the lock, mostly by the sender.

    def close(self) -> None:
        """Refuse further records, also those for batches that are open."""
        self.closed = True
        self._close_all()

    def _close_all(self) -> None:
        for queue in list(self._open):
            self._close(queue)

    def open_topic(self, name: str, partition_count: int, now: float) -> list[tuple[HeldRecord, KafkaError]]:
        """Create the queues of new partitions and append held records; return those that no partition accepts."""
        topic = self._topic(name)
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
            self._bounds.add(-1, -record.size_bytes)
            self._append_to(queue, record, now)
        return misfits

    def drop_topic(self, name: str) -> list[HeldRecord]:
        """Return and forget the records held for a topic that does not exist."""
        self.unknown_topics.discard(name)
        topic = self.topics.get(name)
        if topic is None:
            return []
        held, topic.held = topic.held, deque()
        if not topic.queues:
            del self.topics[name], self.offers.topics[name]
        return list(held)

    def close_lingering(self, now: float) -> float | None:
        """Close the batches whose linger time is over; return when to call again, None if no batch is open."""
        moments = []
        for queue, batch in list(self._open.items()):
            ready_at = batch.created + self.limits.linger_s
            if self.flushing or ready_at <= now:
                self._close(queue)
                continue
            moments.append(ready_at)
            topic = self.topics[queue.topic]
            if topic.open.sticky == queue.partition and topic.sticky_until <= now:
                topic.open.sticky = -1  # the next record without a key chooses another partition
            elif topic.open.sticky == queue.partition:
                moments.append(topic.sticky_until)
        return min(moments, default=None)

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
        self._bounds.add(-record_count, -size_bytes)

    def release_batch(self, batch: ProducerBatch, *, acknowledged: bool) -> None:
        """Uncount a batch whose delivery reports were made. If it was acknowledged, its memory is used again."""
        self.release(batch.record_count, batch.size_bytes)
        # If the batch was sent more than once, an earlier request with it may still wait in another connection. The
        # memory of a compressed batch is too small for a new one.
        if acknowledged and batch.attempts == 1 and self._codec is Codec.NONE:
            self._spares.put(batch.data)
            batch.data = b""

    def purge(self) -> tuple[list[ProducerBatch], list[HeldRecord]]:
        """Remove and return all batches and records that are not in flight."""
        self._close_all()
        batches: list[ProducerBatch] = []
        held: list[HeldRecord] = []
        for topic in self.topics.values():
            held += topic.held
            topic.held.clear()
            for queue in topic.queues:
                batches += queue.ready
                queue.ready.clear()
        return batches, held
