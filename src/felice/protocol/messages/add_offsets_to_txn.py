"""AddOffsetsToTxn (key 25): a transaction is about to commit offsets of a group.

A response may have PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH from version 2, TRANSACTION_ABORTABLE from
version 4.
"""

from __future__ import annotations

from felice.protocol.schema import int16, int32, int64, request, response, string


@request(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """The group stands for the partition of `__consumer_offsets` that holds its offsets."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@response(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """The response has only an error code."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
