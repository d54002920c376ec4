"""The facts about a client that the group coordinator needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.coordinator.group.coordinator import Client
from felice.protocol.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from felice.server.context import RequestContext


_PROTOCOL_SENT_SINCE = 5  # KIP-559: the client must name the protocol from this version on


def names_protocol(request: SyncGroupRequest, version: int) -> bool:
    """Whether a SyncGroup request names the group's protocol, or is too old to do so."""
    is_named = request.protocol_type is not None and request.protocol_name is not None
    return is_named or version < _PROTOCOL_SENT_SINCE


def client_of(context: RequestContext) -> Client:
    """Returns the client of a request.

    Its host has a leading slash, as Java prints addresses: DescribeGroups and the group's record contain it.
    """
    return Client(context.version, context.client_id or "", f"/{context.session.peer}")
