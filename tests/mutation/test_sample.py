"""What a sample of mutants lets `make mutate` say of all of them."""

from __future__ import annotations

import random

import pytest

from mutation.sample import Share, draw

MUTANTS = [f"m{number}" for number in range(500)]


def test_a_seed_draws_the_same_mutants_again_whatever_their_order() -> None:
    assert draw(MUTANTS, 20, 7) == draw(MUTANTS[::-1], 20, 7) != draw(MUTANTS, 20, 8)
    assert len(set(draw(MUTANTS, 20, 7))) == 20


def test_a_sample_as_large_as_the_population_is_the_population() -> None:
    assert draw(MUTANTS, None, 1) == draw(MUTANTS, 500, 1) == MUTANTS


def test_a_whole_population_has_no_uncertainty() -> None:
    assert Share(5, 100, 100).interval() == (0.05, 0.05)
    assert str(Share(5, 100, 100)) == "5 of 100 mutants survive: 5.0%"


def test_the_interval_of_wilson() -> None:
    """10 of 100: 5.52 % to 17.44 %, as tables have it."""
    low, high = Share(10, 100, 10_000).interval()
    assert (round(low, 4), round(high, 4)) == (0.0552, 0.1744)
    assert Share(0, 50, 10_000).interval()[1] > 0.07, "no survivor in 50 does not prove that there is none"


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_the_interval_holds_the_true_share_in_about_95_of_100_samples(share: float) -> None:
    population = [number < 2000 * share for number in range(2000)]
    chance = random.Random(5)
    inside = 0
    for _ in range(400):
        low, high = Share(sum(chance.sample(population, 100)), 100, 2000).interval()
        inside += low <= share <= high
    assert inside >= 0.92 * 400
