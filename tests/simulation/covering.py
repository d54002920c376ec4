"""Chooses few seeds whose runs meet what the runs of many seeds meet."""

from __future__ import annotations

from collections import Counter

from simulation.plan import Plan
from simulation.search import INJECTED_FAULTS
from simulation.simulation_kind import SimulationKind


def covering(kind: SimulationKind, seeds: range, least: int) -> list[int]:
    """Some of the seeds. What the runs of all meet, theirs meet at least `least` times, or as often as all do.

    The seeds that are known to find an injected fault are always among them.
    """
    met_by = {seed: met(kind, kind.plan_of(seed)) for seed in seeds}
    times = Counter(one for found in met_by.values() for one in found)
    known = {fault.seed for fault in INJECTED_FAULTS[kind.name]}
    # Plans in which little happens are left out first.
    for seed in sorted(met_by, key=lambda seed: len(met_by[seed])):
        if seed not in known and all(times[one] > least for one in met_by[seed]):
            times.subtract(met_by.pop(seed))
    return sorted(known | set(met_by))


def met(kind: SimulationKind, plan: Plan) -> set[object]:
    """The rules of injected faults that a run with this plan can reach, and each fault of its environment in its
    durability and beside each of its clients.
    """
    rules = {fault.name for fault in INJECTED_FAULTS[kind.name] if fault.applies_to(plan)}
    return rules | {
        (beside, fault.kind) for beside in (plan.durability, *plan.workloads) for fault in plan.faults
    }
