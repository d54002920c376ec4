"""A transactional id at one moment: an immutable value; each change returns another value.

Keeps true:  the state changes only along the transitions of `states`.
             Partitions are listed only while a transaction is open or its markers are being written.
             No producer gets the last epoch of a producer id: it only serves to fence.

With transaction V2 (KIP-890) every end raises the epoch, so that late requests of the old transaction are refused.
When the epochs of a producer id run out, the next transaction gets another producer id: it is chosen with the decision,
and takes effect when every partition has its marker.
"""

from __future__ import annotations

from dataclasses import replace

from felice.coordinator.transaction.states import COMPLETION, PREVIOUS_STATES, TransactionState
from felice.dataclass import dataclass
from felice.protocol.topic_partition import TopicPartition
from felice.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_START = -1
V1, V2 = 0, 2
"""The two flows of transactions, as levels of the feature `transaction.version`."""
# The last epoch is reserved for fencing the producer that has the one before.
LAST_EPOCH = 2**15 - 1


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """`last_producer_id` and `last_epoch` are the identity before this one, if the producer itself asked for a new one
    (KIP-360): it may ask again if it missed the answer. `last_epoch` is not in the log.

    `client_version` is the flow that the producer uses; `next_producer_id` belongs to the next transaction if
    the epochs ran out.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    last_update_ms: int
    state: TransactionState = TransactionState.EMPTY
    last_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_PRODUCER_EPOCH
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_START
    client_version: int = V1
    next_producer_id: int = NO_PRODUCER_ID

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether a producer of this id can begin no further transaction in its epochs."""
        return self.epoch >= LAST_EPOCH - 1

    def is_next(self, producer_id: int) -> bool:
        """Whether this producer owns the next transaction; it must wait until every partition has its marker."""
        return producer_id == self.next_producer_id != NO_PRODUCER_ID

    def _become(self, state: TransactionState) -> TransactionState:
        assert self.state in PREVIOUS_STATES[state], f"producer {self.producer_id}: {self.state} -> {state}"
        return state

    def initialised(
        self, producer_id: int, epoch: int, timeout_ms: int, now_ms: int, *, last_epoch: int
    ) -> TransactionMetadata:
        """A producer gets its identity; no transaction is open."""
        self._become(TransactionState.EMPTY)
        return TransactionMetadata(
            producer_id,
            epoch,
            timeout_ms,
            now_ms,
            last_producer_id=self.producer_id if producer_id != self.producer_id else self.last_producer_id,
            last_epoch=last_epoch,
        )

    def with_partitions(
        self, added: frozenset[TopicPartition], now_ms: int, client_version: int = V1
    ) -> TransactionMetadata:
        """The state with more partitions; the first ones begin the transaction at `now_ms`."""
        goes_on = self.state is TransactionState.ONGOING
        return replace(
            self,
            state=self._become(TransactionState.ONGOING),
            partitions=self.partitions | added if goes_on else added,
            start_ms=self.start_ms if goes_on else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def decided(self, *, commit: bool, now_ms: int) -> TransactionMetadata:
        """The producer's decision in the flow of V1: it keeps its epoch."""
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        # A partition accepts no V2 marker with the epoch of the transaction that it ends.
        return replace(self, state=self._become(state), last_update_ms=now_ms, client_version=V1)

    def fenced(self, now_ms: int, level: int) -> TransactionMetadata:
        """The coordinator aborts the open transaction and fences its producer.

        `level` is the finalized transaction.version, which decides the flow, independent of the request's version.
        In V2 the producer may ask for the next epoch (InitProducerId), so its own is remembered; before V2 it may not.
        """
        is_v2 = level >= V2
        return replace(
            self,
            state=self._become(TransactionState.PREPARE_ABORT),
            epoch=self.epoch + 1,
            last_epoch=self.epoch if is_v2 else NO_PRODUCER_EPOCH,
            last_update_ms=now_ms,
            client_version=V2 if is_v2 else V1,
        )

    def decided_v2(self, *, commit: bool, now_ms: int, next_producer_id: int) -> TransactionMetadata:
        """The decision in V2; the producer continues with the next epoch, or as `next_producer_id`."""
        decided = self.decided(commit=commit, now_ms=now_ms)
        return replace(
            decided,
            epoch=self.epoch + 1,
            last_epoch=self.epoch,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            client_version=V2,
            next_producer_id=next_producer_id if self.is_epoch_exhausted else NO_PRODUCER_ID,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Every partition has its marker."""
        state = self._become(COMPLETION[self.state])
        complete = replace(self, state=state, partitions=frozenset(), last_update_ms=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return complete
        return replace(
            complete,
            producer_id=self.next_producer_id,
            epoch=0,
            last_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
