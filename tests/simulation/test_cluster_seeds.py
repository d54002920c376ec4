"""Runs of clusters that meet the faults of brokers, store, links and clients that three hundred meet: no checker finds
an anomaly.
"""

from __future__ import annotations

import gc

import pytest

from simulation.cluster.run import simulate
from simulation.covering import covering
from simulation.simulation_kind import CLUSTER

SEEDS = covering(CLUSTER, range(300), 2)
_A_TEST = 20


@pytest.mark.parametrize("first", range(0, len(SEEDS), _A_TEST))
def test_no_run_of_a_cluster_has_an_anomaly(first: int) -> None:
    failed = []
    for seed in SEEDS[first : first + _A_TEST]:
        result = simulate(seed)
        if result.anomalies:
            failed.append(result.describe())
    gc.collect()
    assert not failed, "repeat one with `make simulate KIND=cluster SEED=...`\n" + "\n".join(failed)


def test_a_seed_of_a_cluster_leaves_the_same_trace_each_time() -> None:
    assert simulate(8).fingerprint == simulate(8).fingerprint


def test_runs_of_clusters_write_records_and_meet_faults() -> None:
    results = [simulate(seed) for seed in range(2, 9)]
    assert all(result.records > 10 for result in results)
    lines = [line for result in results for line in result.trace]
    for happening in ("kill b", "power lost", "fault", "session "):
        assert any(happening in line for line in lines), happening
