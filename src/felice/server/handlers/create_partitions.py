"""CreatePartitions (key 37): adds partitions to topics; `count` is the new total."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import items_need, permission
from felice.server.flow.pace import paced
from felice.server.requests.mutations import Mutations

if TYPE_CHECKING:
    from felice.server.context import RequestContext


_STRICT_QUOTA_FROM = 3

guard = items_need(API.CREATE_PARTITIONS, permission(Operation.ALTER, ResourceType.TOPIC))


async def handle(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Creates the partitions of one topic after the other. A topic that occurs twice gets INVALID_REQUEST."""
    times = Counter(topic.name for topic in request.topics)
    results = []
    mutations = Mutations(context, _STRICT_QUOTA_FROM)
    distinct = {topic.name: topic for topic in request.topics}.values()
    async for topic in paced(distinct, context.services.env.clock):
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            mutations.check()
            added = await context.services.changes.cluster.create_partitions(
                topic.name, topic.count, _assignments(topic), validate_only=request.validate_only
            )
            if not request.validate_only:
                mutations.spend(added)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_time_ms, results=results)


def _assignments(topic: CreatePartitionsTopic) -> list[list[int]] | None:
    return None if topic.assignments is None else [row.broker_ids for row in topic.assignments]
