"""Plays stories with a planted bug until a judge finds it."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from simulation.plan import plan_of
from simulation.planted import BUGS, PlantedBug
from simulation.story import run

# Stories that are tried for one bug before it counts as not found.
PATIENCE = 80


@dataclass(frozen=True, slots=True)
class Found:
    seed: int
    tried: int
    anomaly: str


def hunt(bug: PlantedBug, patience: int) -> Found | None:
    for tried, seed in enumerate(itertools.islice(_seeds(bug), patience), 1):
        with bug.plant():
            verdict = run(seed)
        gc.collect(0)
        if verdict.anomalies:
            return Found(seed, tried, verdict.anomalies[0].splitlines()[0])
    return None


def _seeds(bug: PlantedBug) -> Iterator[int]:
    """The one that is known to find it, then every one that may."""
    yield bug.seed
    for seed in itertools.count():
        if seed != bug.seed and bug.meets(plan_of(seed)):
            yield seed


__all__ = ["BUGS", "Found", "PlantedBug", "hunt"]
