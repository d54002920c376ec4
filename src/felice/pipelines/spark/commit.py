"""Decides when a batch's transactions are committed, and what a replay of the batch does, so that it counts once.

Keeps true: C1  No transaction is committed before the decision that names it is durable. The decision names all
                transactions of its batch.
            C2  A transaction that a batch's last decision names is never aborted by this package.
            C3  Each part of a batch is committed at most once: a replay commits only parts whose earlier
                transaction is known to be aborted.
            C4  `commit_batch` returns only when every part of the batch is committed.
            C5  An older driver decides nothing after a newer one has taken over.
How:        Each task writes its part in a transaction of its own and leaves it open. The driver writes the
            decision, then commits the transactions one by one. A driver that dies in between leaves the decision:
            the replay of the batch commits what it names before it looks at its own transactions, and aborts
            those. Brokers abort a transaction after its timeout, even one that a decision names. If that happened to
            all parts, the replay's transactions take their place. If it happened to some, the replay must write the
            same parts again, so that the missing ones alone can be committed; fingerprints tell whether it did.
Leaves:     the requests to the brokers to `ledger`. This module decides only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Protocol

from felice.dataclass import dataclass
from felice.pipelines.spark.mistakes import QueryError


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task's open transaction. Its rows are acknowledged, and no read_committed consumer sees them yet."""

    slot: int
    """The task's number in its batch: which part of the batch this is."""
    transactional_id: str
    producer_id: int
    producer_epoch: int
    rows: int
    fingerprint: int
    """Identifies the rows in any order. A replay that gives the task the same rows has the same value."""

    @property
    def part(self) -> tuple[int, int, int]:
        """What a replay must repeat exactly: the slot, the number of rows and their fingerprint."""
        return self.slot, self.rows, self.fingerprint


@dataclass(frozen=True, slots=True)
class Decision:
    """The transactions that make up a batch. The decision is durable before the first of them is committed."""

    batch_id: int
    transactions: tuple[Prepared, ...]
    number: int = 0
    """Counts the query's decisions; the ledger assigns it."""


class Outcome(Enum):
    """How a transaction ended, as its coordinator reports it."""

    COMMITTED = "its rows are visible"
    ABORTED = "its rows will never be visible"
    UNKNOWN = "its coordinator cannot tell any more"


class Ledger(Protocol):
    """The state of one query's writes on the brokers."""

    def take_over(self) -> Decision | None:
        """Fences every other driver of the query; returns the last durable decision."""

    def not_open(self, transactions: Iterable[Prepared]) -> list[Prepared]:
        """Returns the transactions that are no longer open, which cannot be committed."""

    def decide(self, decision: Decision) -> None:
        """Makes the decision durable. Fails if another driver has taken over."""

    def commit(self, transactions: Iterable[Prepared]) -> Mapping[Prepared, Outcome]:
        """Commits the open transactions, and returns how all of them ended."""

    def abort(self, transactions: Iterable[Prepared]) -> None:
        """Aborts the open transactions, so that readers need not wait for their timeout."""

    def abort_strays(self, keep: Collection[Prepared]) -> None:
        """Aborts every open transaction of the query's tasks except these."""


class CommitError(QueryError, RuntimeError):
    """The batch cannot be committed now. The text says what the next start of the query does."""


class TornBatch(QueryError, RuntimeError):
    """Parts of a batch are committed, others aborted, and the replay has other parts."""


def commit_batch(ledger: Ledger, batch_id: int, prepared: Collection[Prepared]) -> bool:
    """Commits a batch. Returns False if it was committed before; then these transactions are aborted.

    Tasks that died and speculative tasks may have left transactions open, which delay readers. Spark does not report
    them to the driver, so it looks for them in each batch.
    """
    known = ledger.take_over()
    decision: Decision | None = Decision(batch_id, tuple(prepared))
    if known is not None and known.batch_id >= batch_id:
        decision = _after_replay(ledger, known, batch_id, tuple(prepared))
    if decision is None:
        ledger.abort(prepared)
        ledger.abort_strays(known.transactions if known is not None else ())
        return False
    fresh = [row for row in decision.transactions if row in prepared]
    if lost := ledger.not_open(fresh):
        raise CommitError(_lost(batch_id, lost, before=True))
    if fresh:
        ledger.decide(decision)
    ledger.abort_strays(decision.transactions)
    _expect_committed(batch_id, ledger.commit(decision.transactions))
    ledger.abort(row for row in prepared if row not in decision.transactions)
    return True


