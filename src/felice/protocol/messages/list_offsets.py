"""ListOffsets (key 2): the offset at a timestamp, or at either end of a partition.

Special timestamps: -1 latest, -2 earliest, -3 maximal timestamp (version 7), -4 earliest local (8), -5 latest
tiered (9), -6 earliest pending upload (11).
"""

from __future__ import annotations

from felice.protocol.schema import array, int8, int16, int32, int64, request, response, string, struct

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


@struct
class ListOffsetsPartition:
    """A partition, and the timestamp to look up in milliseconds since 1970, or a special one."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(versions="4+", default=-1, ignorable=True)
    timestamp: int = int64()


@struct
class ListOffsetsTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@request(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """`replica_id` is -1 from a consumer; `timeout_ms` is for tiered storage."""

    replica_id: int = int32()
    isolation_level: int = int8(versions="2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(versions="10+", ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    """The result for one partition. Timestamp and offset are -1 if nothing was found."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(versions="1+", default=-1)
    offset: int = int64(versions="1+", default=-1)
    leader_epoch: int = int32(versions="4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    """Results of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@response(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """Results, by topic."""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
