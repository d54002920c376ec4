"""The calls of `AdminClient` about transactions and the producers that write them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from felice.client.admin.arguments import distinct
from felice.client.admin.futures import FutureCalls
from felice.client.admin.model import (
    AbortTransactionSpec,
    FencedProducer,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from felice.client.admin.retries import DEFAULT_TIMEOUT_S
from felice.client.arguments import takes_lists
from felice.client.model import TopicPartition


@takes_lists
class TransactionFutures(FutureCalls):
    """Transactions, as futures."""

    def list_transactions(
        self,
        *,
        states: Iterable[TransactionState] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Future[dict[int, list[TransactionListing]]]:
        """List transactions: a future of `[TransactionListing]` by the node id of their coordinator.

        Empty states and empty producer ids select all transactions, and so does a negative duration. A pattern must
        match the whole transactional id. A filter that a broker is too old for gives _UNSUPPORTED_FEATURE.
        """
        return self._one(
            self._admin.list_transactions(states, producer_ids, longer_than_ms, pattern, request_timeout)
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, Future[TransactionDescription]]:
        """Futures of `TransactionDescription`; an unknown or expired id gives TRANSACTIONAL_ID_NOT_FOUND."""
        return {
            name: self._one(self._admin.describe_transaction(name, request_timeout))
            for name in distinct(transactional_ids, "transactional id")
        }

    def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[TopicPartition, Future[list[ProducerState]]]:
        """Futures of `[ProducerState]` by partition, from its leader or from the replica on the given broker."""
        wanted = {tp.key: tp for tp in partitions}
        work = self._admin.describe_producers(list(wanted), broker_id, request_timeout)
        futures = self._many(wanted, work)
        return {tp: futures[key] for key, tp in wanted.items()}

    def abort_transaction(
        self, spec: AbortTransactionSpec, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[None]:
        """Abort a hanging transaction in one partition, without its coordinator: see `describe_producers`."""
        return self._one(self._admin.abort_transaction(spec, request_timeout))

    def fence_producers(
        self, transactional_ids: Iterable[str], *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, Future[FencedProducer]]:
        """Fence producers: abort their open transactions and refuse their requests from now on.

        Futures of `FencedProducer` by transactional id. An id that does not exist is created.
        """
        return {
            name: self._one(self._admin.fence_producer(name, request_timeout))
            for name in distinct(transactional_ids, "transactional id")
        }

    def force_terminate_transaction(
        self, transactional_id: str, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[FencedProducer]:
        """Do `fence_producers` for one id (KIP-939)."""
        return self.fence_producers([transactional_id], request_timeout=request_timeout)[transactional_id]
