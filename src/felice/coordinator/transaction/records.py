"""The records of a transaction shard in `__transaction_state`, in Kafka's format.

Keeps true:  Kafka and its tools can read every record written here, and the reverse.

While the feature `transaction.version` is at level 0, values are written in version 0, for brokers that know no other;
else in version 1, which adds the fields of transaction V2. Both versions are read at every level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from felice.coordinator.transaction.metadata import V2, TransactionMetadata
from felice.coordinator.transaction.states import TransactionState
from felice.dataclass import dataclass
from felice.protocol.codec import data_version, decode_data, encode_data
from felice.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from felice.protocol.primitives import MalformedMessage
from felice.protocol.topic_partition import TopicPartition

_TRANSACTION_TYPE = 0
_PLAIN, _FLEXIBLE = 0, 1


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The current state of a transactional id, or with None its removal."""

    transactional_id: str
    metadata: TransactionMetadata | None


class TransactionRecordCodec:
    """`level` returns the finalized level of the feature `transaction.version`."""

    def __init__(self, level: Callable[[], int]) -> None:
        self._level = level

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        """Key and value; no value is a tombstone for an expired id."""
        key = encode_data(TransactionLogKey(transactional_id=record.transactional_id))
        if record.metadata is None:
            return key, None
        # A transaction that began in V2 ends in V2, also after a downgrade: its fields must not be lost.
        is_flexible = self._level() > 0 or record.metadata.client_version == V2
        return key, _encode(record.metadata, _FLEXIBLE if is_flexible else _PLAIN)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        """The record; None for a kind of record that belongs to newer brokers."""
        if data_version(key) != _TRANSACTION_TYPE:
            return None
        transactional_id = decode_data(TransactionLogKey, key).transactional_id
        return TransactionRecord(transactional_id, None if value is None else _decode(value))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topics and partitions in order: what is written must not depend on how a set is walked."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def _encode(metadata: TransactionMetadata, version: int) -> bytes:
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=ids)
            for topic, ids in by_topic(metadata.partitions).items()
        ]
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if version >= _FLEXIBLE:
        value.previous_producer_id = metadata.last_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.client_version
    return encode_data(value, version)


def _decode(data: bytes) -> TransactionMetadata:
    value = decode_data(TransactionLogValue, data)
    return TransactionMetadata(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        state=_state(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or []
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise MalformedMessage(
            "TransactionLogValue", "transaction_status", 0, f"{number} is no state"
        ) from None
