"""A transfer between accounts is exact although drivers, Java, workers and brokers are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from conformance.streams_kills import Plan, check, surroundings, transfer_under_kills

LEDGER = [("a", {"id": 0, "amount": -5}), ("b", {"id": 0, "amount": 5})]
BALANCES = [("a", -5), ("b", 5)]


@pytest.mark.felice_only
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("at", "victims"),
    [
        ("local", ("worker", "java", "broker")),
        ("hdfs", ("all", "store")),
        ("cluster", ("worker", "all")),
    ],
)
def test_each_payment_is_booked_once_and_the_sum_of_balances_stays_zero(
    tmp_path: Path, at: str, victims: tuple[str, ...]
) -> None:
    with surroundings(tmp_path, at) as around:
        outcome, payments = transfer_under_kills(around, Plan(victims), 5)
    assert outcome.killed == dict.fromkeys(victims, 1)
    assert payments > 0


@pytest.mark.parametrize(
    ("ledger", "balances", "reproach"),
    [
        (LEDGER * 2, BALANCES, "2 twice"),
        (LEDGER[:1], BALANCES, "1 missing"),
        (LEDGER, [("a", -5), ("b", 6)], "'b': \\(6, 5\\)"),
        (LEDGER, BALANCES[:1], "'b': \\(None, 5\\)"),
        (LEDGER, [("a", 1), *BALANCES], "not one change of its balance"),
    ],
)
def test_the_check_reports_what_is_wrong(ledger: list, balances: list, reproach: str) -> None:  # type: ignore[type-arg]
    check(LEDGER, BALANCES, 1)
    with pytest.raises(AssertionError, match=reproach):
        check(ledger, balances, 1)
