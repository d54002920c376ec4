"""Runs of one broker with real clients that meet what two hundred meet, and sixty of a producer whose application has
threads: after all faults are healed, no checker finds an anomaly.
"""

from __future__ import annotations

import gc

import pytest

from simulation.covering import covering
from simulation.producer.run import simulate as simulate_producer
from simulation.run import simulate
from simulation.search import INJECTED_FAULTS
from simulation.simulation_kind import BROKER, PRODUCER

# Each that once found a fault, and what it found then.
FOUND = {
    560: "a fetch that began after its partition was revoked delivered records that another consumer owned",
    436: "requests that waited for a connection were sent before the one whose attempt to connect had failed",
}
SEEDS = sorted({*covering(BROKER, range(200), 4), *FOUND})
# Those that find an injected fault must find nothing in the unchanged code.
PRODUCER_SEEDS = sorted({*range(60), *(fault.seed for fault in INJECTED_FAULTS[PRODUCER.name])})
_A_TEST = 20


@pytest.mark.parametrize("first", range(0, len(SEEDS), _A_TEST))
def test_no_run_has_an_anomaly(first: int) -> None:
    failed = []
    for seed in SEEDS[first : first + _A_TEST]:
        result = simulate(seed)
        if result.anomalies:
            failed.append(f"{result.describe()} {FOUND.get(seed, '')}")
    gc.collect()
    assert not failed, "repeat one with `make simulate SEED=...`\n" + "\n".join(failed)


@pytest.mark.parametrize("first", range(0, len(PRODUCER_SEEDS), _A_TEST))
def test_no_run_of_a_producer_has_an_anomaly(first: int) -> None:
    failed = []
    for seed in PRODUCER_SEEDS[first : first + _A_TEST]:
        result = simulate_producer(seed)
        if result.anomalies:
            failed.append(result.describe())
    gc.collect()
    assert not failed, "repeat one with `make simulate KIND=producer SEED=...`\n" + "\n".join(failed)


def test_runs_write_records_and_meet_power_failures() -> None:
    """A run in which nothing happens would have no anomaly either."""
    results = [simulate(seed) for seed in range(6)]
    assert all(result.records > 10 for result in results)
    assert sum(result.records for result in results) > 300
    assert any("power lost" in line for result in results for line in result.trace)
