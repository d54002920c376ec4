"""ElectLeaders (key 43): each partition has its own result. The response is sent when the image shows the leaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from felice.protocol.topic_partition import PartitionKey
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.access.refusals import refused
from felice.server.flow.pace import paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext

# Some milliseconds of work.
_PART_PARTITIONS = 500

guard = request_needs(API.ELECT_LEADERS, cluster_permission(Operation.ALTER), has_rows=True)


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Elects leaders of the named partitions, or of all; for all, partitions that need no election are left out."""
    if request.election_type not in set(ElectionType):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    wanted = None
    if request.topic_partitions is not None:
        named = ((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
        # A second election of the same partition would not be needed, and hide the outcome of the first.
        wanted = list(dict.fromkeys(named))
    try:
        found = await _elect(wanted, request.election_type == ElectionType.UNCLEAN, context)
    except ApiError as error:
        return refused(API.ELECT_LEADERS, request, error.code, context.version, has_rows=True)
    results = {
        topic.topic: ReplicaElectionResult(topic=topic.topic) for topic in request.topic_partitions or ()
    }
    for (topic, index), failure in found.items():
        row = results.setdefault(topic, ReplicaElectionResult(topic=topic))
        if wanted is None and failure is not None and failure.code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        row.partition_result.append(_result(index, failure))
    return ElectLeadersResponse(replica_election_results=list(results.values()))


async def _elect(
    wanted: Sequence[PartitionKey] | None, is_unclean: bool, context: RequestContext
) -> dict[PartitionKey, ApiError | None]:
    """The outcome of each partition. Many named partitions are elected in parts, with pauses between them.

    Raises `ApiError` if nothing was elected. An error after the first part is the outcome of all other partitions.
    """
    elect = context.services.changes.leaderships.elect
    if wanted is None:
        return await elect(None, is_unclean=is_unclean)
    parts = (wanted[at : at + _PART_PARTITIONS] for at in range(0, len(wanted), _PART_PARTITIONS))
    found: dict[PartitionKey, ApiError | None] = {}
    async for part in paced(parts, context.services.env.clock):
        try:
            found.update(await elect(part, is_unclean=is_unclean))
        except ApiError as error:
            if not found:
                raise
            return {**dict.fromkeys(wanted, error), **found}
    return found


def _result(index: int, failure: ApiError | None) -> PartitionResult:
    code, message = (0, None) if failure is None else (failure.code, failure.message)
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
