"""OffsetDelete (key 47): deletes offsets of topics to which the group is not subscribed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import all_of, items_need, permission, request_needs
from felice.server.requests.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = all_of(
    request_needs(API.OFFSET_DELETE, permission(Operation.DELETE, ResourceType.GROUP)),
    items_need(API.OFFSET_DELETE, permission(Operation.READ, ResourceType.TOPIC), handles_none=True),
)


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """One result for each partition. Returns when the deletions are replicated."""
    return await context.services.coordinators.groups.delete_offsets(request, client_of(context))
