"""The checker of transactions finds every kind of anomaly and passes good histories."""

from __future__ import annotations

import pytest

from checkers.history import Read
from checkers.transactions import Attempt, Outcome, TransactionalRead, anomalies, copy_anomalies

COMMITTED = Attempt("c", [(0, 0), (1, 1)], Outcome.COMMITTED, commit_asked_s=5.0)
ABORTED = Attempt("a", [(0, 0)], Outcome.ABORTED)
UNKNOWN = Attempt("u", [(0, 0), (0, 1)], Outcome.UNKNOWN, commit_asked_s=7.0)
ATTEMPTS = [COMMITTED, ABORTED, UNKNOWN]
WHOLE = [Read("c", 0, 0, 0), Read("c", 1, 1, 0)]
UNKNOWN_WHOLE = [Read("u", 0, 0, 2), Read("u", 1, 0, 3)]


@pytest.mark.parametrize("final", [WHOLE, WHOLE + UNKNOWN_WHOLE])
def test_all_records_of_a_transaction_or_none_pass(final: list[Read]) -> None:
    assert anomalies(ATTEMPTS, final, [TransactionalRead(5.1, WHOLE[0])]) == []


@pytest.mark.parametrize(
    ("final", "seen", "said"),
    [
        (WHOLE[:1], [], "lost: c was committed and lacks"),
        ([*WHOLE, Read("a", 0, 0, 1)], [], "aborted: a was not committed"),
        (WHOLE + UNKNOWN_WHOLE[:1], [], "torn: of u"),
        ([*WHOLE, Read("c", 0, 0, 9)], [], "duplicated"),
        (WHOLE, [TransactionalRead(4.9, WHOLE[0])], "open: "),
        (WHOLE, [TransactionalRead(9.0, Read("a", 0, 0, 1))], "aborted: "),
        (WHOLE, [TransactionalRead(9.0, Read("x", 0, 0, 1))], "invented: "),
    ],
)
def test_an_anomaly_is_found(final: list[Read], seen: list[TransactionalRead], said: str) -> None:
    assert any(fault.startswith(said) for fault in anomalies(ATTEMPTS, final, seen))


SOURCE = [Read("w", n, 0, n) for n in range(3)]


def test_an_exact_copy_passes() -> None:
    assert copy_anomalies(SOURCE, [(0, "w", n) for n in range(3)]) == []


@pytest.mark.parametrize(
    ("copied", "said"),
    [
        ([0, 1], "not copied: ('w', 2)"),
        ([0, 1, 1, 2], "copied 2 times: ('w', 1)"),
        ([0, 1, 2, 3], "copied from nowhere: ('w', 3)"),
        ([0, 2, 1], "copied out of order"),
    ],
)
def test_an_inexact_copy_is_found(copied: list[int], said: str) -> None:
    assert any(fault.startswith(said) for fault in copy_anomalies(SOURCE, [(0, "w", n) for n in copied]))
