"""JoinGroup (key 11): a member joins or rejoins a group. The response waits until the join phase ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import permission, request_needs
from felice.server.requests.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_NULL_NAME_SINCE = 7


def _refused(request: JoinGroupRequest, code: ErrorCode, context: RequestContext) -> JoinGroupResponse:
    name = None if context.version >= _NULL_NAME_SINCE else ""
    return JoinGroupResponse(error_code=code, protocol_name=name)


guard = request_needs(API.JOIN_GROUP, permission(Operation.READ, ResourceType.GROUP), refuse=_refused)


async def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Passes the request to the group. Before version 7 a protocol name cannot be null, so it is empty then."""
    answer = await context.services.coordinators.groups.join(request, client_of(context))
    if context.version < _NULL_NAME_SINCE:
        answer.protocol_name = answer.protocol_name or ""
    return answer
