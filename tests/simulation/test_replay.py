"""A seed determines the whole run: the same trace each time, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.run import simulate

# Together they cover transactions, a group, a copier, compaction, administration and all settings of
# durability.
SEEDS = (3, 7, 8, 22)
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_run_twice_leaves_the_same_trace(seed: int) -> None:
    first, again = simulate(seed), simulate(seed)
    for one, other in zip(first.trace, again.trace, strict=False):
        assert one == other
    assert len(first.trace) == len(again.trace)
    assert first.fingerprint == again.fingerprint


@pytest.mark.parametrize("hash_seed", ["1", "20130101"])
def test_the_trace_does_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    code = (
        "import sys; from simulation.run import simulate; "
        "print(*(simulate(int(seed)).fingerprint for seed in sys.argv[1:]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, *map(str, SEEDS)],
        env={
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.split() == [simulate(seed).fingerprint for seed in SEEDS]
