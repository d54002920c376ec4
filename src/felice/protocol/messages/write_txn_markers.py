"""WriteTxnMarkers (key 27): a transaction coordinator tells partition leaders how transactions ended.

Version 2 has the transaction version that the producer used (KIP-1228).
"""

from __future__ import annotations

from felice.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    struct,
)


@struct
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@struct
class WritableTxnMarker:
    """The end of one producer's transaction. `transaction_result` is true for a commit."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(versions="2+", ignorable=True)


@request(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """Markers for partitions that the receiver leads."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@struct
class WritableTxnMarkerPartitionResult:
    """The result of one marker in one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class WritableTxnMarkerTopicResult:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct
class WritableTxnMarkerResult:
    """One producer's markers."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@response(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """Every partition of the request, each with its error."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