def abort_batch(ledger: Ledger, batch_id: int, prepared: Collection[Prepared]) -> None:
    """Aborts a failed batch, except the transactions of a decision, which the replay commits."""
    known = ledger.take_over()
    kept = known.transactions if known is not None else ()
    ledger.abort(row for row in prepared if row not in kept)
    ledger.abort_strays(kept)


def _after_replay(
    ledger: Ledger, known: Decision, batch_id: int, prepared: tuple[Prepared, ...]
) -> Decision | None:
    """Returns the decision for a batch that has been decided before; None if it is committed."""
    if known.batch_id > batch_id:
        return None  # Spark began a later batch, so this one was committed.
    outcomes = ledger.commit(known.transactions)
    if unknown := [row for row in known.transactions if outcomes[row] is Outcome.UNKNOWN]:
        raise TornBatch(_undecidable(batch_id, unknown))
    aborted = [row for row in known.transactions if outcomes[row] is Outcome.ABORTED]
    if not aborted:
        return None
    if len(aborted) == len(known.transactions):
        return Decision(batch_id, prepared)
    return _completed(known, frozenset(aborted), prepared)


def _completed(known: Decision, aborted: frozenset[Prepared], prepared: tuple[Prepared, ...]) -> Decision:
    """Returns the batch with the replay's transactions in place of the aborted ones."""
    if sorted(row.part for row in known.transactions) != sorted(row.part for row in prepared):
        raise TornBatch(_torn(known, aborted))
    again = {row.slot: row for row in prepared}
    return Decision(
        known.batch_id,
        tuple(again[row.slot] if row in aborted else row for row in known.transactions),
    )


def _expect_committed(batch_id: int, outcomes: Mapping[Prepared, Outcome]) -> None:
    if lost := [row for row, outcome in outcomes.items() if outcome is not Outcome.COMMITTED]:
        raise CommitError(_lost(batch_id, lost, before=False))


def _lost(batch_id: int, lost: Collection[Prepared], *, before: bool) -> str:
    when = "before the batch could be committed" if before else "while the batch was being committed"
    return (
        f"batch {batch_id}: {len(lost)} of its transactions ended {when}, the first is "
        f"{min(row.transactional_id for row in lost)}. Start the query again: it writes the batch again. If batches "
        "take longer than the transaction timeout, raise the option 'kafka.transaction.timeout.ms'"
    )


def _torn(known: Decision, aborted: Collection[Prepared]) -> str:
    missing = ", ".join(str(row.slot) for row in sorted(aborted, key=lambda row: row.slot))
    return (
        f"batch {known.batch_id} was committed in part: the transactions of tasks {missing} of "
        f"{len(known.transactions)} timed out before the driver could commit them, and the replay of the batch has "
        "other rows or deals them out to tasks in another way. To write the whole batch again, with its committed "
        "rows a second time, run the query once with deliveryGuarantee=at_least_once; to write the missing rows "
        "alone, run it with the number of cores and shuffle partitions that it had"
    )


def _undecidable(batch_id: int, unknown: Collection[Prepared]) -> str:
    return (
        f"batch {batch_id}: the coordinator of {min(row.transactional_id for row in unknown)} cannot tell whether "
        "it was committed: it was ended by hand, or the query stood still for longer than "
        "transactional.id.expiration.ms. Compare the topic with the batch's input, then run the query once with "
        "deliveryGuarantee=at_least_once to write the batch again, or continue from a new checkpoint"
    )
