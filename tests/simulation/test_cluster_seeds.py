"""Three hundred runs of clusters with faults of brokers, store, links and clients: no checker finds an
anomaly.
"""

from __future__ import annotations

import gc

import pytest

from simulation.cluster.run import simulate

SEEDS = 300
_A_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, _A_TEST))
def test_no_run_of_a_cluster_has_an_anomaly(first: int) -> None:
    failed = []
    for seed in range(first, first + _A_TEST):
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
