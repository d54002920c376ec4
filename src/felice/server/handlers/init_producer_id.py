"""InitProducerId (key 22): an identity for an idempotent producer.

Always a fresh id with epoch 0. Transactions are not built yet: a transactional id is refused
with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes as final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = await context.broker.producer_ids.next_id()
    except ApiError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
