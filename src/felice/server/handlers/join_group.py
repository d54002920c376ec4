"""JoinGroup (key 11): a member joins or rejoins a group. The response waits until the join phase ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.server.requests.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_NULL_NAME_SINCE = 7


async def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Passes the request to the group. Before version 7 a protocol name cannot be null, so it is empty then."""
    answer = await context.services.coordinators.groups.join(request, client_of(context))
    if context.version < _NULL_NAME_SINCE:
        answer.protocol_name = answer.protocol_name or ""
    return answer
