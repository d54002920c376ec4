"""InitProducerId: the identity that a producer gets, and the producers that it fences.

Keeps true:  no two calls get the same identity, except the repetition of a call whose answer was lost (KIP-360).
             A producer that held the transactional id before is fenced: its epoch is lower.
"""

from __future__ import annotations

from felice.coordinator.transaction.metadata import LAST_EPOCH, TransactionMetadata
from felice.coordinator.transaction.states import TransactionState
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class InitRequest:
    """`producer_id` and `epoch` are those that the producer has already, -1 for a new producer."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def holds_identity(self) -> bool:
        """Whether the producer names the producer id and epoch that it has (KIP-360)."""
        return self.producer_id != NO_PRODUCER_ID


def needs_new_producer_id(current: TransactionMetadata | None, request: InitRequest) -> bool:
    """Whether `initialise` will need a new producer id: for a new transactional id, and when the epochs are used up."""
    if current is None:
        return True
    if not current.state.is_at_rest or not current.is_epoch_exhausted:
        return False
    # No transaction can end in the last epoch. Fencing may use it; the producer's own epoch is then the one before.
    own_epoch = current.last_epoch if current.epoch == LAST_EPOCH else current.epoch
    return not request.holds_identity or request.epoch in (current.epoch, own_epoch)


def initialise(
    current: TransactionMetadata | None, request: InitRequest, new_producer_id: int, now_ms: int, level: int
) -> TransactionMetadata | ErrorCode:
    """The transactional id to write: with the new identity and no open transaction, or with an abort decided.

    `new_producer_id` is used only if `needs_new_producer_id`; `level` is the finalized transaction.version.
    """
    if current is None:
        return TransactionMetadata(new_producer_id, 0, request.timeout_ms, now_ms)
    if current.is_next(request.producer_id):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if request.holds_identity and not _may_hold(current, request):
        return ErrorCode.PRODUCER_FENCED
    if current.state.is_decided:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state is TransactionState.ONGOING:
        # The answer is CONCURRENT_TRANSACTIONS: the repeated request gets the epoch after this one.
        return current.fenced(now_ms, level)
    if needs_new_producer_id(current, request):
        last_epoch = request.epoch if request.holds_identity else NO_PRODUCER_EPOCH
        return current.initialised(new_producer_id, 0, request.timeout_ms, now_ms, last_epoch=last_epoch)
    return _raise_epoch(current, request, now_ms)


def _may_hold(current: TransactionMetadata, request: InitRequest) -> bool:
    """The current producer id; or, if the answer was lost, the one before with the epoch at which it ran out."""
    is_before = request.producer_id == current.last_producer_id and request.epoch >= LAST_EPOCH - 1
    return request.producer_id == current.producer_id or is_before


def _raise_epoch(
    current: TransactionMetadata, request: InitRequest, now_ms: int
) -> TransactionMetadata | ErrorCode:
    epoch, last_epoch = current.epoch + 1, NO_PRODUCER_EPOCH
    if request.holds_identity and request.epoch == current.last_epoch:
        epoch, last_epoch = current.epoch, current.last_epoch  # a repeated request gets the same answer
    elif request.holds_identity and request.epoch == current.epoch:
        last_epoch = current.epoch
    elif request.holds_identity:
        return ErrorCode.PRODUCER_FENCED
    return current.initialised(current.producer_id, epoch, request.timeout_ms, now_ms, last_epoch=last_epoch)
