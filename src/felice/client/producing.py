"""What every producer is made of: settings into accumulator, sender and cluster, and reports into messages.

The blocking face (`producer`) and the asyncio one (`aio`) differ only in who waits and who calls back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from felice.client.accumulator import Accumulator, HeldRecord, Limits
from felice.client.batches import ProducerBatch, Report
from felice.client.errors import KafkaError
from felice.client.model import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Message,
    Origin,
    RecordTuple,
)
from felice.client.options import Settings
from felice.client.partitioners import make_partitioner
from felice.client.sender import Delivered
from felice.client.transactions import Transaction
from felice.records.batch import BatchHeader
from felice.records.reader import read_batch

Headers = list[tuple[str, bytes | None]]


def make_accumulator(settings: Settings) -> Accumulator:
    transactional_id = settings["transactional.id"]
    memory = settings["buffer.memory"] or settings["queue.buffering.max.kbytes"] * 1024
    limits = Limits(
        batch_size_bytes=min(settings["batch.size"], settings["message.max.bytes"]),
        batch_records=settings["batch.num.messages"],
        linger_s=settings["linger.ms"] / 1000,
        queue_records=settings["queue.buffering.max.messages"],
        queue_bytes=memory,
        message_max_bytes=settings["message.max.bytes"],
        sticky_s=settings["sticky.partitioning.linger.ms"] / 1000,
    )
    random = settings.env.random
    partitioner = make_partitioner(settings["partitioner"], random)
    codec, level = settings["compression.type"], settings["compression.level"]
    transaction = Transaction(transactional_id) if transactional_id else None
    return Accumulator(limits, partitioner, codec, level, random, transaction)


def as_bytes(value: Any, what: str) -> bytes | None:
    """Keys and values are bytes, or strings that mean UTF-8."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"expected {what} as bytes, str or None, got {type(value).__name__}")


def as_headers(headers: Any) -> Headers | None:
    """Headers as a mapping or as pairs, their values bytes, strings or None."""
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked: Headers = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"expected a header's name as str, got {type(name).__name__}")
        checked.append((name, as_bytes(value, f"header {name!r}")))
    return checked


def reports_of(delivered: Delivered) -> Iterator[tuple[Report, KafkaError | None, Message]]:
    """The callbacks of a finished batch with their messages, read back from the batch itself."""
    batch = delivered.batch
    if not batch.reports:
        return
    records = _records(batch, delivered)
    for index, report in batch.reports:
        yield report, delivered.error, Message(delivered.origin, records[index], delivered.error)


def _records(batch: ProducerBatch, delivered: Delivered) -> list[Any]:
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
    """The report of a record that never found a partition."""
    fields: RecordTuple = (-1, record.timestamp, record.key, record.value, tuple(record.headers or ()))
    return Message(Origin(record.topic, record.partition), fields, error)
