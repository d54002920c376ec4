"""The facts about a client that the group coordinator needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.coordinator.group.coordinator import Client

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def client_of(context: RequestContext) -> Client:
    """Returns the client of a request.

    Its host has a leading slash, as Java prints addresses: DescribeGroups and the group's record contain it.
    """
    context.services.group_lookups.on_group_request(context)
    return Client(context.version, context.client_id or "", f"/{context.session.peer}")
