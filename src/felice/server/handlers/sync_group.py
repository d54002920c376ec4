"""SyncGroup (key 14): the leader sends the assignment, and each member receives its own.

The response waits until the assignment is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import permission, request_needs
from felice.server.requests.group_client import client_of, names_protocol

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def _group(request: SyncGroupRequest, context: RequestContext) -> str | None:
    """None if the request does not name its protocol: as in Kafka, the handler then refuses it without other checks."""
    return request.group_id if names_protocol(request, context.version) else None


guard = request_needs(API.SYNC_GROUP, permission(Operation.READ, ResourceType.GROUP, _group))


async def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """INCONSISTENT_GROUP_PROTOCOL if a client of version 5 or later does not name the protocol (KIP-559)."""
    if not names_protocol(request, context.version):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return await context.services.coordinators.groups.sync(request, client_of(context))
