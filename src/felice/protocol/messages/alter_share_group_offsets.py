"""AlterShareGroupOffsets (key 91): sets start offsets of a share group without members (KIP-932)."""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct, uid


@struct
class AlterShareGroupOffsetsRequestPartition:
    """One start offset."""

    partition_index: int = int32()
    start_offset: int = int64()


@struct
class AlterShareGroupOffsetsRequestTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)


@request(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """The offsets of one group."""

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@struct
class AlterShareGroupOffsetsResponsePartition:
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    topic_id: uuid.UUID = uid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)


@response(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """Every partition of the request, each with its error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)
