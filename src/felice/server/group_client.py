"""What the group coordinator wants to know of the client behind a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.coordinator.group.coordinator import Client

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def client_of(context: RequestContext) -> Client:
    """The host as Java prints an address, with a slash: it goes into DescribeGroups and the group's record."""
    context.services.group_lookups.on_group_request(context)
    return Client(context.version, context.client_id or "", f"/{context.session.peer}")
