"""The transactions that were open when a cluster stopped, by the logs of `__transaction_state`. Only for reports."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from felice.controller.topic_names import TRANSACTION_STATE
from felice.coordinator.transaction.records import TransactionRecordCodec
from felice.coordinator.transaction.states import TransactionState
from felice.dataclass import dataclass
from felice.env import Disk
from felice.log.segment import LOG_SUFFIX
from felice.migration import partition_files
from felice.migration.plan import FoundPartition
from felice.protocol.errors import ApiError
from felice.protocol.primitives import MalformedMessage
from felice.records.reader import read_records
from felice.records.record import Record

# The level of the feature matters only to a writer.
_CODEC = TransactionRecordCodec(lambda: 0)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    partitions: tuple[str, ...]


def find(disk: Disk, partitions: Iterable[FoundPartition]) -> list[OpenTransaction]:
    """The open transactions in these logs. What cannot be read is left to the first start, which reports it."""
    found: dict[str, OpenTransaction] = {}
    for partition in partitions:
        if partition.key[0] != TRANSACTION_STATE:
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
            change = _CODEC.decode(record.key or b"", record.value)
        except MalformedMessage:
            continue
        if change is None:
            continue
        name, metadata = change.transactional_id, change.metadata
        found.pop(name, None)
        if metadata is not None and metadata.state is TransactionState.ONGOING:
            partitions = tuple("{}-{}".format(*one) for one in sorted(metadata.partitions))
            found[name] = OpenTransaction(name, metadata.producer_id, metadata.timeout_ms, partitions)
