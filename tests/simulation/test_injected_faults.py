"""The checkers are tested: a simulation run finds every fault that is injected into the running code. That the same
seeds find nothing in the unchanged code is shown in `test_seeds` and `test_cluster_seeds`.
"""

from __future__ import annotations

import pytest

from simulation.injected_faults import InjectedFault
from simulation.search import INJECTED_FAULTS, MAX_RUNS, search
from simulation.simulation_kind import BROKER, CLUSTER, PRODUCER, SIMULATION_KINDS, SimulationKind

_ALL = [(SIMULATION_KINDS[name], fault) for name, faults in INJECTED_FAULTS.items() for fault in faults]


@pytest.mark.parametrize(
    ("kind", "least"),
    [(BROKER, 20), (CLUSTER, 20), (PRODUCER, 6)],
    ids=lambda given: getattr(given, "name", ""),
)
def test_there_are_enough_injected_faults(kind: SimulationKind, least: int) -> None:
    faults = INJECTED_FAULTS[kind.name]
    assert len({fault.name for fault in faults}) == len(faults) >= least


@pytest.mark.parametrize(("kind", "fault"), _ALL, ids=lambda given: given.name)
def test_an_injected_fault_is_found(kind: SimulationKind, fault: InjectedFault) -> None:
    found = search(fault, MAX_RUNS, kind)
    assert found is not None, f"{fault.description}: {MAX_RUNS} runs did not find it"
