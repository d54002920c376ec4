"""EndTxn: the result of a request to commit or abort, by the state of the transactional id.

Keeps true:  a decision is never changed. A client that missed the answer gets it again.

Transaction V2 (KIP-890) tells a repeated request from a new one by the epoch: each end raises it, so a request with the
epoch before the current one asks for the decision that was already made.
"""

from __future__ import annotations

from felice.coordinator.transaction.metadata import LAST_EPOCH, TransactionMetadata
from felice.coordinator.transaction.states import TransactionState as State
from felice.protocol.errors import ErrorCode
from felice.records.batch import NO_PRODUCER_ID

_DECIDE = None
_CLASH, _WAIT, _AGAIN = ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE

# State: (answer to a commit, answer to an abort).
_ANSWERS: dict[State, tuple[ErrorCode | None, ErrorCode | None]] = {
    State.EMPTY: (_CLASH, _CLASH),
    State.ONGOING: (_DECIDE, _DECIDE),
    State.PREPARE_COMMIT: (_WAIT, _CLASH),
    State.PREPARE_ABORT: (_CLASH, _WAIT),
    State.COMPLETE_COMMIT: (_AGAIN, _CLASH),
    State.COMPLETE_ABORT: (_CLASH, _AGAIN),
    State.DEAD: (_CLASH, _CLASH),
    State.PREPARE_EPOCH_FENCE: (_CLASH, _CLASH),
}


def end(current: TransactionMetadata, *, commit: bool, now_ms: int) -> TransactionMetadata | ErrorCode:
    """The decision to write, or the answer."""
    answer = _ANSWERS[current.state][0 if commit else 1]
    return current.decided(commit=commit, now_ms=now_ms) if answer is _DECIDE else answer


_OUTCOMES = {
    State.PREPARE_COMMIT: True,
    State.COMPLETE_COMMIT: True,
    State.PREPARE_ABORT: False,
    State.COMPLETE_ABORT: False,
}


def needs_next_producer_id(current: TransactionMetadata | None, producer_id: int, epoch: int) -> bool:
    """Whether an end in V2 uses the last epoch, so that the next transaction needs another producer id."""
    return (
        current is not None
        and (current.producer_id, current.epoch) == (producer_id, epoch)
        and current.is_epoch_exhausted
        and not current.state.is_decided
    )


def fault_v2(current: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode | None:
    """The reason why a producer may not end a transaction in V2, or None.

    It may with the current epoch, or with the epoch before it as a repetition.
    """
    if current.is_next(producer_id):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if _is_repetition(current, producer_id, epoch):
        return None
    if producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_fenced = epoch != current.epoch or current.state.is_decided or epoch == LAST_EPOCH
    return ErrorCode.PRODUCER_FENCED if is_fenced else None


def end_v2(
    current: TransactionMetadata,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    next_producer_id: int,
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """The decision to write, or the answer. `next_producer_id` is used if the epochs run out."""
    fault = fault_v2(current, producer_id, epoch)
    if fault is not None:
        return fault
    if _is_repetition(current, producer_id, epoch):
        return _repeated(current, commit)
    if commit and current.state is not State.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    if current.is_epoch_exhausted and next_producer_id == NO_PRODUCER_ID:
        # The transactional id changed after the caller had looked for a next producer id; the client repeats.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return current.decided_v2(commit=commit, now_ms=now_ms, next_producer_id=next_producer_id)


def _is_repetition(current: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """Whether the producer repeats the request that ended its last transaction."""
    is_before_bump = producer_id == current.producer_id and _is_before_bump(current, epoch)
    return is_before_bump or _is_before_rotation(current, producer_id, epoch)


def _is_before_bump(current: TransactionMetadata, epoch: int) -> bool:
    return current.epoch == epoch + 1 and current.state in _OUTCOMES


def _is_before_rotation(current: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    return (
        (current.last_producer_id, current.epoch) == (producer_id, 0)
        and epoch == LAST_EPOCH - 1
        and current.state in _OUTCOMES
    )


def _repeated(current: TransactionMetadata, commit: bool) -> ErrorCode:
    if _OUTCOMES[current.state] != commit:
        return ErrorCode.INVALID_TXN_STATE
    if current.state.is_decided:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    # Fencing by the coordinator used the last epoch: the producer has no epoch to continue with.
    return ErrorCode.PRODUCER_FENCED if current.epoch == LAST_EPOCH else ErrorCode.NONE
