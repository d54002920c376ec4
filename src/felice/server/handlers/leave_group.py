"""LeaveGroup (key 13): members leave, or an operator removes static members.

Up to version 2 it has one member, whose error is that of the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import permission, request_needs
from felice.server.requests.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_MANY_MEMBERS_SINCE = 3

guard = request_needs(API.LEAVE_GROUP, permission(Operation.READ, ResourceType.GROUP))


async def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Removes the members. Returns when the group has stored the change."""
    groups, client = context.services.coordinators.groups, client_of(context)
    if context.version >= _MANY_MEMBERS_SINCE:
        return await groups.leave(request.group_id, request.members, client)
    answer = await groups.leave(request.group_id, [MemberIdentity(member_id=request.member_id)], client)
    code = answer.error_code
    if code == ErrorCode.NONE and answer.members:
        code = answer.members[0].error_code
    return LeaveGroupResponse(error_code=code)
