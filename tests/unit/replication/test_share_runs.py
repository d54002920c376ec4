"""Runs of a window: what is joined, and which changes break an invariant and are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from felice.protocol.errors import BrokenInvariant
from felice.replication.share.acquiring import AcquireMode, LogBatch, LogRead, Wanted
from felice.replication.share.runs import Run, Runs
from felice.replication.share.settings import ReleaseDelay, WindowSettings
from felice.replication.share.states import RecordState, StateBatch, joined
from felice.replication.share.window import Window

FREE, ACKED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED


def runs_of(*runs: Run) -> Runs:
    made = Runs(runs[0].first)
    for run in runs:
        made.append(run)
    return made


def acked(run: Run, _: object) -> Run:
    return Run(run.first, run.last, ACKED)


def test_equal_neighbours_are_one_run_on_both_sides_of_a_change() -> None:
    runs = runs_of(Run(0, 4, ACKED), Run(5, 5, FREE), Run(6, 9, ACKED))
    runs.rewrite([(5, 5, None)], acked)
    assert list(runs) == [Run(0, 9, ACKED)]
    assert runs.done == 10
    runs.check()


def test_a_change_of_nothing_costs_nothing() -> None:
    runs = runs_of(Run(0, 4, FREE))
    runs.rewrite([], acked)
    assert list(runs) == [Run(0, 4, FREE)]


def test_the_first_free_offset_is_found_again_when_one_before_becomes_free() -> None:
    runs = runs_of(Run(0, 9, ACKED), Run(10, 14, FREE))
    assert runs.first_free == 10
    runs.rewrite([(3, 4, None)], lambda run, _: Run(run.first, run.last, FREE))
    assert runs.first_free == 3
    runs.rewrite([(0, 14, None)], acked)
    assert runs.first_free == 15
    runs.append(Run(15, 15, FREE))
    assert runs.first_free == 15


@pytest.mark.parametrize(
    "change",
    [
        lambda runs: runs.append(Run(11, 12, FREE)),
        lambda runs: runs.append(Run(10, 9, FREE)),
        lambda runs: runs.cut(4),
        lambda runs: runs.rewrite([(4, 6, None)], acked),
        lambda runs: runs.rewrite([(8, 10, None)], acked),
        lambda runs: runs.rewrite([(10, 10, None)], acked),
        lambda runs: runs.rewrite([(8, 7, None)], acked),
        lambda runs: runs.rewrite([(7, 8, None), (8, 9, None)], acked),
        lambda runs: runs.rewrite([(6, 8, None)], lambda run, _: Run(run.first, run.last - 1, ACKED)),
    ],
)
def test_a_change_that_would_break_q1_is_refused(change: Callable[[Runs], None]) -> None:
    runs = runs_of(Run(5, 6, ACKED), Run(7, 9, FREE))
    with pytest.raises(BrokenInvariant) as caught:
        change(runs)
    assert caught.value.name == "Q1"


def test_a_change_ends_once() -> None:
    window = Window(0, WindowSettings())
    wanted = Wanted(10, 500, AcquireMode.BATCH_OPTIMIZED)
    window.acquire("A", LogRead(0, [LogBatch(0, 9)]), wanted, 0)
    change = window.release("A")
    assert change is not None
    window.settle(change, is_written=True)
    with pytest.raises(BrokenInvariant) as caught:
        window.settle(change, is_written=True)
    assert caught.value.name == "Q2"


def test_a_delay_doubles_up_to_its_greatest_value() -> None:
    delay = ReleaseDelay(first_ms=100, max_ms=350)
    assert [delay.after(deliveries) for deliveries in (1, 2, 3, 9, 10_000)] == [100, 200, 350, 350, 350]


def test_batches_of_equal_state_and_deliveries_are_joined() -> None:
    batches = [StateBatch(0, 1, 2, 1), StateBatch(2, 2, 2, 1), StateBatch(3, 3, 2, 2), StateBatch(5, 5, 2, 2)]
    assert joined(batches) == (StateBatch(0, 2, 2, 1), StateBatch(3, 3, 2, 2), StateBatch(5, 5, 2, 2))
    assert joined([]) == ()


def test_a_stored_state_of_a_newer_version_is_delivered_again() -> None:
    window = Window.loaded(0, [StateBatch(0, 1, 9, 1)], WindowSettings())
    assert list(window.runs) == [Run(0, 1, FREE, 1)]


@pytest.mark.parametrize(
    ("limit", "together"),
    [
        (2, {}),
        (3, {2: 1}),
        (4, {2: 8, 3: 1}),
        (5, {3: 8, 4: 1}),
        (6, {3: 8, 4: 4, 5: 1}),
        (10, {5: 8, 6: 4, 7: 2, 8: 1, 9: 1}),
    ],
)
def test_records_that_were_delivered_often_come_in_smaller_numbers(
    limit: int, together: dict[int, int]
) -> None:
    settings = WindowSettings(delivery_count_limit=limit)
    often = range(settings.isolation_count, limit)
    assert {deliveries: settings.isolated(deliveries, 16) for deliveries in often} == together


def test_a_member_holds_a_record_until_its_lock_ends_also_if_nobody_looked_yet() -> None:
    run = Run(0, 4, RecordState.ACQUIRED, 1, "A", 1000)
    assert run.is_held("A", 999)
    assert not run.is_held("A", 1000)
    assert not run.is_held("B", 999)
