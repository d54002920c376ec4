"""Two hundred worlds, each from its seed: whole brokers and real clients, hurt and healed, without an anomaly."""

from __future__ import annotations

import gc

import pytest

from simulation.story import run

SEEDS = 200
_A_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, _A_TEST))
def test_no_story_breaks_a_promise(first: int) -> None:
    failed = []
    for seed in range(first, first + _A_TEST):
        verdict = run(seed)
        if verdict.anomalies:
            failed.append(verdict.told())
    gc.collect()
    assert not failed, "play one again with `make simulate SEED=...`\n" + "\n".join(failed)


def test_stories_are_about_something() -> None:
    """A world in which nothing happens would break no promise either."""
    verdicts = [run(seed) for seed in range(6)]
    assert all(verdict.records > 10 for verdict in verdicts)
    assert sum(verdict.records for verdict in verdicts) > 300
    assert any("power lost" in line for verdict in verdicts for line in verdict.trace)


@pytest.mark.parametrize(
    ("seed", "found"),
    [
        (560, "a fetch that began after its partition was given up handed out what another consumer owned"),
        (
            436,
            "requests that waited for a connection were sent before the one whose attempt to connect had failed",
        ),
    ],
)
def test_a_story_that_found_a_bug_has_a_good_end(seed: int, found: str) -> None:
    assert run(seed).anomalies == [], found
