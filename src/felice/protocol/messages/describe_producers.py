"""DescribeProducers (key 61): the producers that write to a partition, from any of its replicas (KIP-664)."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct


@struct
class TopicRequest:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@request(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """The requested partitions."""

    topics: list[TopicRequest] = array(TopicRequest)


@struct
class ProducerState:
    """One producer. The epoch has 32 bits here; without an open transaction its start is -1."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@struct
class TopicResponse:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@response(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """Every partition of the request."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
