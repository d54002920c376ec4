"""DescribeTransactions (key 65): transactions by id, from their coordinator (KIP-664)."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct


@request(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """The requested transactional ids."""

    transactional_ids: list[str] = array(string)


@struct
class TopicData:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@struct
class TransactionState:
    """One transaction."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@response(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """One entry for each id."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
