"""JoinGroup (key 11): enter a group, or come back to it. Parked until the join phase ends."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.server.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def handle(
    request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    return context.broker.group_coordinator.join(request, client_of(context))
