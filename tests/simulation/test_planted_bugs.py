"""The judges are judged: every bug that is planted into the running code is found by a story."""

from __future__ import annotations

import pytest

from simulation.half import BROKER, CLUSTER, HALVES, Half
from simulation.hunt import BUGS, PATIENCE, hunt
from simulation.planted import PlantedBug

_ALL = [(HALVES[name], bug) for name, bugs in BUGS.items() for bug in bugs]
_SEEDS = sorted({(half.name, bug.seed) for half, bug in _ALL})


@pytest.mark.parametrize(
    ("half", "least"), [(BROKER, 20), (CLUSTER, 20)], ids=lambda given: getattr(given, "name", "")
)
def test_there_are_enough_of_them(half: Half, least: int) -> None:
    bugs = BUGS[half.name]
    assert len({bug.name for bug in bugs}) == len(bugs) >= least


@pytest.mark.parametrize(("half", "bug"), _ALL, ids=lambda given: given.name)
def test_a_planted_bug_is_found(half: Half, bug: PlantedBug) -> None:
    found = hunt(bug, PATIENCE, half)
    assert found is not None, f"{bug.what}: {PATIENCE} stories did not find it"


@pytest.mark.parametrize(("name", "seed"), _SEEDS)
def test_the_same_stories_find_nothing_in_the_code_as_it_is(name: str, seed: int) -> None:
    assert HALVES[name].run(seed).anomalies == []
