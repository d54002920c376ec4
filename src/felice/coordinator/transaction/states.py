"""The states of a transactional id, and which may follow which."""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """The values are the numbers in the log."""

    EMPTY = 0
    """A producer is known, and has begun nothing."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided. The partitions are still to hear of it."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every partition has its marker."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Forgotten."""
    PREPARE_EPOCH_FENCE = 7
    """Never here: an older producer is fenced and its transaction aborted in one step."""

    @property
    def title(self) -> str:
        """As DescribeTransactions and ListTransactions print it."""
        return self.name.title().replace("_", "")

    @property
    def is_decided(self) -> bool:
        """The end is certain and on its way to the partitions."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Nothing is open."""
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
    # At rest: transaction V2 may abort what it has not begun, so as to be sure of it.
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
