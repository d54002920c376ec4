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
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

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
    """Of the rows in any order; a replay that deals rows out in the same way has the same."""

    @property
    def part(self) -> tuple[int, int, int]:
        """What a replay must repeat exactly: the slot, the number of rows and their fingerprint."""
        return self.slot, self.rows, self.fingerprint


@dataclass(frozen=True, slots=True)
class Decision:
    """These transactions are the batch. Durable before the first of them is committed."""

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
    """What the brokers keep of one query's writes."""

    def take_over(self) -> Decision | None:
        """Fence every other driver of the query; the last durable decision."""

    def not_open(self, transactions: Iterable[Prepared]) -> list[Prepared]:
        """Those that are no longer open, so that committing them would fail."""

    def decide(self, decision: Decision) -> None:
        """Make the decision durable. Fails if another driver has taken over since."""

    def commit(self, transactions: Iterable[Prepared]) -> Mapping[Prepared, Outcome]:
        """Commit those that are open, and tell what became of the others."""

    def abort(self, transactions: Iterable[Prepared]) -> None:
        """Abort those that are open. Readers need not wait for their timeout then."""

    def abort_strays(self, keep: Collection[Prepared]) -> None:
        """Abort every open transaction of the query's tasks except these."""


class CommitError(QueryError, RuntimeError):
    """A batch that cannot be committed now; the text says what the next start of the query does."""


class TornBatch(QueryError, RuntimeError):
    """Parts of a batch are committed, others aborted, and the replay has other parts."""


def commit_batch(ledger: Ledger, batch_id: int, prepared: Collection[Prepared]) -> bool:
    """Commit a batch; False if it was committed before and these transactions are aborted instead.

    Tasks that died, and speculative ones that lost, may have left transactions open, which keep readers waiting.
    Nothing tells the driver of them, so it looks for them in each batch.
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
    """Abort a batch that failed, except what is decided: the replay will commit that."""
    known = ledger.take_over()
    kept = known.transactions if known is not None else ()
    ledger.abort(row for row in prepared if row not in kept)
    ledger.abort_strays(kept)


def _after_replay(
    ledger: Ledger, known: Decision, batch_id: int, prepared: tuple[Prepared, ...]
) -> Decision | None:
    """What to decide for a batch that has been decided before; None if it is committed."""
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
    """The same batch with the replay's transactions in place of the aborted ones."""
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
