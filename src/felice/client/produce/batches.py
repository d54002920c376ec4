"""One producer batch from its first record to its report, and the queue of one partition. Pure.

Keeps true:  batches of a partition are sent in the order in which they were filled, and sent again in that order.
             A batch keeps its sequence while it is retried, unless the whole partition is numbered anew.
             Sequences of a partition are contiguous per producer epoch (T2).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from felice.client.error import KafkaError
from felice.client.model import Message
from felice.client.net.topology import NO_LEADER
from felice.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    increment_sequence,
    write_header,
)
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec
from felice.records.reader import read_batch

Report: TypeAlias = Callable[[KafkaError | None, Message], Any]

MAX_PARTITION_IN_FLIGHT = 5
"""The broker remembers five batches of a producer: a retry further back would not be recognised."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What the broker knows an idempotent producer by."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


ANONYMOUS = ProducerIdentity()

_made = itertools.count()


class ProducerBatch:
    """Open while it has a builder, sealed once it has data."""

    __slots__ = (
        "attempts",
        "builder",
        "created",
        "data",
        "identity",
        "order",
        "partition",
        "record_count",
        "reports",
        "sequence",
        "size_bytes",
        "topic",
    )

    def __init__(self, topic: str, partition: int, created: float) -> None:
        self.topic = topic
        self.partition = partition
        self.created = created
        # Which batch it was cut from, in the order of their making, and at which record.
        self.order = next(_made), 0
        self.builder: BatchBuilder | None = None
        self.data: Any = None
        # Position in the batch and callback, for the records that want a report.
        self.reports: list[tuple[int, Report]] = []
        self.record_count = 0
        self.size_bytes = 0
        self.attempts = 0
        self.sequence = -1
        self.identity = ANONYMOUS

    @property
    def numbered(self) -> bool:
        return self.sequence >= 0

    def seal(self) -> None:
        """Close the builder; idempotent."""
        if self.builder is not None:
            builder, self.builder = self.builder, None
            builder.producer_id = self.identity.producer_id
            builder.producer_epoch = self.identity.epoch
            builder.base_sequence = self.sequence
            self.data = builder.build()

    def number(self, identity: ProducerIdentity, sequence: int) -> None:
        """Give the batch its place; one that was sealed already is sealed again."""
        self.identity, self.sequence = identity, sequence
        if self.data is None:
            self.seal()
            return
        header = BatchHeader.parse(self.data)
        fields = header._replace(
            producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=sequence
        )
        if not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        write_header(self.data, fields)

    def split(self) -> list[ProducerBatch]:
        """Two halves, for a broker that finds the whole too large; sequences go on from one to the other."""
        header = BatchHeader.parse(self.data)
        records = read_batch(self.data, header)
        middle = len(records) // 2
        halves = []
        for start, end in ((0, middle), (middle, len(records))):
            half = ProducerBatch(self.topic, self.partition, self.created)
            half.builder = BatchBuilder(Codec(header.codec), transactional=header.is_transactional)
            for record in records[start:end]:
                half.size_bytes += half.builder.append(
                    record.timestamp, record.key, record.value, record.headers
                )
            half.record_count = end - start
            half.reports = [(index - start, report) for index, report in self.reports if start <= index < end]
            half.order = self.order[0], self.order[1] + start
            half.attempts = self.attempts
            sequence = increment_sequence(self.sequence, start) if self.numbered else -1
            half.number(self.identity, sequence)
            halves.append(half)
        return halves


class PartitionQueue:
    """What waits for one partition: batches to send, batches under way, and its numbering."""

    __slots__ = (
        "identity",
        "in_flight",
        "next_sequence",
        "open",
        "partition",
        "ready",
        "renumber",
        "sent_to",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: ProducerBatch | None = None
        self.ready: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        # The broker that has what is under way.
        self.sent_to = NO_LEADER
        self.identity = ANONYMOUS
        self.next_sequence = 0
        self.renumber = False

    @property
    def retrying(self) -> bool:
        """The batch at the front was sent before."""
        return bool(self.ready) and self.ready[0].attempts > 0

    def may_send_to(self, leader: int) -> bool:
        """While a retry waits, everything sent after it must come back first, or it would be overtaken. So it would be
        over a new leader, who takes any number of a producer that it has not met, while the old one is still asked.

        While one is under way it goes alone: each batch written behind it would push it further out of the
        broker's memory, and then it would no longer be recognised as written already.
        """
        if self.in_flight and (self.renumber or self.retrying or leader != self.sent_to):
            return False
        if any(batch.attempts > 1 for batch in self.in_flight):
            return False
        return len(self.in_flight) < MAX_PARTITION_IN_FLIGHT

    def take(self, identity: ProducerIdentity, leader: int) -> ProducerBatch:
        """The next batch, numbered and under way to `leader`."""
        batch = self.ready.popleft()
        if not batch.numbered and identity is not ANONYMOUS:
            self._follow(identity)
            batch.number(self.identity, self.next_sequence)
            self.next_sequence = increment_sequence(self.next_sequence, batch.record_count)
        else:
            batch.seal()
        batch.attempts += 1
        self.in_flight.append(batch)
        self.sent_to = leader
        return batch

    def _follow(self, identity: ProducerIdentity) -> None:
        """Go over to the producer's newest epoch once nothing of the old one is left (KIP-360)."""
        if self.identity == identity:
            return
        if self.identity is ANONYMOUS or not self.in_flight:
            self.identity = identity
            self.next_sequence = 0

    def give_back(self, batches: list[ProducerBatch]) -> None:
        """Put batches that were under way (or their halves) back, in their old order."""
        for batch in reversed(batches):
            position = 0
            for waiting in self.ready:
                if not waiting.attempts or not _precedes(waiting, batch):
                    break
                position += 1
            self.ready.insert(position, batch)

    def is_first(self, batch: ProducerBatch) -> bool:
        """No earlier batch of the partition is still unanswered or waiting to be sent again."""
        earlier = [other for other in self.in_flight if other is not batch and _precedes(other, batch)]
        return not earlier and not any(_precedes(other, batch) for other in self.ready if other.attempts)

    def renumber_all(self, identity: ProducerIdentity) -> None:
        """Begin again at sequence 0 in a new epoch. Nothing may be under way."""
        assert not self.in_flight, f"{self.topic}-{self.partition} is renumbered with batches under way"
        self.identity = identity
        self.next_sequence = 0
        self.renumber = False
        for batch in self.ready:
            if batch.numbered:
                batch.number(identity, self.next_sequence)
                self.next_sequence = increment_sequence(self.next_sequence, batch.record_count)


def _precedes(one: ProducerBatch, other: ProducerBatch) -> bool:
    if one.numbered and other.numbered and one.identity == other.identity:
        # Sequences wrap: what is less than half the range behind comes first.
        return 0 < (other.sequence - one.sequence) % (1 << 31) < (1 << 30)
    return one.order < other.order
