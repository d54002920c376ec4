"""The records of `__transaction_state`: one for every change of a transaction that must outlive its coordinator.

A key begins with the type of the record, a value with its version. A null value deletes the transactional id.
Version 1 is flexible; its tagged fields belong to transaction V2 (KIP-890).
"""

from __future__ import annotations

from felice.protocol.schema import (
    array,
    int8,
    int16,
    int32,
    int64,
    record_key,
    record_value,
    string,
    struct,
)


@record_key(record_type=0)
class TransactionLogKey:
    """The transactional id."""

    transactional_id: str = string()


@struct
class PartitionsSchema:
    """Partitions of one topic."""

    topic: str = string()
    partition_ids: list[int] = array(int32)


@record_value(record_type=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of a transactional id after one change. `transaction_status` is the number of the state."""

    producer_id: int = int64()
    previous_producer_id: int = int64(versions="1+", tag=0, default=-1)
    next_producer_id: int = int64(versions="1+", tag=1, default=-1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(versions="1+", tag=3, default=-1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(versions="1+", tag=2, default=0)
