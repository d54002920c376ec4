"""Transactions as coroutines: `TransactionCalls`, a part of `Admin`. `transactions` builds and reads the messages."""

from __future__ import annotations

from collections.abc import Iterable

from felice.client.admin import transactions
from felice.client.admin.model import (
    AbortTransactionSpec,
    FencedProducer,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from felice.client.admin.results import Results
from felice.client.admin.retries import DEFAULT_TIMEOUT_S, RetryingCalls, by_itself
from felice.client.arguments import takes_lists
from felice.client.model import Partition


@takes_lists
class TransactionCalls(RetryingCalls):
    """The part of `Admin` that lists, describes and ends transactions."""

    async def list_transactions(
        self,
        states: Iterable[TransactionState] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> dict[int, list[TransactionListing]]:
        """Return the transactions of each coordinator by node id. A pattern must match the whole transactional id."""
        wanted = list(states), list(producer_ids), longer_than_ms, pattern
        return await self._ask(timeout_s, transactions.list_transactions, *wanted)

    async def describe_transaction(
        self, transactional_id: str, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> TransactionDescription:
        """Return the coordinator's state of a transactional id."""
        return await self._ask(timeout_s, transactions.describe_transaction, transactional_id, timeout_s)

    async def describe_producers(
        self,
        partitions: Iterable[Partition],
        broker_id: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Results:
        """Return `[ProducerState]` or the error by partition, from the leader or from the given broker."""
        wanted = by_itself(partitions)
        if broker_id is None:
            return await self._each(wanted, timeout_s, transactions.describe_producers, None)
        # A retry does not help against a broker without a replica.
        return await self._ask(timeout_s, transactions.describe_producers, wanted, broker_id)

    async def abort_transaction(
        self, spec: AbortTransactionSpec, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Abort one hanging transaction in one partition, which its coordinator will not end."""
        key = spec.topic_partition.key
        error = (await self._each({key: spec}, timeout_s, transactions.abort_transactions))[key]
        if error is not None:
            raise error

    async def fence_producer(
        self, transactional_id: str, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> FencedProducer:
        """Abort the id's transaction and fence its producer; an id that does not exist is created."""
        return await self._ask(timeout_s, transactions.fence_producer, transactional_id, timeout_s)
