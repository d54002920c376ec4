"""Runs simulations with an injected fault until a checker finds an anomaly."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from simulation.cluster.injected_faults import INJECTED_FAULTS as CLUSTER_FAULTS
from simulation.injected_faults import INJECTED_FAULTS as BROKER_FAULTS
from simulation.injected_faults import InjectedFault
from simulation.producer.injected_faults import INJECTED_FAULTS as PRODUCER_FAULTS
from simulation.simulation_kind import BROKER, CLUSTER, PRODUCER, SimulationKind

INJECTED_FAULTS = {
    BROKER.name: BROKER_FAULTS,
    CLUSTER.name: CLUSTER_FAULTS,
    PRODUCER.name: PRODUCER_FAULTS,
}

# An injected fault counts as not found after this many runs.
MAX_RUNS = 80


@dataclass(frozen=True, slots=True)
class Found:
    """The seed that found an injected fault, the number of runs needed, and the first anomaly."""

    seed: int
    tried: int
    anomaly: str


def search(fault: InjectedFault, max_runs: int, kind: SimulationKind) -> Found | None:
    """Run seeds that can reach the wrong code until one finds an anomaly; None after `max_runs` runs."""
    for tried, seed in enumerate(itertools.islice(_seeds(fault, kind), max_runs), 1):
        with fault.inject():
            result = kind.run(seed)
        gc.collect(0)
        if result.anomalies:
            return Found(seed, tried, result.anomalies[0].splitlines()[0])
    return None


def _seeds(fault: InjectedFault, kind: SimulationKind) -> Iterator[int]:
    """The seed that is known to find the fault, then every seed whose plan can reach the wrong code."""
    yield fault.seed
    for seed in itertools.count():
        if seed != fault.seed and fault.applies_to(kind.plan_of(seed)):
            yield seed


__all__ = ["INJECTED_FAULTS", "Found", "InjectedFault", "search"]
