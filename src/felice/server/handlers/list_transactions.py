"""ListTransactions (key 66): the transactions that this broker coordinates (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import rows_need

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = rows_need(API.LIST_TRANSACTIONS, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)


async def handle(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """Filters by state, producer id, age in ms and a pattern of transactional ids."""
    return await context.services.coordinators.transactions.list(request)
