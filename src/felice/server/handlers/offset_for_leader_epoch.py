"""OffsetForLeaderEpoch (key 23): where a leader epoch ended (KIP-101, KIP-320).

For an epoch that this log never had the result is (-1, -1) without an error. An epoch older than all of the log ended
at the log start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ApiError
from felice.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import cluster_permission_or, items_need, permission
from felice.server.flow.pace import each_partition

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = items_need(
    API.OFFSET_FOR_LEADER_EPOCH,
    cluster_permission_or(Operation.CLUSTER_ACTION, permission(Operation.DESCRIBE, ResourceType.TOPIC)),
)


async def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """One row for each requested partition: its epoch and the exclusive end offset of that epoch."""
    topics = await each_partition(
        request.topics,
        lambda topic, asked: _row(topic.topic, asked, context),
        context.services.env.clock,
    )
    return OffsetForLeaderEpochResponse(
        topics=[OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows) for topic, rows in topics]
    )


def _row(topic: str, asked: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    try:
        partition = context.services.partitions.find(topic, asked.partition)
        end = partition.end_offset_for_epoch(asked.leader_epoch, asked.current_leader_epoch)
    except ApiError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    return EpochEndOffset(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
