"""The decision of a batch, one situation at a time; `test_spark_commit_model.py` kills at every step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pytest

from felice.pipelines.spark.commit import (
    CommitError,
    Decision,
    Outcome,
    Prepared,
    TornBatch,
    abort_batch,
    commit_batch,
)
from felice.pipelines.spark.identity import task_prefix
from felice.pipelines.spark.ledger import from_metadata, to_metadata
from felice.pipelines.spark.mistakes import QueryError

COMMITTED, ABORTED, UNKNOWN = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN


def part(slot: int, run: str = "new", fingerprint: int = 7) -> Prepared:
    return Prepared(slot, f"{run}-{slot}", 1000 + slot, 3, 10, fingerprint)


class Ledger:
    """Says what it is told to say, and notes what it is asked."""

    def __init__(self, known: Decision | None = None, **outcomes: Outcome) -> None:
        self.known = known
        self.outcomes = outcomes
        self.closed: list[Prepared] = []
        self.calls: list[tuple[str, list[str]]] = []

    def take_over(self) -> Decision | None:
        self.calls.append(("take over", []))
        return self.known

    def not_open(self, transactions: Iterable[Prepared]) -> list[Prepared]:
        return [row for row in transactions if row in self.closed]

    def decide(self, decision: Decision) -> None:
        names = sorted(row.transactional_id for row in decision.transactions)
        self.calls.append((f"decide {decision.batch_id}", names))

    def commit(self, transactions: Iterable[Prepared]) -> Mapping[Prepared, Outcome]:
        rows = list(transactions)
        self.calls.append(("commit", sorted(row.transactional_id for row in rows)))
        return {row: self.outcomes.get(row.transactional_id.replace("-", ""), COMMITTED) for row in rows}

    def abort(self, transactions: Iterable[Prepared]) -> None:
        if names := sorted(row.transactional_id for row in transactions):
            self.calls.append(("abort", names))

    def abort_strays(self, keep: Collection[Prepared]) -> None:
        self.calls.append(("sweep except", sorted(row.transactional_id for row in keep)))


NEW = [part(0), part(1)]
OLD = Decision(5, (part(0, "old"), part(1, "old")))


def test_the_decision_is_durable_before_anything_is_committed() -> None:
    ledger = Ledger(Decision(4, (part(0, "older"),)))
    assert commit_batch(ledger, 5, NEW)
    assert ledger.calls == [
        ("take over", []),
        ("decide 5", ["new-0", "new-1"]),
        ("sweep except", ["new-0", "new-1"]),
        ("commit", ["new-0", "new-1"]),
    ]


def test_a_replay_commits_what_was_decided_and_aborts_its_own() -> None:
    ledger = Ledger(OLD)
    assert not commit_batch(ledger, 5, NEW)
    assert ledger.calls == [
        ("take over", []),
        ("commit", ["old-0", "old-1"]),
        ("abort", ["new-0", "new-1"]),
        ("sweep except", ["old-0", "old-1"]),
    ]


def test_a_batch_before_the_decided_one_was_committed() -> None:
    ledger = Ledger(OLD)
    assert not commit_batch(ledger, 4, NEW)
    assert ledger.calls == [
        ("take over", []),
        ("abort", ["new-0", "new-1"]),
        ("sweep except", ["old-0", "old-1"]),
    ]


def test_a_replay_takes_the_place_of_a_decision_of_which_nothing_was_committed() -> None:
    """Also with other rows in other tasks: nobody has seen the first ones."""
    ledger = Ledger(OLD, old0=ABORTED, old1=ABORTED)
    assert commit_batch(ledger, 5, [part(0, fingerprint=99)])
    assert ledger.calls[2:] == [("decide 5", ["new-0"]), ("sweep except", ["new-0"]), ("commit", ["new-0"])]


def test_a_replay_of_the_same_parts_commits_those_that_are_missing() -> None:
    ledger = Ledger(OLD, old1=ABORTED)
    assert commit_batch(ledger, 5, NEW)
    assert ledger.calls[2:] == [
        ("decide 5", ["new-1", "old-0"]),
        ("sweep except", ["new-1", "old-0"]),
        ("commit", ["new-1", "old-0"]),
        ("abort", ["new-0"]),
    ]


@pytest.mark.parametrize(
    "replayed",
    [
        [part(0), part(1, fingerprint=8)],
        [part(0, fingerprint=8), part(1)],
        [part(0), replace(part(1), rows=11)],
        [part(0)],
        [part(0), part(1), part(2)],
    ],
)
def test_a_replay_of_other_parts_of_a_torn_batch_is_refused(replayed: list[Prepared]) -> None:
    ledger = Ledger(OLD, old1=ABORTED)
    with pytest.raises(TornBatch, match=r"tasks 1 of 2.*deliveryGuarantee=at_least_once"):
        commit_batch(ledger, 5, replayed)
    assert not any(name.startswith("decide") for name, _ in ledger.calls)


def test_an_outcome_that_nobody_knows_is_not_guessed() -> None:
    with pytest.raises(TornBatch, match="cannot tell"):
        commit_batch(Ledger(OLD, old1=UNKNOWN), 5, NEW)


def test_a_batch_is_not_decided_once_one_of_its_transactions_has_timed_out() -> None:
    ledger = Ledger()
    ledger.closed = [NEW[1]]
    with pytest.raises(CommitError, match=r"batch 5.*new-1.*transaction\.timeout\.ms"):
        commit_batch(ledger, 5, NEW)
    assert ledger.calls == [("take over", [])]


def test_a_transaction_that_times_out_behind_the_decision_fails_the_batch() -> None:
    with pytest.raises(CommitError, match="while the batch was being committed"):
        commit_batch(Ledger(new1=ABORTED), 5, NEW)


def test_an_abort_leaves_what_is_decided() -> None:
    ledger = Ledger(Decision(5, tuple(NEW)))
    abort_batch(ledger, 5, [*NEW, part(2)])
    assert ledger.calls == [("take over", []), ("abort", ["new-2"]), ("sweep except", ["new-0", "new-1"])]


def test_an_abort_ends_transactions_whose_ids_the_batch_before_used_too() -> None:
    before = Decision(4, tuple(replace(row, producer_epoch=row.producer_epoch - 1) for row in NEW))
    ledger = Ledger(before)
    abort_batch(ledger, 5, NEW)
    assert ledger.calls[1] == ("abort", ["new-0", "new-1"])


PREFIX = task_prefix("0c5bd4b4-5ae2-4a5c-bd0f-7e6f9a3c1d22")


def decision(count: int) -> Decision:
    return Decision(
        12,
        tuple(
            Prepared(
                slot,
                f"{PREFIX}{slot * 2246822519 % 2**32:08x}-{slot}-0",
                4000 + slot,
                2,
                10_000 + slot,
                slot * 2654435761 % 2**32,
            )
            for slot in range(count)
        ),
        number=3,
    )


@pytest.mark.parametrize("count", [0, 1, 2, 150])
def test_a_decision_comes_back_from_its_metadata(count: int) -> None:
    text = to_metadata(decision(count), PREFIX)
    assert len(text) <= 4096
    assert from_metadata(12, text, PREFIX) == decision(count)


def test_more_tasks_than_a_decision_can_hold_are_refused() -> None:
    with pytest.raises(QueryError, match="2000 tasks wrote batch 12"):
        to_metadata(decision(2000), PREFIX)


@pytest.mark.parametrize("text", ["", "{}", "xyz", "c${}"])
def test_metadata_of_another_program_is_told(text: str) -> None:
    with pytest.raises(QueryError, match="hold no decision of this sink"):
        from_metadata(1, text, PREFIX)
