"""Produce (key 0): appends one record batch to each of some partitions.

Versions 0 to 2 had message formats that are not supported. Brokers offer these versions all the same, because older
librdkafka compresses only if they are offered (KAFKA-18659). From version 13 requests name topics by id.
With acks=0 there is no response.
"""

from __future__ import annotations

import uuid

from felice.protocol.messages.fetch import LeaderIdAndEpoch as LeaderIdAndEpoch
from felice.protocol.messages.fetch import NodeEndpoint as NodeEndpoint
from felice.protocol.primitives import Buffer
from felice.protocol.schema import (
    array,
    int16,
    int32,
    int64,
    nested,
    records,
    request,
    response,
    string,
    struct,
    uid,
)


@struct
class PartitionProduceData:
    """`records` is a view into the request when decoded."""

    index: int = int32()
    records: Buffer | None = records()


@struct
class TopicProduceData:
    """A topic by name, or by id from version 13."""

    name: str = string(versions="0-12", ignorable=True)
    topic_id: uuid.UUID = uid(versions="13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@request(api_key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    """`acks` is 0, 1 or -1 for all in-sync replicas."""

    transactional_id: str | None = string(versions="3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct
class BatchIndexAndErrorMessage:
    """An invalid record, by its index in the batch."""

    batch_index: int = int32(versions="8+")
    batch_index_error_message: str | None = string(versions="8+", nullable="8+", default=None)


@struct
class PartitionProduceResponse:
    """`log_append_time_ms` is -1 unless the topic has message.timestamp.type=LogAppendTime."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(versions="2+", default=-1, ignorable=True)
    log_start_offset: int = int64(versions="5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, versions="8+", ignorable=True
    )
    error_message: str | None = string(versions="8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, versions="10+", tag=0)


@struct
class TopicProduceResponse:
    """The topic as the request named it."""

    name: str = string(versions="0-12", ignorable=True)
    topic_id: uuid.UUID = uid(versions="13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@response(api_key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """`current_leader` and `node_endpoints` may only be set from version 10."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, versions="10+", tag=0)
