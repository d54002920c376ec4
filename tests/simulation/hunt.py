"""Plays stories with a planted bug until a judge finds it."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from simulation.cluster.planted import BUGS as CLUSTER_BUGS
from simulation.half import BROKER, CLUSTER, Half
from simulation.planted import BUGS as BROKER_BUGS
from simulation.planted import PlantedBug

BUGS = {BROKER.name: BROKER_BUGS, CLUSTER.name: CLUSTER_BUGS}

# Stories that are tried for one bug before it counts as not found.
PATIENCE = 80


@dataclass(frozen=True, slots=True)
class Found:
    seed: int
    tried: int
    anomaly: str


def hunt(bug: PlantedBug, patience: int, half: Half) -> Found | None:
    for tried, seed in enumerate(itertools.islice(_seeds(bug, half), patience), 1):
        with bug.plant():
            verdict = half.run(seed)
        gc.collect(0)
        if verdict.anomalies:
            return Found(seed, tried, verdict.anomalies[0].splitlines()[0])
    return None


def _seeds(bug: PlantedBug, half: Half) -> Iterator[int]:
    """The one that is known to find it, then every one that may."""
    yield bug.seed
    for seed in itertools.count():
        if seed != bug.seed and bug.meets(half.plan_of(seed)):
            yield seed


__all__ = ["BUGS", "Found", "PlantedBug", "hunt"]
