"""DescribeTransactions (key 65): transactions by id, from their coordinator.

The response has each id once (KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import all_of, hides, items_need, permission
from felice.server.flow.pace import each

if TYPE_CHECKING:
    from felice.server.context import RequestContext
    from felice.server.security.access_control import Access


def _hide_topics(answer: DescribeTransactionsResponse, access: Access) -> None:
    """Leaves out the topics of described transactions that the client may not describe."""
    for state in answer.transaction_states:
        state.topics = [
            topic
            for topic in state.topics
            if access.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        ]


guard = all_of(
    items_need(API.DESCRIBE_TRANSACTIONS, permission(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)),
    hides(_hide_topics),
)


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
