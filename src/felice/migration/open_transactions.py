"""The transactions that were open when a cluster stopped, by the logs of `__transaction_state`. Only for reports."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from felice.dataclass import dataclass
from felice.env import Disk
from felice.log.segment import LOG_SUFFIX
from felice.migration import partition_files
from felice.migration.plan import FoundPartition
from felice.protocol.codec import decode_data
from felice.protocol.errors import ApiError
from felice.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from felice.protocol.primitives import MalformedMessage
from felice.records.reader import read_records
from felice.records.record import Record

TOPIC = "__transaction_state"
_ONGOING = 1


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction. `started_ms` is in milliseconds since 1970."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[str, ...]


def find(disk: Disk, partitions: Iterable[FoundPartition]) -> list[OpenTransaction]:
    """The open transactions in these logs. What cannot be read is left to the first start, which reports it."""
    found: dict[str, OpenTransaction] = {}
    for partition in partitions:
        if partition.key[0] != TOPIC:
            continue
        for base in partition_files.base_offsets(disk.listdir(partition.path)):
            data = disk.read_bytes(partition.path / f"{base:020d}{LOG_SUFFIX}")
            with suppress(ApiError):
                follow(found, read_records(data, check_crcs=True))
    return [found[name] for name in sorted(found)]


def follow(found: dict[str, OpenTransaction], records: Iterable[Record]) -> None:
    """Applies records in the order of the log. Pure."""
    for record in records:
        try:
            key = decode_data(TransactionLogKey, record.key or b"").transactional_id
            value = None if record.value is None else decode_data(TransactionLogValue, record.value)
        except MalformedMessage:
            continue
        found.pop(key, None)
        if value is not None and value.transaction_status == _ONGOING:
            found[key] = OpenTransaction(
                key,
                value.producer_id,
                value.transaction_timeout_ms,
                value.transaction_start_timestamp_ms,
                tuple(
                    f"{topic.topic}-{number}"
                    for topic in value.transaction_partitions or ()
                    for number in topic.partition_ids
                ),
            )
