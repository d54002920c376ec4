"""AlterReplicaLogDirs (key 34): begins to move replicas between this broker's log directories.

A success means that the move has started; DescribeLogDirs shows its progress. Naming the current directory of a replica
cancels its move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.flow.pace import paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def _refused(
    request: AlterReplicaLogDirsRequest, code: ErrorCode, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for asked in request.dirs:
        for topic in asked.topics:
            row = topics.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            row.partitions += [
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                for index in topic.partitions
            ]
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


guard = request_needs(API.ALTER_REPLICA_LOG_DIRS, cluster_permission(Operation.ALTER), refuse=_refused)


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
