"""One producer batch from its first record to its report, and the queue of one partition. Pure.

Keeps true:  Batches of a partition are sent, and sent again, in the order in which they were filled.
             A batch keeps its sequence over retries, unless the whole partition is renumbered.
             Sequences of a partition are contiguous within a producer epoch (T2).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from felice.client.error import KafkaError
from felice.client.model import Message
from felice.client.net.topology import NO_LEADER
from felice.dataclass import dataclass
from felice.protocol.primitives import Buffer
from felice.records.batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    increment_sequence,
    write_header,
)
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec
from felice.records.reader import read_batch

Report: TypeAlias = Callable[[KafkaError | None, Message], object]

MAX_PARTITION_IN_FLIGHT = 5
"""A broker remembers the last five batches of a producer and recognises a retry only among them."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Producer id and epoch by which brokers identify an idempotent producer."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


ANONYMOUS = ProducerIdentity()

_made = itertools.count()


class ProducerBatch:
    """A batch is open while it has a `builder`, and sealed once it has `data`."""

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
        "whole",
    )

    def __init__(self, topic: str, partition: int, created: float) -> None:
        self.topic = topic
        self.partition = partition
        self.created = created
        # Number of the original batch, by creation, and the first record in it: the order of batches that were split.
        self.order = next(_made), 0
        self.builder: BatchBuilder | None = None
        # Empty until the batch is sealed.
        self.data: Buffer = b""
        # The callbacks of the records, by their position; shorter than the batch if its last records have none.
        self.reports: list[Report | None] = []
        self.record_count = 0
        self.size_bytes = 0
        self.attempts = 0
        self.sequence = -1
        self.identity = ANONYMOUS
        # Never split: its records are written together or not at all.
        self.whole = False

    @property
    def numbered(self) -> bool:
        """True if the batch has a sequence."""
        return self.sequence >= 0

    def close(self) -> None:
        """Accept no more records, and take over the counts of the builder."""
        assert self.builder is not None
        self.builder.close_for_offers()
        self.record_count = self.builder.record_count
        self.size_bytes = self.builder.size_bytes - HEADER_SIZE

    def add_report(self, index: int, report: Report) -> None:
        """Set the callback of the record at this position, which is the last so far."""
        self.reports += [None] * (index - len(self.reports))
        self.reports.append(report)

    def seal(self) -> None:
        """Encode the records; does nothing if the batch is sealed. If it raises, the batch stays as it was."""
        if self.builder is not None:
            builder = self.builder
            builder.producer_id = self.identity.producer_id
            builder.producer_epoch = self.identity.epoch
            builder.base_sequence = self.sequence
            self.data = builder.build()
            self.builder = None

    def seal_for_reports(self) -> None:
        """Encode the records of a batch that will not be sent, without compression, which may be what failed."""
        if self.builder is not None:
            self.builder.codec = Codec.NONE
            self.seal()

    def number(self, identity: ProducerIdentity, sequence: int) -> None:
        """Give the batch its identity and sequence; rewrites the header of a sealed batch.

        A batch that was sent gets new bytes, because the old ones may still be in the buffer of a connection.
        """
        self.identity, self.sequence = identity, sequence
        if not self.data:
            self.seal()
            return
        header = BatchHeader.parse(self.data)
        fields = header._replace(
            producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=sequence
        )
        if self.attempts or not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        write_header(self.data, fields)

    def split(self) -> list[ProducerBatch]:
        """Return two halves, for a broker that rejects the batch as too large; the sequences continue across them."""
        header = BatchHeader.parse(self.data)
        records = read_batch(self.data, header)
        middle = len(records) // 2
        halves = []
        for start, end in ((0, middle), (middle, len(records))):
            half = ProducerBatch(self.topic, self.partition, self.created)
            half.builder = BatchBuilder(Codec(header.codec), transactional=header.is_transactional)
            for record in records[start:end]:
                half.builder.append(record.timestamp, record.key, record.value, record.headers)
            half.close()
            half.reports = self.reports[start:end]
            half.order = self.order[0], self.order[1] + start
            half.attempts = self.attempts
            sequence = increment_sequence(self.sequence, start) if self.numbered else -1
            half.number(self.identity, sequence)
            halves.append(half)
        # Both together count as much as the whole did, although records may be smaller in a batch of their own.
        halves[1].size_bytes = self.size_bytes - halves[0].size_bytes
        return halves


