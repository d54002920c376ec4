"""Heartbeat (key 12): keeps a member alive; REBALANCE_IN_PROGRESS tells the member to join again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import permission, request_needs

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(API.HEARTBEAT, permission(Operation.READ, ResourceType.GROUP))


async def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Restarts the member's session timeout; the error code is the group's answer."""
    return context.services.coordinators.groups.heartbeat(request)
