"""DeleteRecords (key 21): moves the start of partitions forward; -1 means up to the high watermark.

Only the log start moves. The next retention check deletes the segments before it. The response waits until every live
replica has moved its log start, for at most `timeout_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from felice.controller.topic_names import INTERNAL_TOPICS
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from felice.replication.partition import Partition
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import items_need, permission
from felice.server.flow.pace import paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_Moved: TypeAlias = tuple[DeleteRecordsPartitionResult, Partition, int]

guard = items_need(
    API.DELETE_RECORDS, permission(Operation.DELETE, ResourceType.TOPIC), fields={"low_watermark": -1}
)


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Moves the log start of every partition, then waits for the replicas of each, for `timeout_ms` in all.

    A partition has one row. Of a partition that is named twice the last offset counts, as in Kafka.
    """
    moved: list[_Moved] = []
    clock = context.services.env.clock
    topics = {topic.name: DeleteRecordsTopicResult(name=topic.name) for topic in request.topics}
    wanted = {
        (topic.name, asked.partition_index): asked for topic in request.topics for asked in topic.partitions
    }
    async for (topic, _), asked in paced(wanted.items(), clock):
        topics[topic].partitions.append(_begin(topic, asked, moved, context))
    deadline = clock.monotonic() + max(request.timeout_ms, 0) / 1000
    for row, partition, start_offset in moved:
        try:
            row.low_watermark = await partition.wait_deleted(
                start_offset, max(0.0, deadline - clock.monotonic())
            )
        except ApiError as error:
            row.error_code = error.code
    return DeleteRecordsResponse(topics=list(topics.values()))


def _begin(
    topic: str, asked: DeleteRecordsPartition, moved: list[_Moved], context: RequestContext
) -> DeleteRecordsPartitionResult:
    """Moves the log start on this broker. All partitions start together and share one deadline for their replicas."""
    row = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = context.services.partitions.find(topic, asked.partition_index)
        moved.append((row, partition, partition.delete_records_before(asked.offset)))
    except ApiError as error:
        row.error_code = error.code
    return row
