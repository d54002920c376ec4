"""AddPartitionsToTxn (key 24): partitions that a transaction is about to write to.

Producers send versions 0 to 3, for one transaction. Partition leaders send versions 4 and 5, for several transactions
at once, and with `verify_only` to check partitions without adding them (KIP-890). A response may have PRODUCER_FENCED
instead of INVALID_PRODUCER_EPOCH from version 2, TRANSACTION_ABORTABLE from version 5.
"""

from __future__ import annotations

from felice.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    struct,
)


@struct
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


@struct
class AddPartitionsToTxnTransaction:
    """One of several transactions."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@request(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """One transaction in the fields named for version 3, or several in `transactions`."""

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, versions="4+")
    v3_and_below_transactional_id: str = string(versions="0-3")
    v3_and_below_producer_id: int = int64(versions="0-3")
    v3_and_below_producer_epoch: int = int16(versions="0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, versions="0-3")


@struct
class AddPartitionsToTxnPartitionResult:
    """The result for one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@struct
class AddPartitionsToTxnTopicResult:
    """The partitions of one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@struct
class AddPartitionsToTxnResult:
    """One of several transactions."""

    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@response(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """Every partition of the request, each with its error."""

    throttle_time_ms: int = int32()
    error_code: int = int16(versions="4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, versions="4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, versions="0-3"
    )
