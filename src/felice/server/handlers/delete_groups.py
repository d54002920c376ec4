"""DeleteGroups (key 42): deletes groups without members, and their offsets. Each group has its own result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import items_need, permission
from felice.server.flow.pace import each_answer
from felice.server.requests.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = items_need(API.DELETE_GROUPS, permission(Operation.DELETE, ResourceType.GROUP))


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """One result for each distinct group; the response waits until the deletions are committed to the log."""
    groups, client = context.services.coordinators.groups, client_of(context)
    names = dict.fromkeys(request.groups_names)
    clock = context.services.env.clock
    results = await each_answer(names, lambda group_id: groups.delete(group_id, client), clock)
    return DeleteGroupsResponse(results=results)
