"""ListPartitionReassignments (key 46): the reassignments in progress; other and unknown partitions are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.metadata import PartitionImage, TopicImage
from felice.protocol.api import API
from felice.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(API.LIST_PARTITION_REASSIGNMENTS, cluster_permission(Operation.DESCRIBE), has_rows=True)


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Reads the reassignments from the current image, of all topics or of the requested partitions."""
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {topic.name: set(topic.partition_indexes) for topic in request.topics}
    found = []
    for topic in context.services.image.topics.values():
        if wanted is None or topic.name in wanted:
            rows = _under_way(topic, None if wanted is None else wanted[topic.name])
            if rows:
                found.append(OngoingTopicReassignment(name=topic.name, partitions=rows))
    return ListPartitionReassignmentsResponse(error_message=None, topics=found)


def _under_way(topic: TopicImage, wanted: set[int] | None) -> list[OngoingPartitionReassignment]:
    return [
        _row(partition)
        for partition in topic.partitions
        if partition.is_reassigning and (wanted is None or partition.partition in wanted)
    ]


def _row(partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=partition.partition,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
