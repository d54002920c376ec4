"""Delivery reports: the messages that callbacks and futures get for finished batches and dropped records.

Keeps true:  A message is decoded from the batch that was sent, with the offset and timestamp that the broker assigned.
             Each callback of a batch gets one message, even if the batch cannot be decoded: then without content.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from felice.client.error import KafkaError
from felice.client.model import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Message,
    Origin,
    RecordTuple,
    message_of,
)
from felice.client.produce.accumulator import UNDECIDED, HeldRecord
from felice.client.produce.batches import ProducerBatch, Report
from felice.client.produce.sender import Delivered
from felice.records.batch import NO_TIMESTAMP, BatchHeader
from felice.records.reader import read_batch
from felice.records.record import Record

_log = logging.getLogger("felice.client")


def reports_of(delivered: Delivered) -> list[tuple[Report, KafkaError | None, Message]]:
    """Return the callbacks of a finished batch with their messages, decoded from the batch."""
    batch = delivered.batch
    if not batch.reports:
        return []
    records: Sequence[Record]
    try:
        records = _records(batch, delivered)
    except Exception as error:  # for example above the limit of decompression, or of the memory
        _log.error(
            "%s-%d: a batch cannot be decoded for its reports: %s", batch.topic, batch.partition, error
        )
        records = _without_content(batch, delivered.base_offset)
    return [
        (report, delivered.error, message_of(delivered.origin, record, delivered.error))
        for report, record in zip(batch.reports, records, strict=False)
        if report is not None
    ]


def _without_content(batch: ProducerBatch, base_offset: int) -> list[Record]:
    offsets = range(base_offset, base_offset + batch.record_count) if base_offset >= 0 else ()
    return [
        Record(offsets[position] if offsets else -1, NO_TIMESTAMP, None, None)
        for position in range(batch.record_count)
    ]


def _records(batch: ProducerBatch, delivered: Delivered) -> list[Record]:
    batch.seal_for_reports()
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
    return message_of(Origin(record.topic, max(record.partition, UNDECIDED)), fields, error)
