"""The judges are judged: every bug that is planted into the running code is found by a story."""

from __future__ import annotations

import pytest

from simulation.hunt import PATIENCE, hunt
from simulation.planted import BUGS, PlantedBug
from simulation.story import run


def test_there_are_enough_of_them() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    found = hunt(bug, PATIENCE)
    assert found is not None, f"{bug.what}: {PATIENCE} stories did not find it"


@pytest.mark.parametrize("seed", sorted({bug.seed for bug in BUGS}))
def test_the_same_stories_find_nothing_in_the_code_as_it_is(seed: int) -> None:
    assert run(seed).anomalies == []
