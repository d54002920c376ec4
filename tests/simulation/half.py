"""The two halves of the simulation: stories of one broker, and stories of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulation import story
from simulation.cluster import story as cluster
from simulation.cluster.plan import cluster_plan_of
from simulation.plan import Plan, plan_of


@dataclass(frozen=True, slots=True)
class Half:
    name: str
    plan_of: Callable[[int], Plan]
    run: Callable[[int], story.Verdict]


BROKER = Half("broker", plan_of, story.run)
CLUSTER = Half("cluster", cluster_plan_of, cluster.run)
HALVES = {half.name: half for half in (BROKER, CLUSTER)}
