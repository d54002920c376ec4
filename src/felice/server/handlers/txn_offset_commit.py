"""TxnOffsetCommit (key 28): offsets that count when the transaction commits.

From version 5 the client uses transaction V2: the group's partition is added to the transaction here.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from felice.controller.topic_names import CONSUMER_OFFSETS
from felice.coordinator.transaction.shard import Identity
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from felice.protocol.topic_partition import TopicPartition
from felice.server.admission import Flow, PartitionErrors

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_ABORTABLE_SINCE = 4
_ADDS_SINCE = 5


def handle(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    """Stores the offsets as pending, after the coordinator agreed that the group's partition is in the transaction."""
    services = context.services
    services.group_lookups.on_group_request(context)
    nothing_to_commit = services.coordinators.groups.answer_without_transaction(request)
    if nothing_to_commit is not None:
        return nothing_to_commit
    index = services.coordinators.groups.partition_for(request.group_id)
    partition = services.partitions.get(CONSUMER_OFFSETS, index)
    if partition is None:
        return services.coordinators.groups.commit_transactional(
            request, ErrorCode.NONE
        )  # it says who is to be asked

    def commit(refusals: PartitionErrors) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
        refusal = refusals.get(TopicPartition(CONSUMER_OFFSETS, index), ErrorCode.NONE)
        return services.coordinators.groups.commit_transactional(request, refusal)

    who = Identity(request.transactional_id, request.producer_id, request.producer_epoch)
    flow = Flow(adds=context.version >= _ADDS_SINCE, knows_abortable=context.version >= _ABORTABLE_SINCE)
    return services.coordinators.admission.enter(who, [partition], flow, commit)
