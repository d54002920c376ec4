"""The checks of a soak: a leak of each kind is found, a flat run passes, and a short run is not accepted as flat."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from soak.samples import Sample
from soak.verdict import changes, errors_in, growth

FLAT = Sample(
    at_s=0.0,
    rss_mib=40.0,
    heap_mib=28.0,
    log_files=110,
    sockets=50,
    other_files=3,
    threads=4,
    cpu_percent=10.0,
    log_mib=20.0,
    ping_ms=0.2,
    worst_ping_ms=5.0,
    tasks=14,
    objects=13_000,
)


def run_of(count: int = 360, **slopes: float) -> list[Sample]:
    """An hour of samples around `FLAT` with some noise; a slope is the growth of a figure over the hour."""
    dice = random.Random(1)
    made = []
    for number in range(count):
        noisy = {
            "rss_mib": FLAT.rss_mib + dice.uniform(-0.3, 0.3),
            "sockets": FLAT.sockets + dice.randint(-8, 8),
        }
        for figure, slope in slopes.items():
            noisy[figure] = noisy.get(figure, getattr(FLAT, figure)) + slope * number / count
        made.append(replace(FLAT, at_s=10.0 * number, **noisy))
    return made


def test_a_flat_run_passes() -> None:
    assert growth(run_of()) == []


def test_a_warm_up_is_not_growth() -> None:
    cold = [replace(sample, rss_mib=20.0, log_files=10) for sample in run_of()[:60]]
    assert growth(cold + run_of()[60:]) == []


@pytest.mark.parametrize(
    ("slopes", "said"),
    [
        ({"rss_mib": 4.0}, "rss_mib went from 41.0 to 43.7"),
        ({"rss_mib": -4.0}, "rss_mib went from"),
        ({"sockets": 20.0}, "open_files went from"),
        ({"log_files": 20.0}, "open_files went from"),
        ({"other_files": 20.0}, "open_files went from"),
        ({"threads": 5.0}, "threads went from"),
    ],
)
def test_a_figure_that_grows_is_named(slopes: dict[str, float], said: str) -> None:
    [fault] = growth(run_of(**slopes))
    assert said in fault


def test_a_pool_that_fills_is_not_growth() -> None:
    assert growth(run_of(threads=2.0)) == []


def test_a_figure_without_a_bound_is_reported_and_not_checked() -> None:
    samples = run_of(log_mib=100.0)
    assert growth(samples) == []
    assert {change.figure: round(change.last) for change in changes(samples)}["log_mib"] == 112


def test_a_run_that_is_too_short_is_not_accepted_as_flat() -> None:
    assert growth(run_of(29)) == ["29 samples are too few to measure growth: at least 30 are needed"]


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-31T12:00:00.000Z ERROR felice.server: a periodic task failed task=retention",
        "Traceback (most recent call last):",
        "ValueError: no such thing",
    ],
)
def test_errors_of_the_broker_are_found(line: str) -> None:
    calm = "2026-01-31T12:00:00.000Z WARNING felice.server: connection refused peer=127.0.0.1"
    assert errors_in(f"{calm}\n{line}\n{calm}") == [line]
