"""EndTxn: what becomes of a wish to commit or abort, by the state that it meets.

Keeps true:  a decision is never changed. A client that missed the answer hears it again.
"""

from __future__ import annotations

from felice.coordinator.transaction.metadata import TransactionMetadata
from felice.coordinator.transaction.states import TransactionState as State
from felice.protocol.errors import ErrorCode

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
    """The decision that must be written, or the answer."""
    answer = _ANSWERS[current.state][0 if commit else 1]
    return current.decided(commit=commit, now_ms=now_ms) if answer is _DECIDE else answer
