"""The plan that a seed makes for a producer: when its topic is created, and which faults happen."""

from __future__ import annotations

from random import Random

from simulation.plan import CODECS, Fault, Plan

_FAULTS = ("kill", "restart", "cut", "cut", "slow", "part", "one way")


def producer_plan_of(seed: int) -> Plan:
    """The plan for a producer at one broker."""
    random = Random(f"{seed}/producer plan")
    length_s = random.uniform(0.5, 2.0)
    faults = [
        Fault(
            random.uniform(0, length_s),
            random.choice(_FAULTS),
            random.uniform(0.05, 0.6),
            random.randrange(40),
        )
        for _ in range(random.choice((0, 0, 1, 2, 3)))
    ]
    return Plan(
        seed,
        "cached",
        partitions=random.randrange(1, 4),
        length_s=length_s,
        codec=random.choice(CODECS),
        workloads=("producing",),
        properties={"auto.create.topics.enable": "false"},
        faults=tuple(sorted(faults, key=lambda fault: fault.time_s)),
    )
