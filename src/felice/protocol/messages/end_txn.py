"""EndTxn (key 26): commit or abort.

A response may have PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH from version 2, TRANSACTION_ABORTABLE from
version 4. From version 5 every end of a transaction raises the producer's epoch, and the response has the new one
(KIP-890, transaction V2).
"""

from __future__ import annotations

from felice.protocol.schema import boolean, int16, int32, int64, request, response, string


@request(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """Ends a transaction. The coordinator persists the decision before any marker."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@response(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """From version 5 it has the producer id and epoch of the next transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(versions="5+", default=-1, ignorable=True)
    producer_epoch: int = int16(versions="5+", default=-1, ignorable=True)
