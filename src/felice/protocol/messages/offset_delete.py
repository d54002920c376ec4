"""OffsetDelete (key 47): deletes offsets that a group committed. It has no flexible version."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, request, response, string, struct


@struct
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = int32()


@struct
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@request(api_key=47, versions="0")
class OffsetDeleteRequest:
    """The partitions whose offsets are to be deleted."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct
class OffsetDeleteResponsePartition:
    """The result for one offset."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetDeleteResponseTopic:
    """Results of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@response(api_key=47, versions="0")
class OffsetDeleteResponse:
    """Unlike in other responses, the error precedes the throttle time."""

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
