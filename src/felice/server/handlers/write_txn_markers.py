"""WriteTxnMarkers (key 27): a transaction coordinator sends the outcome of transactions to partition leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, cluster_permission_or, request_needs

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(
    API.WRITE_TXN_MARKERS,
    cluster_permission_or(Operation.ALTER, cluster_permission(Operation.CLUSTER_ACTION)),
)


async def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """Appends the markers; the response is sent when they are replicated, with one error for each partition."""
    return await context.services.coordinators.markers.write(request)
