"""AddOffsetsToTxn (key 25): a transaction is about to commit offsets of a group.

It adds the partition of `__consumer_offsets` that holds the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller.topic_names import CONSUMER_OFFSETS
from felice.coordinator.transaction.shard import Identity
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from felice.protocol.topic_partition import TopicPartition
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import all_of, permission, request_needs
from felice.server.writes.transactions import as_client_error

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_FENCED_SINCE = 2

guard = all_of(
    request_needs(API.ADD_OFFSETS_TO_TXN, permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)),
    request_needs(API.ADD_OFFSETS_TO_TXN, permission(Operation.READ, ResourceType.GROUP)),
)


async def handle(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    """Adds the group's offsets partition to the transaction.

    COORDINATOR_NOT_AVAILABLE while the offsets topic is missing.
    """
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    services = context.services
    index = services.coordinators.groups.partition_for(request.group_id)
    if services.image.partition(CONSUMER_OFFSETS, index) is None:
        # If no client has looked up a group yet, the topic does not exist. It is created, and the producer retries.
        services.topics.auto.ensure(CONSUMER_OFFSETS)
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    who = Identity(request.transactional_id, request.producer_id, request.producer_epoch)
    partitions = frozenset({TopicPartition(CONSUMER_OFFSETS, index)})
    error = await services.coordinators.transactions.add_partitions(who, partitions)
    return AddOffsetsToTxnResponse(error_code=as_client_error(error, context.version >= _FENCED_SINCE))
