"""Few seeds meet what many meet."""

from collections import Counter

import pytest

from simulation.covering import covering, met
from simulation.search import INJECTED_FAULTS
from simulation.simulation_kind import BROKER, CLUSTER, SimulationKind


@pytest.mark.parametrize(("kind", "least"), [(BROKER, 4), (CLUSTER, 2)], ids=["broker", "cluster"])
def test_few_seeds_meet_what_many_meet(kind: SimulationKind, least: int) -> None:
    many, few = range(200), covering(kind, range(200), least)
    of_many, of_few = (
        Counter(one for seed in seeds for one in met(kind, kind.plan_of(seed))) for seeds in (many, few)
    )
    assert all(of_few[one] >= min(least, times) for one, times in of_many.items())
    assert {fault.seed for fault in INJECTED_FAULTS[kind.name]} <= set(few)
    assert len(few) < len(many) / 2