class PartitionQueue:
    """The batches of one partition, ready and in flight, and the partition's sequence numbers."""

    __slots__ = (
        "expected_bytes",
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
        # The size of the last batch: the next one is probably similar.
        self.expected_bytes = 0
        self.ready: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        # The broker that received the batches in flight.
        self.sent_to = NO_LEADER
        self.identity = ANONYMOUS
        self.next_sequence = 0
        self.renumber = False

    @property
    def retrying(self) -> bool:
        """True if the batch at the front was sent before."""
        return bool(self.ready) and self.ready[0].attempts > 0

    def may_send_to(self, leader: int) -> bool:
        """True if the next batch may be sent to `leader` now.

        Before a retry is sent, all batches sent after it must have returned, otherwise they would overtake it. The
        same holds for a new leader: it accepts any first sequence from a producer that it does not know, so a batch
        sent to it could overtake one still in flight to the old leader.

        A retry is sent alone. Each batch appended after it would push it further out of the broker's memory of the
        last five batches, and the broker would no longer recognise it as a duplicate.
        """
        if self.in_flight and (self.renumber or self.retrying or leader != self.sent_to):
            return False
        if any(batch.attempts > 1 for batch in self.in_flight):
            return False
        return len(self.in_flight) < MAX_PARTITION_IN_FLIGHT

    def take(self, identity: ProducerIdentity, leader: int) -> ProducerBatch:
        """Remove the next batch, number it, and count it as in flight to `leader`.

        If the batch cannot be encoded, this raises, and the batch stays first; its number is not used.
        """
        batch = self.ready[0]
        if not batch.numbered and identity is not ANONYMOUS:
            self._adopt_epoch(identity)
            try:
                batch.number(self.identity, self.next_sequence)
            except BaseException:
                batch.identity, batch.sequence = ANONYMOUS, NO_SEQUENCE
                raise
            self.next_sequence = increment_sequence(self.next_sequence, batch.record_count)
        else:
            batch.seal()
        self.ready.popleft()
        batch.attempts += 1
        self.in_flight.append(batch)
        self.sent_to = leader
        return batch

    def _adopt_epoch(self, identity: ProducerIdentity) -> None:
        """Switch to the producer's newest epoch once no batch of the old epoch is in flight (KIP-360)."""
        if self.identity == identity:
            return
        if self.identity is ANONYMOUS or not self.in_flight:
            self.identity = identity
            self.next_sequence = 0

    def give_back(self, batches: list[ProducerBatch]) -> None:
        """Put batches that were in flight (or their halves) back, in their original order."""
        for batch in reversed(batches):
            position = 0
            for waiting in self.ready:
                if not waiting.attempts or not _precedes(waiting, batch):
                    break
                position += 1
            self.ready.insert(position, batch)

    def is_first(self, batch: ProducerBatch) -> bool:
        """True if no earlier batch of the partition is in flight or waits for a retry."""
        earlier = [other for other in self.in_flight if other is not batch and _precedes(other, batch)]
        return not earlier and not any(_precedes(other, batch) for other in self.ready if other.attempts)

    def renumber_all(self, identity: ProducerIdentity) -> None:
        """Start again at sequence 0 in a new epoch. No batch may be in flight."""
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
        # Sequences wrap around: a sequence less than half the range below the other comes first.
        return 0 < (other.sequence - one.sequence) % (1 << 31) < (1 << 30)
    return one.order < other.order
