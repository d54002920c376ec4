"""DescribeShareGroupOffsets (key 90): start offsets of share groups (KIP-932), and from version 1 the lag."""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct, uid


@struct
class DescribeShareGroupOffsetsRequestTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[int] = array(int32)


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """One group; without topics, all partitions of which it has a state."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable="0+"
    )


@request(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """Groups by id."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


@struct
class DescribeShareGroupOffsetsResponsePartition:
    """Start offset and lag are -1 where they are unknown."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64(versions="1+", default=-1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    topic_id: uuid.UUID = uid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


@struct
class DescribeShareGroupOffsetsResponseGroup:
    """One group."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """Groups, in the order of the request."""

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)
