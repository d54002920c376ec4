"""OffsetCommit (key 8): stores offsets. The response is sent when they are committed to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import all_of, items_need, permission, request_needs
from felice.server.requests.commit_parts import commit_in_parts
from felice.server.requests.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = all_of(
    request_needs(API.OFFSET_COMMIT, permission(Operation.READ, ResourceType.GROUP)),
    items_need(API.OFFSET_COMMIT, permission(Operation.READ, ResourceType.TOPIC)),
)


async def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """The group checks member and generation. Returns when the offsets are replicated."""
    groups, client = context.services.coordinators.groups, client_of(context)
    return await commit_in_parts(
        request,
        lambda part: groups.commit(part, client),
        lambda topics: OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)
                for topic, rows in topics
            ]
        ),
        context,
    )
