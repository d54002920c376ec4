"""AlterPartitionReassignments (key 45): each partition has its own result.

A success means that the reassignment has started.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from felice.protocol.api import API
from felice.protocol.errors import ApiError
from felice.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.flow.pace import paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext

# The new replicas of partitions; None cancels a reassignment.
_Wanted: TypeAlias = dict[int, list[int] | None]

guard = request_needs(API.ALTER_PARTITION_REASSIGNMENTS, cluster_permission(Operation.ALTER), has_rows=True)


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Starts, replaces or cancels (`replicas` is null) each partition's reassignment, in the order of the request.

    Of a partition that occurs twice the later reassignment replaces the earlier one, as in Kafka.
    """
    responses = [ReassignableTopicResponse(name=topic.name) for topic in request.topics]
    runs = (
        (response, run)
        for response, topic in zip(responses, request.topics, strict=True)
        for run in _runs(topic)
    )
    async for response, run in paced(runs, context.services.env.clock):
        failures = await _reassign(response.name, run, request, context)
        response.partitions += [_row(index, failure) for index, failure in failures.items()]
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )


def _runs(topic: ReassignableTopic) -> Iterator[_Wanted]:
    """The partitions of a topic with their replicas, in order; a partition that occurs again begins a new run."""
    run: _Wanted = {}
    for row in topic.partitions:
        if row.partition_index in run:
            yield run
            run = {}
        run[row.partition_index] = row.replicas
    if run:
        yield run


async def _reassign(
    topic: str, wanted: _Wanted, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> dict[int, ApiError | None]:
    try:
        return await context.services.changes.leaderships.reassign(
            topic, wanted, may_change_factor=request.allow_replication_factor_change
        )
    except ApiError as error:
        return dict.fromkeys(wanted, error)


def _row(index: int, failure: ApiError | None) -> ReassignablePartitionResponse:
    code, message = (0, None) if failure is None else (failure.code, failure.message)
    return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
