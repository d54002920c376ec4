"""ListTransactions (key 66): the transactions that this broker coordinates (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """Filters by state, producer id, age in ms and a pattern of transactional ids."""
    return await context.services.coordinators.transactions.list(request)
