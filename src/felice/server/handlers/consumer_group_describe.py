"""ConsumerGroupDescribe (key 69): members of consumer groups with their current and target assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller.features import GROUP_VERSION
from felice.coordinator.group.consumer.describe import describe_missing
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import items_need, permission
from felice.server.flow.pace import each

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = items_need(
    API.CONSUMER_GROUP_DESCRIBE,
    permission(Operation.DESCRIBE, ResourceType.GROUP),
    fields={"error_message": None},
)


async def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describes the groups one after the other. If there are many, pauses between them for other clients."""
    groups = await each(
        dict.fromkeys(request.group_ids),
        lambda group_id: _describe(group_id, request, context),
        context.services.env.clock,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(
    group_id: str, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> DescribedGroup:
    if context.services.image.features.get(GROUP_VERSION, 0) < 1:
        error = ErrorCode.UNSUPPORTED_VERSION
        return describe_missing(group_id, error, error.message)
    described = context.services.coordinators.groups.describe_consumer(group_id)
    if described.error_code != ErrorCode.NONE:
        return described
    if not _shows_topics(described, context):
        described.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        described.error_message = (
            "The group has described topic(s) that the client is not authorized to describe."
        )
        described.members = []
        return described
    if request.include_authorized_operations:
        described.authorized_operations = context.access.operations(ResourceType.GROUP, group_id)
    return described


def _shows_topics(described: DescribedGroup, context: RequestContext) -> bool:
    """Whether the client may see all topics that are assigned to the group's members."""
    if not context.services.security.access.is_enabled:
        return True
    names = set[str]()
    for member in described.members:
        for assignment in (member.assignment, member.target_assignment):
            names.update(topic.topic_name for topic in assignment.topic_partitions)
    access = context.access
    return all(access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names))
