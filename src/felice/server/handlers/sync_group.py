"""SyncGroup (key 14): the leader brings the assignment, each member fetches its own. Parked until it is stored."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from felice.server.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def handle(
    request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    return context.broker.group_coordinator.sync(request, client_of(context))
