"""The checker of histories finds every kind of anomaly and passes a good history."""

from __future__ import annotations

import pytest

from checkers.history import (
    Called,
    History,
    Read,
    Reported,
    Written,
    anomalies,
    forgive_lost_tails,
    report_anomalies,
)


def good() -> History:
    written = [Written("w", n, n % 2, n // 2) for n in range(8)] + [
        Written("w", 8, 0, None),
        Written("w", 9, 1, None),
    ]
    read = [Read("w", n, 0, n // 2) for n in (0, 2, 4, 6, 8)] + [
        Read("w", n, 1, n // 2) for n in (1, 3, 5, 7)
    ]
    return History(written, read)


def test_a_correct_history_passes_with_or_without_unacknowledged_records() -> None:
    assert anomalies(good()) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda h: h.read.remove(Read("w", 6, 0, 3)), "lost: record 6 of w"),
        (lambda h: h.read.__setitem__(3, Read("w", 6, 0, 9)), "moved: record 6 of w"),
        (lambda h: h.read.append(Read("w", 7, 1, 4)), "duplicated: record 7 of w"),
        (lambda h: h.read.append(Read("x", 1, 1, 4)), "invented: record 1 of x"),
        (lambda h: h.read.append(Read("w", 3, 1, 9)), "out of order: record 3 of w"),
        (lambda h: h.read.append(Read("w", 9, 1, 3)), "offset 3 of partition 1 comes after 3"),
    ],
)
def test_an_anomaly_is_found(damage, said: str) -> None:  # type: ignore[no-untyped-def]
    history = good()
    damage(history)
    assert any(said in fault for fault in anomalies(history))


def lossy(lost: set[int]) -> tuple[History, dict[tuple[str, int, int], int]]:
    """Five records of one writer, acknowledged before the first power failure, of which `lost` are not there."""
    written = [Written("w", n, 0, n) for n in range(5)]
    read = [Read("w", n, 0, n) for n in range(5) if n not in lost]
    return History(written, read), {("w", n, 0): 0 for n in range(5)}


def test_a_lost_tail_is_forgiven_if_the_power_failed_after_it() -> None:
    history, eras = lossy({3, 4})
    forgiven, faults = forgive_lost_tails(history, eras, power_failures=1)
    assert faults == []
    assert anomalies(forgiven) == []


def test_a_lost_tail_without_a_power_failure_is_not_forgiven() -> None:
    history, eras = lossy({3, 4})
    forgiven, _ = forgive_lost_tails(history, eras, power_failures=0)
    assert len(anomalies(forgiven)) == 2


def test_a_lost_middle_is_not_forgiven() -> None:
    history, eras = lossy({2})
    _, faults = forgive_lost_tails(history, eras, power_failures=1)
    assert ["hole: record 2 of w" in fault for fault in faults] == [True]


def test_only_a_record_that_may_be_late_may_follow_later_records() -> None:
    written = [Written("w", number, 0, offset) for number, offset in ((1, 0), (2, 2), (3, 1))]
    read = [Read("w", 1, 0, 0), Read("w", 3, 0, 1), Read("w", 2, 0, 2)]
    late = anomalies(History(written, read))
    assert late == ["out of order: record 2 of w in partition 0 stands after number 3"]
    assert anomalies(History(written, read), {("w", 2, 0)}) == []
    assert anomalies(History(written, read), {("w", 3, 0)}) == []
    assert anomalies(History(written, read), {("w", 1, 0)}) == late


CALLED = [Called("a", 0, True), Called("a", 1, False), Called("b", 0, True)]


def test_one_report_for_each_accepted_record_passes() -> None:
    assert report_anomalies(CALLED, [Reported("b", 0, 0, 7), Reported("a", 0, 1, None)]) == []


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ([Reported("a", 0, 0, 0)], "reported 0 times: record 0 of b"),
        ([Reported("a", 0, 0, 0), *[Reported("b", 0, 0, 1)] * 2], "reported 2 times: record 0 of b"),
        (
            [Reported("a", number, 0, None) for number in (0, 1)] + [Reported("b", 0, 0, 1)],
            "reported without being accepted: record 1 of a",
        ),
        (
            [Reported("a", 0, 0, 0, is_its_own=False), Reported("b", 0, 0, 1)],
            "report with another record's message: record 0 of a",
        ),
    ],
)
def test_a_missing_or_further_report_is_found(reports: list[Reported], said: str) -> None:
    assert report_anomalies(CALLED, reports) == [said]


def test_threads_that_share_a_producer_are_ordered_each_by_itself() -> None:
    written = [Written(thread, n, 0, None) for thread in ("a", "b") for n in range(2)]
    mixed = [Read("b", 0, 0, 0), Read("a", 0, 0, 1), Read("b", 1, 0, 2), Read("a", 1, 0, 3)]
    assert anomalies(History(written, mixed)) == []
    swapped = [Read("b", 1, 0, 0), Read("a", 0, 0, 1), Read("b", 0, 0, 2)]
    assert anomalies(History(written, swapped)) == [
        "out of order: record 0 of b in partition 0 stands after number 1"
    ]
