"""TxnOffsetCommit (key 28): offsets that count when the transaction commits."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from felice.coordinator.transaction.shard import Identity
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from felice.replication.partition import Partition
from felice.server.transactions import check_first_write

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_ABORTABLE_SINCE = 4


def handle(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    who = Identity(request.transactional_id, request.producer_id, request.producer_epoch)
    knows_abortable = context.version >= _ABORTABLE_SINCE

    def check(partition: Partition) -> ErrorCode:
        return check_first_write(context.broker, who, partition, knows_abortable=knows_abortable)

    return context.broker.group_coordinator.commit_transactional(request, check)
