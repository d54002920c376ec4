"""AlterReplicaLogDirs (key 34): begins to move replicas between this broker's log directories.

A success means that the move has started; DescribeLogDirs shows its progress. Naming the current directory of a replica
cancels its move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from felice.server.flow.pace import paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
    """Starts the moves, and returns one result for each replica, grouped by topic."""
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    wanted = (
        (asked.path, topic.name, index)
        for asked in request.dirs
        for topic in asked.topics
        for index in topic.partitions
    )
    async for path, name, index in paced(wanted, context.services.env.clock):
        topic = topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        topic.partitions.append(_row(name, index, path, context))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _row(topic: str, index: int, path: str, context: RequestContext) -> AlterReplicaLogDirPartitionResult:
    row = AlterReplicaLogDirPartitionResult(partition_index=index)
    try:
        context.services.disks.replica_moves.begin(topic, index, path)
    except ApiError as error:
        # Older clients know only this code for a replica on another broker.
        elsewhere = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        row.error_code = ErrorCode.REPLICA_NOT_AVAILABLE if elsewhere else error.code
    return row
