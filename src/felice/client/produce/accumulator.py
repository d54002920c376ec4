"""Records waiting to be sent: one open batch per partition, with a bound on the whole. Pure but for its lock.

Keeps true:  Records of a partition leave in the order in which they were appended: a record that waits for its topic
             (`held`) is never overtaken. While a topic has held records, a new record is held behind them, and its
             open batches accept no record without the lock.
             The number of records and bytes never exceeds its bounds: `append` raises `BufferError` instead, and then
             nothing was appended. `append_batch` accepts a batch of any size if there are no records, so that every
             batch can be sent.
             An `append` that raises has appended nothing; an open batch has at least one record.
             A record counts until its delivery report was served (or the record was dropped). An empty accumulator
             therefore means that every record has its result.
How:         `append` runs in the caller's thread. Most records go straight into the open batch of their partition: its
             kernel (`Offers.offer`) checks all bounds, and no other thread can run meanwhile, so that no lock is
             needed. All other records, for example the first of a batch, are appended under the lock.
             `append` returns whether the sender must be woken: once per batch, not once per record.
             The partitioner may be the application's: it is called once for each record, and without the lock.
Leaves:      connections, retries and the meaning of sequences to `sender`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from operator import index
from random import Random

from felice.client.error import KafkaError, KafkaException, failure, kafka_error
from felice.client.produce.batches import PartitionQueue, ProducerBatch, Report
from felice.client.produce.partitioners import STICK_WITHOUT_KEY, Partitioner, Spread
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
_LAST_PARTITION = (1 << 31) - 1
# librdkafka's limit of a topic's name; brokers accept 249 characters.
_TOPIC_NAME_MAX = 512

UNDECIDED = -1
"""The partition of a record whose partitioner was not asked yet, also the one that applications pass."""
_ANY = -2  # The partitioner was asked, and any partition will do.

_CLOSED = "the producer is closed"


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
    """A record held until the partitions of its topic are known, and the records held before it were appended."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    report: Report | None
    size_bytes: int
    created: float = 0.0


def _builder(batch: ProducerBatch) -> BatchBuilder:
    """The builder of an open batch."""
    assert batch.builder is not None
    return batch.builder


class TopicQueues:
    """The queues of one topic. While `queues` is empty, the topic's partitions are unknown and records are held.

    `count` is the current number of partitions. `queues` is longer if the topic was created again with fewer.
    `led` has the partitions that records without a key may go to: those with a leader, or all if none has one.
    `open` has the builders that accept records without the lock, and the sticky partition.
    """

    __slots__ = ("count", "held", "led", "name", "open", "queues", "sticky_until")

    def __init__(self, name: str) -> None:
        self.name = name
        self.open = OpenBatches()
        self.queues: list[PartitionQueue] = []
        self.count = 0
        self.led: Sequence[int] = ()
        self.held: deque[HeldRecord] = deque()
        self.sticky_until = 0.0


def _whole(value: int, what: str) -> int:
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"expected {what} as int, got {type(value).__name__}") from None


def check_topic(topic: str) -> None:
    """Refuse names that no request can carry: such a name would fail the requests about other topics too."""
    if not isinstance(topic, str):
        raise TypeError(f"expected topic as str, got {type(topic).__name__}")
    topic.encode()
    if len(topic) > _TOPIC_NAME_MAX:
        raise failure(
            KafkaError._INVALID_ARG,
            f"a topic's name has at most {_TOPIC_NAME_MAX} characters, not {len(topic)}",
        )


