"""A transactional id as of one moment: a value, and each change of it another value.

Keeps true:  a state follows only a state that may come before it (`states`).
             Partitions are named only while a transaction is open or its end is being told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from felice.coordinator.transaction.states import COMPLETION, PREVIOUS_STATES, TransactionState
from felice.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_START = -1
# The last epoch is kept for the fence of whoever holds the one before.
LAST_EPOCH = 2**15 - 1


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """`last_producer_id` and `last_epoch` are the identity before this one, where the producer itself asked for a
    new one (KIP-360): it may ask again when it missed the answer. They are not in the log.
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

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH - 1

    def _become(self, state: TransactionState) -> TransactionState:
        assert self.state in PREVIOUS_STATES[state], f"producer {self.producer_id}: {self.state} -> {state}"
        return state

    def initialised(
        self, producer_id: int, epoch: int, timeout_ms: int, now_ms: int, *, last_epoch: int
    ) -> TransactionMetadata:
        """A producer begins, or begins again; nothing is open."""
        self._become(TransactionState.EMPTY)
        return TransactionMetadata(
            producer_id,
            epoch,
            timeout_ms,
            now_ms,
            last_producer_id=self.producer_id if producer_id != self.producer_id else self.last_producer_id,
            last_epoch=last_epoch,
        )

    def with_partitions(self, added: frozenset[TopicPartition], now_ms: int) -> TransactionMetadata:
        goes_on = self.state is TransactionState.ONGOING
        return replace(
            self,
            state=self._become(TransactionState.ONGOING),
            partitions=self.partitions | added if goes_on else added,
            start_ms=self.start_ms if goes_on else now_ms,
            last_update_ms=now_ms,
        )

    def decided(self, *, commit: bool, now_ms: int, fence: bool = False) -> TransactionMetadata:
        """The transaction will end so. With `fence` its producer cannot go on: the epoch is another's."""
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return replace(
            self,
            state=self._become(state),
            epoch=self.epoch + 1 if fence else self.epoch,
            last_epoch=NO_PRODUCER_EPOCH if fence else self.last_epoch,
            last_update_ms=now_ms,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Every partition knows."""
        state = self._become(COMPLETION[self.state])
        return replace(self, state=state, partitions=frozenset(), last_update_ms=now_ms)
