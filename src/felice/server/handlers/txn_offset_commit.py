"""TxnOffsetCommit (key 28): offsets that count when the transaction commits.

From version 5 the client uses transaction V2: the group's partition is added to the transaction here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller.topic_names import CONSUMER_OFFSETS
from felice.coordinator.transaction.shard import Identity
from felice.env.begun import begin, ended
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)
from felice.protocol.topic_partition import TopicPartition
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import all_of, items_need, permission, request_needs
from felice.server.requests.commit_parts import commit_in_parts
from felice.server.writes.admission import Flow, QueuedWrite

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_ABORTABLE_SINCE = 4
_ADDS_SINCE = 5

guard = all_of(
    request_needs(API.TXN_OFFSET_COMMIT, permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)),
    request_needs(API.TXN_OFFSET_COMMIT, permission(Operation.READ, ResourceType.GROUP)),
    items_need(API.TXN_OFFSET_COMMIT, permission(Operation.READ, ResourceType.TOPIC)),
)


async def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    """Stores the offsets as pending, after the coordinator agreed that the group's partition is in the transaction."""
    return await commit_in_parts(
        request,
        lambda part: _commit(part, context),
        lambda topics: TxnOffsetCommitResponse(
            topics=[TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows) for topic, rows in topics]
        ),
        context,
    )


async def _commit(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    services = context.services
    nothing_to_commit = services.coordinators.groups.answer_without_transaction(request)
    if nothing_to_commit is not None:
        return nothing_to_commit
    index = services.coordinators.groups.partition_for(request.group_id)
    partition = services.partitions.get(CONSUMER_OFFSETS, index)
    if partition is None:
        # The coordinator refuses the request with the reason.
        return await services.coordinators.groups.commit_transactional(request, ErrorCode.NONE)
    who = Identity(request.transactional_id, request.producer_id, request.producer_epoch)
    flow = Flow(adds=context.version >= _ADDS_SINCE, knows_abortable=context.version >= _ABORTABLE_SINCE)
    queued = services.coordinators.admission.enter(who, [partition], flow)
    if queued is None:
        return await services.coordinators.groups.commit_transactional(request, ErrorCode.NONE)
    return await queued.run(_commit_in_turn(queued, request, context, index))


async def _commit_in_turn(
    queued: QueuedWrite, request: TxnOffsetCommitRequest, context: RequestContext, index: int
) -> TxnOffsetCommitResponse:
    async with queued as refusals:
        refusal = refusals.get(TopicPartition(CONSUMER_OFFSETS, index), ErrorCode.NONE)
        answer = begin(context.services.coordinators.groups.commit_transactional(request, refusal))
    # The producer's next request is handled while these offsets are replicated.
    return await ended(answer)
