"""Decides what cleaning removes of transactions, in one pass over all batches in offset order.

Keeps true: the records of an aborted transaction are removed. A marker is removed only when no batch of its
            transaction remains below it, and not before its delete horizon.
            An ABORT marker whose data was still found stays in the transaction index of the new segment.

Pure. The rules are those of Kafka's `CleanedTransactionMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from felice.dataclass import dataclass
from felice.log.producers import ProducerState
from felice.log.transaction_index import AbortedTransaction
from felice.records.batch import BatchHeader
from felice.records.control import ControlType


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    has_data: bool = False


class CleanedTransactions:
    """See the module. The caller passes every batch of a pass, data and control, from low offsets to high."""

    __slots__ = ("_aborted", "_committing", "_waiting", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        ordered = sorted(set(aborted), key=lambda transaction: transaction.first_offset, reverse=True)
        self._waiting = ordered
        self._aborted: dict[int, _Aborted] = {}
        self._committing: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Entries for the transaction index of the segment being written. The caller that takes them empties it."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a data batch must be removed because their transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committing.add(header.producer_id)
            return False
        aborted.has_data = True
        return True

    def is_spent(self, header: BatchHeader, kind: ControlType | None) -> bool:
        """Whether nothing of the control batch's transaction is left in the log. `kind` is None if it is empty."""
        self._begin_up_to(header.last_offset)
        if kind is None:
            return header.record_count == 0
        if kind is ControlType.ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is not None and aborted.has_data:
                self.kept.append(aborted.transaction)
                return False
            return True
        if kind is ControlType.COMMIT:
            if header.producer_id in self._committing:
                self._committing.remove(header.producer_id)
                return False
            return True
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            transaction = self._waiting.pop()
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))


@dataclass(frozen=True, slots=True)
class LastOfProducer:
    """What cleaning must keep of a producer that is still remembered: its last batch, or its last epoch."""

    last_data_offset: int | None
    epoch: int

    def is_in(self, header: BatchHeader) -> bool:
        """Whether the batch is the one to keep."""
        if self.last_data_offset is not None:
            return header.last_offset == self.last_data_offset
        return header.is_control and header.producer_epoch == self.epoch


def last_of_producers(states: Iterable[ProducerState]) -> Mapping[int, LastOfProducer]:
    """For each producer id, what cleaning must keep of it."""
    return {
        state.producer_id: LastOfProducer(
            state.batches[-1].last_offset if state.batches else None, state.epoch
        )
        for state in states
    }
