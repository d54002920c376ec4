"""ListTransactions (key 66): the transactions that a broker coordinates (KIP-664).

Requests can filter by age from version 1 (KIP-994), and by a pattern of the id from version 2 (KIP-1152).
"""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct


@request(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Filters of transactions; an empty filter selects all."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(versions="1+", default=-1)
    transactional_id_pattern: str | None = string(versions="2+", nullable="2+", default=None)


@struct
class TransactionState:
    """One transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@response(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The selected transactions, and the states in the filter that do not exist."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
