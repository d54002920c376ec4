"""Few seeds meet what many meet."""

from collections import Counter

import pytest

from simulation.covering import covering
from simulation.search import INJECTED_FAULTS
from simulation.simulation_kind import BROKER, CLUSTER, SimulationKind


def promised(kind: SimulationKind, seed: int) -> set[tuple[str, object]]:
    """What docs/simulation.md says of a run: rules that it reaches, and its faults with its durability and clients."""
    plan = kind.plan_of(seed)
    found: set[tuple[str, object]] = set()
    for rule in INJECTED_FAULTS[kind.name]:
        if rule.applies_to(plan):
            found.add(("reaches", rule.name))
    for fault in plan.faults:
        found.add((fault.kind, plan.durability))
        for workload in plan.workloads:
            found.add((fault.kind, workload))
    return found


@pytest.mark.parametrize(
    ("kind", "seeds", "least"), [(BROKER, 200, 4), (CLUSTER, 300, 2)], ids=["broker", "cluster"]
)
def test_few_seeds_meet_what_many_meet(kind: SimulationKind, seeds: int, least: int) -> None:
    many, few = range(seeds), covering(kind, range(seeds), least)
    of_many, of_few = (
        Counter(one for seed in seeds for one in promised(kind, seed)) for seeds in (many, few)
    )
    assert len(of_many) > 30
    assert all(of_few[one] >= min(least, times) for one, times in of_many.items())
    assert {fault.seed for fault in INJECTED_FAULTS[kind.name]} <= set(few)
    assert len(few) < len(many) / 2
