"""ListGroups (key 16): the groups that this broker coordinates, filtered by state and type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """Filters the groups on this broker; the error is COORDINATOR_LOAD_IN_PROGRESS while some are loading."""
    return context.services.coordinators.groups.list(request)
