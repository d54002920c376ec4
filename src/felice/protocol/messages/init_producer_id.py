"""InitProducerId (key 22): an identity for an idempotent or transactional producer.

From version 3 a producer may pass its id and epoch to have the epoch raised (KIP-360). From version 4 a response may
have PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. Version 6 (two-phase commit, KIP-939) is unstable in Kafka 4.3
and not offered.
"""

from __future__ import annotations

from felice.protocol.schema import boolean, int16, int32, int64, request, response, string


@request(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    """`transactional_id` is None for an idempotent producer without transactions."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(versions="3+", default=-1)
    producer_epoch: int = int16(versions="3+", default=-1)
    enable2_pc: bool = boolean(versions="6+")
    keep_prepared_txn: bool = boolean(versions="6+")


@response(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """The producer id and epoch; -1 with an error."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(versions="6+", default=-1)
    ongoing_txn_producer_epoch: int = int16(versions="6+", default=-1)
