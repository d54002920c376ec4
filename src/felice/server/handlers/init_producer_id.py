"""InitProducerId (key 22): producer id and epoch of an idempotent or transactional producer.

Without a transactional id the response is always a new producer id with epoch 0. With one, the transaction coordinator
decides. Before version 4 the error of a fenced producer is INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.coordinator.transaction.initialisation import InitRequest
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType
from felice.server.access.guards import checked_by, request_needs
from felice.server.writes.transactions import as_client_error

if TYPE_CHECKING:
    from felice.server.context import RequestContext
    from felice.server.security.access_control import Access

_FENCED_SINCE = 4


def _rights(request: InitProducerIdRequest, context: RequestContext, access: Access) -> ErrorCode:
    """WRITE of the transactional id. An idempotent producer needs IDEMPOTENT_WRITE, or WRITE of any topic (KIP-679)."""
    if request.transactional_id is not None:
        name, kind = request.transactional_id, ResourceType.TRANSACTIONAL_ID
        is_allowed = access.allows(Operation.WRITE, kind, name)
        return ErrorCode.NONE if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    is_allowed = access.shows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) or (
        access.allows_any(Operation.WRITE, ResourceType.TOPIC)
    )
    return ErrorCode.NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


guard = request_needs(
    API.INIT_PRODUCER_ID, checked_by(_rights), refuse=lambda request, code, context: _refused(code)
)


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """INVALID_REQUEST for an empty transactional id, and if only one of producer id and epoch is given."""
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _transactional(request.transactional_id, request, context)
    try:
        producer_id = await context.services.coordinators.producer_ids.next_id()
    except ApiError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _transactional(
    transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    requested = InitRequest(
        transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
    )
    found = await context.services.coordinators.transactions.initialise(requested)
    if found.error != ErrorCode.NONE:
        return _refused(as_client_error(found.error, context.version >= _FENCED_SINCE))
    return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
