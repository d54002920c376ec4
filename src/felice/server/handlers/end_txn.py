"""EndTxn (key 26): commit or abort. Answered when the decision is in the log; the markers follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.coordinator.transaction.shard import Identity
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from felice.server.transactions import as_client_error, settled

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_FENCED_SINCE = 2


async def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    who = Identity(request.transactional_id, request.producer_id, request.producer_epoch)
    error = await settled(context.broker.transaction_coordinator.end(who, request.committed))
    return EndTxnResponse(error_code=as_client_error(error, context.version >= _FENCED_SINCE))
