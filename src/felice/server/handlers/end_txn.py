"""EndTxn (key 26): commit or abort. The response is sent when the decision is in the log; the markers follow.

From version 5 the client uses transaction V2: the response has the producer id and epoch of its next transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.coordinator.transaction.shard import Identity
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import permission, request_needs
from felice.server.writes.transactions import as_client_error

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_FENCED_SINCE = 2
_V2_SINCE = 5

guard = request_needs(API.END_TXN, permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID))


async def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Returns the coordinator's result, with the producer's next id and epoch; -1 before version 5."""
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    who = Identity(request.transactional_id, request.producer_id, request.producer_epoch)
    coordinator = context.services.coordinators.transactions
    end = coordinator.end_v2 if context.version >= _V2_SINCE else coordinator.end
    ended = await end(who, request.committed)
    return EndTxnResponse(
        error_code=as_client_error(ended.error, context.version >= _FENCED_SINCE),
        producer_id=ended.producer_id,
        producer_epoch=ended.epoch,
    )