def _no_such_partition(topic: str, partition: int, count: int) -> KafkaException:
    return failure(KafkaError._UNKNOWN_PARTITION, f"{topic}-{partition}: the topic has {count} partitions")


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
        level: int | None = None,
        random: Random | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        self.transaction = transaction
        self.limits = limits
        self.lock = threading.Lock()
        self.topics: dict[str, TopicQueues] = {}
        self.flushing = 0
        self.closed = False
        self.why_closed = _CLOSED
        # The topics with held records.
        self.waiting_topics: set[str] = set()
        self._bounds = QueueBounds(limits.queue_records, limits.queue_bytes)
        self._spares = SpareBuffers()
        self._clock = clock
        self._partitioner = partitioner
        self._spreads = isinstance(partitioner, Spread)
        self._sticks_without_key = partitioner in STICK_WITHOUT_KEY
        self.offers = Offers(self._sticks_without_key)
        self._random = random or Random()
        self._codec = Codec(codec)
        self._level = level
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

        Raises `BufferError` if the accumulator is full; `TypeError` or `ValueError` for a topic, partition, timestamp
        or report that cannot be one; `KafkaException` for an invalid timestamp or partition, a record larger than
        message.max.bytes, a closed producer, or a transaction that refuses records; and what the partitioner raises.
        """
        record: HeldRecord | None = None
        while True:
            chosen = tried = partition
            if partition == -1 and (key is not None or not self._sticks_without_key):
                chosen = tried = self._ask(topic, key)
                if chosen == _ANY:
                    tried = self.topics[topic].open.sticky
            if headers is None and partition >= -1:
                outcome = self.offers.offer(topic, tried, timestamp, key, value, report)
                if outcome:
                    return outcome == 2 and self.close_full(topic)
            if record is None:
                record = self._checked(topic, partition, timestamp, key, value, headers, report)
            if chosen != partition:
                record.partition = chosen
            appended = self._append_or_hold(record)
            if appended is not None:
                return appended
            # Its topic became known meanwhile.

    def _ask(self, name: str, key: bytes | None) -> int:
        """Return the partitioner's choice for a record; UNDECIDED if the topic's partitions are unknown."""
        topic = self.topics.get(name) if type(name) is str else None
        if topic is None or not topic.queues:
            return UNDECIDED
        if self._spreads:
            led = topic.led  # the loop's thread may replace it
            return led[self._partitioner(key, len(led)) or 0]
        count = topic.count
        chosen = self._partitioner(key, count)
        if type(chosen) is int and 0 <= chosen < count:
            return chosen
        if chosen is None:
            return _ANY
        chosen = index(chosen)
        if not 0 <= chosen < count:
            raise _no_such_partition(name, chosen, count)
        return chosen

    def close_full(self, topic: str) -> bool:
        """Close the batches that an offer filled. Returns True, because the sender must be woken."""
        with self.lock:
            for queue in self.topics[topic].queues:
                if queue.open is not None and _builder(queue.open).record_count >= self.limits.batch_records:
                    self._close(queue)
        return True

    def _checked(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        report: Report | None,
    ) -> HeldRecord:
        """The record, with everything checked that does not depend on the cluster."""
        if type(topic) is not str or topic not in self.topics:
            check_topic(topic)
        if type(partition) is not int:
            partition = _whole(partition, "partition")
        if type(timestamp) is not int:
            timestamp = _whole(timestamp, "timestamp")
        if not UNDECIDED <= partition <= _LAST_PARTITION:
            raise failure(
                KafkaError._UNKNOWN_PARTITION,
                f"partition {partition} cannot exist; only {UNDECIDED} leaves the choice to the partitioner",
            )
        if not 0 <= timestamp <= _LAST_TIMESTAMP:
            raise failure(KafkaError._INVALID_ARG, f"timestamp {timestamp} is not a time in milliseconds")
        if report is not None and not callable(report):
            raise TypeError(f"expected on_delivery as a callable, got {type(report).__name__}")
        size = _RECORD_OVERHEAD_BYTES
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            for name, content in headers:
                size += _HEADER_OVERHEAD_BYTES + len(name)
                if content is not None:
                    size += len(content)
        if size > self.limits.message_max_bytes:
            raise failure(
                KafkaError.MSG_SIZE_TOO_LARGE,
                f"record of about {size} bytes, message.max.bytes is {self.limits.message_max_bytes}",
            )
        return HeldRecord(topic, partition, timestamp, key, value, headers, report, size)

    def _append_or_hold(self, record: HeldRecord) -> bool | None:
        """Append the record, or hold it behind those that are held.

        Returns whether the sender must be woken; None if the partitioner must be asked first.
        """
        with self.lock:
            self._check_open()
            if not self._bounds.has_room(record.size_bytes):
                raise BufferError("Local: Queue full")
            topic = self._topic(record.topic)
            if topic.held or not topic.queues:
                return self._hold(topic, record)
            if record.partition == UNDECIDED:
                if record.key is not None or not self._sticks_without_key:
                    return None
                record.partition = _ANY
            now = self._clock()
            return self._append_to(self._queue_of(topic, record.partition, now), record, now)

    def check_not_closed(self) -> None:
        """Raise `RuntimeError` after a close by the application, as confluent_kafka does."""
        if self.closed and self.why_closed == _CLOSED:
            raise RuntimeError(_CLOSED)

    def _check_open(self) -> None:
        self.check_not_closed()
        if self.closed:
            raise failure(KafkaError._STATE, self.why_closed)
        refused = self.transaction.refusal() if self.transaction is not None else None
        if refused is not None:
            raise KafkaException(refused)

    def is_catching_up(self, name: str) -> bool:
        """Whether records of the topic are still held although its partitions are known: `append_held` is at work."""
        topic = self.topics.get(name)
        return topic is not None and bool(topic.held) and bool(topic.queues)

    def _hold(self, topic: TopicQueues, record: HeldRecord) -> bool:
        record.created = self._clock()
        topic.held.append(record)
        self._bounds.add(1, record.size_bytes)
        if topic.name in self.waiting_topics:
            return False
        self.waiting_topics.add(topic.name)
        return True

    def _topic(self, name: str) -> TopicQueues:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueues(name)
            self.offers.topics[name] = topic.open
        return topic

    def _queue_of(self, topic: TopicQueues, partition: int, now: float) -> PartitionQueue:
        if partition == _ANY:
            partition = self._stick(topic, now)
        if not 0 <= partition < topic.count:
            raise _no_such_partition(topic.name, partition, topic.count)
        return topic.queues[partition]

    def _stick(self, topic: TopicQueues, now: float) -> int:
        """Choose one partition for a while: this gives fewer and fuller batches than a choice per record (KIP-480)."""
        if now >= topic.sticky_until or topic.open.sticky < 0:
            topic.open.sticky = topic.led[self._random.randrange(len(topic.led))]
            topic.sticky_until = now + self.limits.sticky_s
        return topic.open.sticky

    def _append_to(self, queue: PartitionQueue, record: HeldRecord, created: float) -> bool:
        batch = queue.open
        wake = False
        limit, most_records = self.limits.batch_size_bytes, self.limits.batch_records
        if batch is not None:
            builder = _builder(batch)
            if builder.size_bytes + record.size_bytes > limit or builder.record_count >= most_records:
                self._close(queue)
                batch, wake = None, True
        if batch is None:
            # The first open batch starts the sender's linger timer; the timer finds the batches opened later.
            wake = wake or not self._open
            batch = self._begin(queue, created)
        try:
            taken = self._fill(queue, batch, record)
        except BaseException:
            self._close_if_filled(queue)
            raise
        self._bounds.add(1, taken)
        builder = _builder(batch)
        if builder.record_count >= most_records or builder.size_bytes >= limit:
            self._close(queue)
            wake = True
        return wake

    def _fill(self, queue: PartitionQueue, batch: ProducerBatch, record: HeldRecord) -> int:
        """Add the record and its report to the open batch; return its size. If it raises, nothing was added."""
        builder, report, headers = _builder(batch), record.report, record.headers
        if report is None and headers is None:
            return builder.append(record.timestamp, record.key, record.value)
        # The report is a step of its own, and headers are encoded by Python code. Meanwhile, another thread's offer
        # would take the place of this record.
        builder.close_for_offers()
        position = builder.record_count
        try:
            if report is not None:
                batch.add_report(position, report)
            taken = builder.append(record.timestamp, record.key, record.value, headers or ())
        except BaseException:
            del batch.reports[position:]
            raise
        self._let_offers_in(queue, builder, batch)
        return taken

    def _begin(self, queue: PartitionQueue, created: float) -> ProducerBatch:
        batch = ProducerBatch(queue.topic, queue.partition, created)
        expected = queue.expected_bytes
        memory = self._spares.take(expected)
        builder = BatchBuilder(
            self._codec,
            self._level,
            transactional=self.transaction is not None,
            capacity=expected,
            memory=memory,
        )
        batch.builder = builder
        queue.open = self._open[queue] = batch
        self._open_for_offers(self.topics[queue.topic], queue)
        return batch

    def _open_for_offers(self, topic: TopicQueues, queue: PartitionQueue) -> None:
        """Make the queue's open batch known to the offers of its topic."""
        if queue.open is not None:
            builder = _builder(queue.open)
            topic.open.add(queue.partition, builder)
            self._let_offers_in(queue, builder, queue.open)

    def _let_offers_in(self, queue: PartitionQueue, builder: BatchBuilder, batch: ProducerBatch) -> None:
        """Let records go into the open batch without the lock, unless they would overtake held ones."""
        # A transaction decides for each record whether it accepts it.
        if queue.topic not in self.waiting_topics and self.transaction is None:
            limits = self.limits
            builder.open_for_offers(
                self._bounds, limits.batch_records, limits.batch_size_bytes, batch.reports
            )

    def _close_if_filled(self, queue: PartitionQueue) -> None:
        """Close the open batch, which refused a record; drop it if it has none."""
        batch = self._open[queue]
        _builder(batch).close_for_offers()
        if _builder(batch).record_count:
            self._close(queue)
        else:
            del self._open[queue]
            self.topics[queue.topic].open.remove(queue.partition)
            queue.open = None

    def _close(self, queue: PartitionQueue) -> None:
        batch = self._open.pop(queue)
        batch.close()
        self.topics[queue.topic].open.remove(queue.partition)
        queue.expected_bytes = batch.size_bytes + HEADER_SIZE
        queue.open = None
        queue.ready.append(batch)

    def append_batch(
        self,
        topic: str,
        partition: int,
        data: Buffer,
        record_count: int,
        report: Report | None,
        *,
        whole: bool = False,
    ) -> None:
        """Append a finished batch. The partitions of its topic must be known.

        A `whole` batch is not split if a broker finds it too large: it fails.

        Raises `BufferError` if its records do not fit, and `KafkaException` as `append` does.
        """
        size = len(data)
        with self.lock:
            self._check_open()
            if self.record_count and not self._bounds.has_room(size, record_count):
                raise BufferError("Local: Queue full")
            now = self._clock()
            queue = self._queue_of(self.topics[topic], partition, now)
            if queue.open is not None:
                self._close(queue)
            batch = ProducerBatch(topic, partition, now)
            batch.data, batch.record_count, batch.size_bytes = data, record_count, size
            batch.whole = whole
            if report is not None:
                batch.reports = [report] * record_count
            queue.ready.append(batch)
            self._bounds.add(record_count, size)

    def leave_behind(self, why: str) -> None:
        """Refuse further records in a forked process: nothing sends them there."""
        self.lock = threading.Lock()  # A thread of the parent may have held the old lock.
        self.closed, self.why_closed = True, why
        self.offers.topics.clear()

    # Called by the sender, without the lock.

    def append_held(self, name: str, limit: int) -> tuple[list[tuple[HeldRecord, KafkaError]], bool]:
        """Append up to `limit` held records of a topic whose partitions are known, in their order.

        Returns the records that cannot be appended, with the reasons, and whether records are left.
        """
        topic = self.topics[name]
        misfits: list[tuple[HeldRecord, KafkaError]] = []
        for _ in range(limit):
            with self.lock:
                if not topic.held:
                    self._end_holding(topic)
                    return misfits, False
                record = topic.held[0]
            error: KafkaError | None = None
            try:
                partition = self._partition_of_held(topic, record)
            except Exception as raised:
                partition, error = UNDECIDED, kafka_error(raised)
            with self.lock:
                if not topic.held or topic.held[0] is not record:
                    continue  # purged meanwhile
                if error is None:
                    error = self._append_first_held(topic, partition)
                topic.held.popleft()
            if error is not None:
                misfits.append((record, error))
        return misfits, True

    def _partition_of_held(self, topic: TopicQueues, record: HeldRecord) -> int:
        if record.partition != UNDECIDED:
            return record.partition
        return (
            _ANY if record.key is None and self._sticks_without_key else self._ask(record.topic, record.key)
        )

    def _append_first_held(self, topic: TopicQueues, partition: int) -> KafkaError | None:
        record = topic.held[0]
        try:
            # The time that the record was held counts: its delivery must not take longer than that of others.
            queue = self._queue_of(topic, partition, self._clock())
            self._append_to(queue, record, record.created)
        except Exception as error:  # this record alone fails
            return kafka_error(error)
        self._bounds.add(-1, -record.size_bytes)
        return None

    # Called under the lock, mostly by the sender.

    def close(self) -> None:
        """Refuse further records, also those for batches that are open."""
        self.closed = True
        self._close_all()

    def _close_all(self) -> None:
        for queue in list(self._open):
            self._close(queue)

    def open_topic(self, name: str, partition_count: int, led: Sequence[int]) -> None:
        """Create the queues of new partitions. `led` has the partitions with a leader.

        Records that are held for the topic are appended by `append_held`.
        """
        assert partition_count > 0, f"topic {name} has {partition_count} partitions"
        topic = self._topic(name)
        for number in range(len(topic.queues), partition_count):
            topic.queues.append(PartitionQueue(name, number))
        topic.count = partition_count
        topic.led = led or range(partition_count)
        if topic.open.sticky not in topic.led:
            topic.open.sticky = -1  # the next record without a key chooses another partition

    def drop_topic(self, name: str) -> list[HeldRecord]:
        """Return and forget the records held for a topic that does not exist."""
        topic = self.topics.get(name)
        if topic is None:
            return []
        held = list(topic.held)
        topic.held.clear()
        self._end_holding(topic)
        if not topic.queues:
            del self.topics[name], self.offers.topics[name]
        return held

    def _end_holding(self, topic: TopicQueues) -> None:
        assert not topic.held, f"topic {topic.name} still has held records"
        self.waiting_topics.discard(topic.name)
        for queue in topic.queues:
            self._open_for_offers(topic, queue)

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
        """Remove and return the batches created before that time, also those that wait for a response.

        The response of such a batch is ignored, as after `purge`: the broker may have written it.
        """
        expired = [batch for batch in queue.ready if batch.created < before]
        for batch in expired:
            queue.ready.remove(batch)
        late = [batch for batch in queue.in_flight if batch.created < before]
        for batch in late:
            queue.in_flight.remove(batch)
        return late + expired

    def expire_held(self, before: float) -> list[HeldRecord]:
        """Remove and return the records that wait since before that time for the partitions of their topic."""
        expired: list[HeldRecord] = []
        for name in self.waiting_topics:
            held = self.topics[name].held
            while held and held[0].created < before:
                expired.append(held.popleft())
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
            self._end_holding(topic)
            for queue in topic.queues:
                batches += queue.ready
                queue.ready.clear()
        return batches, held
