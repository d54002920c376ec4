"""Decides what remains of one batch after cleaning.

Keeps true: a batch keeps its base and last offset, leader epoch, producer, epoch and sequence. Its remaining
            records keep offset and timestamp. A batch that loses no record keeps its bytes.
            A tombstone, and a marker whose transaction has no records left, stay for delete.retention.ms after
            the first pass that finds them so: that pass writes the delete horizon into the batch (KIP-534).

Decides by Kafka's rules (`Cleaner.shouldRetainRecord`, `checkBatchRetention`, `MemoryRecords.filterTo`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from felice.dataclass import dataclass
from felice.log.cleaner_transactions import CleanedTransactions, LastOfProducer
from felice.protocol.primitives import Buffer
from felice.records.batch import BatchHeader
from felice.records.builder import assemble, rebuild_batch
from felice.records.control import ControlType, control_type
from felice.records.kernels import KeptRecords, OffsetMap, iterate
from felice.records.reader import append_time, read_batch, records_payload


class CleanedBatch(NamedTuple):
    """`data` is the whole batch; a view of the bytes that were read if nothing changed."""

    data: Buffer
    header: BatchHeader
    is_changed: bool


@dataclass(frozen=True, slots=True)
class BatchCleaner:
    """Decides for the batches of one pass. The caller passes them in offset order."""

    offsets: OffsetMap
    end_offset: int
    """Records from this offset on are not in the map and stay."""
    transactions: CleanedTransactions
    last_of_producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int

    def clean(self, window: Buffer, header: BatchHeader, *, ends_group: bool) -> CleanedBatch | None:
        """What remains of the batch in `window`; None if the whole batch is removed."""
        if header.is_control:
            cleaned = self._clean_control(window, header)
        elif self.transactions.is_aborted(header):
            cleaned = None
        else:
            cleaned = self._clean_data(window, header)
        if cleaned is None and (ends_group or self._is_last_of_producer(header)):
            return _as_it_is(window, header) if header.record_count == 0 else _emptied(header)
        return cleaned

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.last_of_producers.get(header.producer_id) if header.has_producer_id else None
        return last is not None and last.is_in(header)

    def _clean_control(self, window: Buffer, header: BatchHeader) -> CleanedBatch | None:
        if not self.transactions.is_spent(header, control_type_of(window, header)):
            return _as_it_is(window, header)
        if header.record_count == 0 or self._is_past_horizon(header):
            return None
        if header.has_delete_horizon:
            return _as_it_is(window, header)
        return self._with_horizon(header, records_payload(window, header), header.record_count)

    def _clean_data(self, window: Buffer, header: BatchHeader) -> CleanedBatch | None:
        if header.record_count == 0:
            return None
        payload = records_payload(window, header)
        kept = self.offsets.keep_latest(
            payload,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            self.end_offset,
            not self._is_past_horizon(header),
        )
        if kept.record_count == 0:
            return None
        if kept.has_tombstones and not header.has_delete_horizon:
            records = payload if kept.records is None else kept.records
            return self._with_horizon(header, records, kept.record_count)
        return _as_it_is(window, header) if kept.records is None else _thinned(header, kept)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is not None and horizon_ms <= self.now_ms

    def _with_horizon(self, header: BatchHeader, payload: Buffer, record_count: int) -> CleanedBatch:
        records = iterate(
            payload, record_count, header.base_offset, header.base_timestamp, append_time(header)
        )
        return _made(rebuild_batch(header, records, delete_horizon_ms=self.now_ms + self.delete_retention_ms))


def control_type_of(window: Buffer, header: BatchHeader) -> ControlType | None:
    """The type of a control batch; None if the type is unknown or the batch is empty."""
    records = read_batch(window, header)
    return control_type(records[0].key) if records else None


def _as_it_is(window: Buffer, header: BatchHeader) -> CleanedBatch:
    return CleanedBatch(memoryview(window)[header.position : header.end], header, False)


def _emptied(header: BatchHeader) -> CleanedBatch:
    return _made(rebuild_batch(header, []))


def _thinned(header: BatchHeader, kept: KeptRecords) -> CleanedBatch:
    """Keeps the base timestamp, so that the remaining records keep their encoding."""
    assert kept.records is not None
    max_timestamp = header.max_timestamp if header.is_log_append_time else kept.max_timestamp
    fields = header._replace(record_count=kept.record_count, max_timestamp=max_timestamp)
    return _made(assemble(fields, kept.records, header.codec))


def _made(data: bytearray) -> CleanedBatch:
    return CleanedBatch(data, BatchHeader.parse(data), True)
