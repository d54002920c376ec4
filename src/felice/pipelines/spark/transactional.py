"""A task's part of an exactly-once batch: written in one transaction, which stays open for the driver to commit.

Keeps true: the transaction begins with the first row, so a task without rows has none. When `prepare` returns, all
            rows are acknowledged. Batches of a partition carry consecutive sequences, so that a request that is sent
            twice is written once.
Leaves:     the end of the transaction to `commit`, in the driver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from felice.client.blocking import BlockingClient
from felice.client.blocking.coordinators import BlockingCoordinators, TransactionalProducer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import Partition
from felice.pipelines.spark.commit import Prepared
from felice.pipelines.spark.identity import NAMES, TaskIdentity
from felice.pipelines.spark.ledger import abort_quietly
from felice.pipelines.spark.mistakes import OptionError
from felice.pipelines.spark.options import ALL_REPLICAS, SinkOptions
from felice.records.arrow import arrow_to_batches, key_hashes
from felice.records.batch import increment_sequence

FINGERPRINT_BITS = 32
_MIXER = np.uint64(0x9E3779B97F4A7C15)


class TransactionalOutput:
    """Takes the place of `producing.PlainOutput`."""

    def __init__(self, client: BlockingClient, options: SinkOptions, identity: TaskIdentity) -> None:
        self._client = client
        self._options = options
        self._identity = identity
        self._coordinators = BlockingCoordinators(client)
        self._producer: TransactionalProducer | None = None
        self._partitions: set[Partition] = set()
        self._sequences: defaultdict[Partition, int] = defaultdict(int)
        self._rows = 0
        self._fingerprint = 0

    @property
    def topics(self) -> frozenset[str]:
        """The topics to which the task has written."""
        return frozenset(topic for topic, _ in self._partitions)

    def encode(
        self, partition: Partition, rows: pa.Table, timestamp_ms: int, target_bytes: int
    ) -> Iterator[bytearray]:
        """Yields transactional batches with the next sequence numbers; begins the transaction if needed."""
        producer = self._begun()
        self._rows += len(rows)
        self._fingerprint = (self._fingerprint + fingerprint(rows)) % (1 << FINGERPRINT_BITS)
        sequence = self._sequences[partition]
        self._sequences[partition] = increment_sequence(sequence, len(rows))
        return arrow_to_batches(
            rows,
            timestamp_ms=timestamp_ms,
            codec=self._options.codec,
            level=self._options.compression_level,
            target_bytes=target_bytes,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def send(self, batches: list[tuple[str, int, bytearray]]) -> None:
        """Adds new partitions to the transaction, then writes the batches with acks=all."""
        producer = self._begun()
        if new := sorted({(topic, partition) for topic, partition, _ in batches} - self._partitions):
            self._coordinators.add_partitions(producer, new)
            self._partitions.update(new)
        self._client.produce(batches, ALL_REPLICAS, transactional_id=producer.transactional_id)

    def prepare(self) -> Prepared | None:
        """The values with which the driver commits the transaction; None if the task wrote no row."""
        if self._producer is None:
            return None
        return Prepared(
            self._identity.slot,
            self._producer.transactional_id,
            self._producer.producer_id,
            self._producer.epoch,
            self._rows,
            self._fingerprint,
        )

    def give_up(self) -> None:
        """Aborts the transaction, if one was begun. An error is ignored: a later commit or the timeout aborts it."""
        if self._producer is not None:
            abort_quietly(self._coordinators, self._producer)

    def _begun(self) -> TransactionalProducer:
        if self._producer is None:
            self._producer = self._begin()
        return self._producer

    def _begin(self) -> TransactionalProducer:
        timeout_ms = self._options.transaction_timeout_ms
        try:
            return self._coordinators.begin(NAMES.next(self._identity), timeout_ms)
        except KafkaException as error:
            if error.code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                reason = f"the broker does not allow {timeout_ms}; its transaction.max.timeout.ms is lower"
                raise OptionError("kafka.transaction.timeout.ms", reason) from None
            raise


def fingerprint(rows: pa.Table) -> int:
    """A number that is equal for equal keys and values in any order, however the rows are divided into batches."""
    both = (_hashes(rows, "key") << np.uint64(32)) | _hashes(rows, "value")
    # The hashes of key and value are mixed before the sum: otherwise two rows could exchange values unnoticed.
    mixed = (both ^ (both >> np.uint64(29))) * _MIXER
    mixed ^= mixed >> np.uint64(32)
    return int(mixed.sum(dtype=np.uint64)) % (1 << FINGERPRINT_BITS)


def _hashes(rows: pa.Table, name: str) -> np.ndarray:
    """A number for each row. Null, and a missing column, have numbers of their own."""
    if name not in rows.column_names or not len(rows):
        return np.full(len(rows), 1 << 31, np.uint64)
    hashes = [key_hashes(chunk) for chunk in rows[name].chunks]
    filled: np.ndarray = pc.fill_null(pa.chunked_array(hashes).cast(pa.int64()), 1 << 31).to_numpy()
    return filled.astype(np.uint64)
