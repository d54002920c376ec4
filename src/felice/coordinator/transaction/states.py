"""The states of a transactional id, and the allowed transitions."""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """The values are the numbers in the log."""

    EMPTY = 0
    """A producer is known, and has begun no transaction."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided. The partitions do not all have their markers yet."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every partition has its marker."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Removed."""
    PREPARE_EPOCH_FENCE = 7
    """Never used here: an older producer is fenced and its transaction aborted in one step."""

    @property
    def title(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return self.name.title().replace("_", "")

    @property
    def is_decided(self) -> bool:
        """Whether the transaction's end is decided, and its markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Whether no transaction is open."""
        return self in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )


_AT_REST = frozenset(state for state in TransactionState if state.is_at_rest)

PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _AT_REST,
    TransactionState.ONGOING: _AT_REST | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    # No open transaction: with transaction V2 a producer may abort to be sure that nothing is open.
    TransactionState.PREPARE_ABORT: _AT_REST | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _AT_REST,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}
COMPLETION: dict[TransactionState, TransactionState] = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
