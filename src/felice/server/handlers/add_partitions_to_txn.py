"""AddPartitionsToTxn (key 24): partitions that a transaction is about to write to.

Up to version 3 a client sends it for its own transaction. From version 4 brokers send it: for several transactions in
one request, or with `verify_only` to check whether the partitions were added. A broker adds partitions for a client
that uses transaction V2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import by_version, cluster_permission, permission, request_needs
from felice.server.writes.partition_additions import add_partitions

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_FROM_BROKERS_SINCE = 4


def _transactional_id(request: AddPartitionsToTxnRequest, context: RequestContext) -> str:
    return request.v3_and_below_transactional_id


# The handler itself checks the permissions for the topics of a client's request.
guard = by_version(
    _FROM_BROKERS_SINCE,
    request_needs(API.ADD_PARTITIONS_TO_TXN, cluster_permission(Operation.CLUSTER_ACTION)),
    request_needs(
        API.ADD_PARTITIONS_TO_TXN,
        permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _transactional_id),
    ),
)


async def handle(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
    """Adds or verifies the partitions of each transaction: all partitions of a transaction, or none."""
    services = context.services
    access = context.access

    def may_write(topic: str) -> bool:
        return access.allows(Operation.WRITE, ResourceType.TOPIC, topic)

    return await add_partitions(
        request,
        services.coordinators.transactions,
        services.image,
        context.version,
        services.env.clock,
        services.image_follower.check_session,
        may_write,
    )
