"""ListGroups (key 16): the groups that this broker coordinates, filtered by state and type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType
from felice.server.access.guards import Handle, rows_need

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_shown = rows_need(API.LIST_GROUPS, Operation.DESCRIBE, ResourceType.GROUP)


def guard(
    handle: Handle[ListGroupsRequest, ListGroupsResponse],
) -> Handle[ListGroupsRequest, ListGroupsResponse]:
    """Shows all groups with DESCRIBE of the cluster, or else the groups that the client may describe."""
    shown = _shown(handle)

    async def guarded(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        shows_all = context.access.shows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        return await (handle if shows_all else shown)(request, context)

    return guarded


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """Filters the groups on this broker; the error is COORDINATOR_LOAD_IN_PROGRESS while some are loading."""
    return context.services.coordinators.groups.list(request)
