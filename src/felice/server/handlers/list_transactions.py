"""ListTransactions (key 66): the transactions that this broker coordinates (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def handle(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    return context.services.coordinators.transactions.list(request)
