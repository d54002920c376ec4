"""DescribeTopicPartitions (key 75): topics page by page, for topics with very many partitions (KIP-966)."""

from __future__ import annotations

import uuid

from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED
from felice.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    nested,
    request,
    response,
    string,
    struct,
    uid,
)


@struct
class Cursor:
    """The first partition of the next page."""

    topic_name: str = string()
    partition_index: int = int32()


@struct
class TopicRequest:
    """A topic by name."""

    name: str = string()


@request(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """The requested topics; an empty list requests all."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nested(Cursor, nullable="0+")


@struct
class DescribeTopicPartitionsResponsePartition:
    """A partition as in Metadata, with the eligible leader replicas (KIP-966)."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
    offline_replicas: list[int] = array(int32, ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    """One topic with all or some of its partitions."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: uuid.UUID = uid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=OPERATIONS_NOT_REQUESTED)


@response(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """A page of topics. `next_cursor` is None on the last page."""

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(
        DescribeTopicPartitionsResponseTopic, may_be_encoded=True
    )
    next_cursor: Cursor | None = nested(Cursor, nullable="0+")
