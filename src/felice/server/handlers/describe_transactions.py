"""DescribeTransactions (key 65): transactions by id, from their coordinator.

The response has each id once (KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from felice.server.flow.pace import each

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """One result for each distinct transactional id; INVALID_REQUEST for an empty id."""
    states = await each(
        dict.fromkeys(request.transactional_ids),
        lambda transactional_id: _describe(transactional_id, context),
        context.services.env.clock,
    )
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    return context.services.coordinators.transactions.describe(transactional_id)
