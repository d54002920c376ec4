"""The kinds of simulation: of one broker, of a cluster, and of a producer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulation import run as broker
from simulation.cluster import run as cluster
from simulation.cluster.plan import cluster_plan_of
from simulation.plan import Plan, plan_of
from simulation.producer import run as producer
from simulation.producer.plan import producer_plan_of


@dataclass(frozen=True, slots=True)
class SimulationKind:
    """How a kind of simulation makes a plan from a seed, and runs it."""

    name: str
    plan_of: Callable[[int], Plan]
    run: Callable[[int], broker.RunResult]


BROKER = SimulationKind("broker", plan_of, broker.simulate)
CLUSTER = SimulationKind("cluster", cluster_plan_of, cluster.simulate)
PRODUCER = SimulationKind("producer", producer_plan_of, producer.simulate)
SIMULATION_KINDS = {kind.name: kind for kind in (BROKER, CLUSTER, PRODUCER)}
