"""Delivery reports: the messages that callbacks and futures get for finished batches and dropped records.

Keeps true:  A message is decoded from the batch that was sent, with the offset and timestamp that the broker assigned.
"""

from __future__ import annotations

from collections.abc import Iterator

from felice.client.error import KafkaError
from felice.client.model import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Message,
    Origin,
    RecordTuple,
    message_of,
)
from felice.client.produce.accumulator import HeldRecord
from felice.client.produce.batches import ProducerBatch, Report
from felice.client.produce.sender import Delivered
from felice.records.batch import BatchHeader
from felice.records.reader import read_batch
from felice.records.record import Record


def reports_of(delivered: Delivered) -> Iterator[tuple[Report, KafkaError | None, Message]]:
    """Yield the callbacks of a finished batch with their messages, decoded from the batch."""
    batch = delivered.batch
    if not batch.reports:
        return
    records = _records(batch, delivered)
    for report, record in zip(batch.reports, records, strict=False):
        if report is not None:
            yield report, delivered.error, message_of(delivered.origin, record, delivered.error)


def _records(batch: ProducerBatch, delivered: Delivered) -> list[Record]:
    batch.seal()
    header = BatchHeader.parse(batch.data)
    if delivered.base_offset < 0:
        return [record._replace(offset=-1) for record in read_batch(batch.data, header)]
    origin = delivered.origin
    origin.timestamp_type = TIMESTAMP_CREATE_TIME
    records = read_batch(batch.data, header._replace(base_offset=delivered.base_offset))
    if delivered.log_append_time_ms < 0:
        return records
    origin.timestamp_type = TIMESTAMP_LOG_APPEND_TIME
    return [record._replace(timestamp=delivered.log_append_time_ms) for record in records]


def dropped_message(record: HeldRecord, error: KafkaError) -> Message:
    """The report of a record that was never assigned to a partition."""
    fields: RecordTuple = (-1, record.timestamp, record.key, record.value, tuple(record.headers or ()))
    return message_of(Origin(record.topic, record.partition), fields, error)
