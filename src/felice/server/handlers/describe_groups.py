"""DescribeGroups (key 15): state, protocol and members. The response has each requested group once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import items_need, permission
from felice.server.flow.pace import each
from felice.server.requests.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = items_need(
    API.DESCRIBE_GROUPS, permission(Operation.DESCRIBE, ResourceType.GROUP), fields={"error_message": None}
)


async def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describes one group after the other, with pauses for other clients if there are many."""
    groups = await each(
        dict.fromkeys(request.groups),
        lambda group_id: _describe(group_id, request, context),
        context.services.env.clock,
    )
    return DescribeGroupsResponse(groups=groups)


def _describe(group_id: str, request: DescribeGroupsRequest, context: RequestContext) -> DescribedGroup:
    described = context.services.coordinators.groups.describe(group_id, client_of(context))
    if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
        described.authorized_operations = context.access.operations(ResourceType.GROUP, group_id)
    return described
