"""Three hundred clusters, each from its seed: brokers, store, links and clients hurt and healed, without an anomaly."""

from __future__ import annotations

import gc

import pytest

from simulation.cluster.story import run

SEEDS = 300
_A_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, _A_TEST))
def test_no_story_of_a_cluster_breaks_a_promise(first: int) -> None:
    failed = []
    for seed in range(first, first + _A_TEST):
        verdict = run(seed)
        if verdict.anomalies:
            failed.append(verdict.told())
    gc.collect()
    assert not failed, "play one again with `make simulate KIND=cluster SEED=...`\n" + "\n".join(failed)


def test_a_seed_of_a_cluster_leaves_the_same_trace_each_time() -> None:
    assert run(8).fingerprint == run(8).fingerprint


def test_stories_of_clusters_are_about_something() -> None:
    verdicts = [run(seed) for seed in range(2, 9)]
    assert all(verdict.records > 10 for verdict in verdicts)
    lines = [line for verdict in verdicts for line in verdict.trace]
    for happening in ("kill b", "power lost", "fault", "session "):
        assert any(happening in line for line in lines), happening
