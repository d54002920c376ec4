"""AlterPartitionReassignments (key 45): each partition has its own result.

A success means that the reassignment has started.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from felice.server.pace import paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Starts, replaces or cancels (`replicas` is null) each partition's reassignment.

    A topic that occurs twice is refused.
    """
    times = Counter(topic.name for topic in request.topics)
    responses = []
    topics = {topic.name: topic for topic in request.topics}.values()
    async for topic in paced(topics, context.services.env.clock):
        failures = await _reassign(topic, times[topic.name], request, context)
        rows = [_row(index, failure) for index, failure in failures.items()]
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )


async def _reassign(
    topic: ReassignableTopic, times: int, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> dict[int, ApiError | None]:
    wanted = {row.partition_index: row.replicas for row in topic.partitions}
    try:
        if times > 1 or len(wanted) != len(topic.partitions):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"A partition of {topic.name} is named more than once.")
        return await context.services.leaderships.reassign(
            topic.name, wanted, may_change_factor=request.allow_replication_factor_change
        )
    except ApiError as error:
        return dict.fromkeys(wanted, error)


def _row(index: int, failure: ApiError | None) -> ReassignablePartitionResponse:
    code, message = (0, None) if failure is None else (failure.code, failure.message)
    return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
