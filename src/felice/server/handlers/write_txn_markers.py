"""WriteTxnMarkers (key 27): a transaction coordinator sends the outcome of transactions to partition leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """Appends the markers; the response is sent when they are replicated, with one error for each partition."""
    return await context.services.coordinators.markers.write(request)
