"""DeleteRecords (key 21): moves the start of partitions forward; -1 means up to the high watermark."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct


@struct
class DeleteRecordsPartition:
    """A partition whose records below `offset` are deleted."""

    partition_index: int = int32()
    offset: int = int64()


@struct
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@request(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """The partitions, and the new start of each."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct
class DeleteRecordsPartitionResult:
    """`low_watermark` is the start of the partition now."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct
class DeleteRecordsTopicResult:
    """Results of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@response(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """Results, by topic."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
