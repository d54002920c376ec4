"""What a transaction shard writes: records of `__transaction_state`, in Kafka's format.

Keeps true:  Kafka itself, and its tools, can read every record written here, and the reverse.

Values are written in version 0, as Kafka does without the feature `transaction.version`: version 1 adds only what
transaction V2 needs. Both are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from felice.coordinator.transaction.metadata import TopicPartition, TransactionMetadata
from felice.coordinator.transaction.states import TransactionState
from felice.protocol.codec import data_version, decode_data, encode_data
from felice.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from felice.protocol.primitives import MalformedMessage

_TRANSACTION_TYPE = 0
_VALUE_VERSION = 0


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transactional id as it is now, or with None its removal."""

    transactional_id: str
    metadata: TransactionMetadata | None


class TransactionRecordCodec:
    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        key = encode_data(TransactionLogKey(transactional_id=record.transactional_id))
        return key, None if record.metadata is None else _encode(record.metadata)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
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


def _encode(metadata: TransactionMetadata) -> bytes:
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
    return encode_data(value, _VALUE_VERSION)


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
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise MalformedMessage(
            "TransactionLogValue", "transaction_status", 0, f"{number} is no state"
        ) from None
