"""Compares topologies with Kafka Streams: `python -m streams --seeds 100 [NAME ...]`, or `--random 1000` others."""

import argparse
import sys
import tempfile
from collections import deque
from pathlib import Path
from random import Random

from peers.streams_oracle import Oracle, require_oracle, running_oracle
from streams.comparison import RANDOM, compare
from streams.random_topologies import random_topology
from streams.topologies import TOPOLOGIES


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("names", nargs="*", default=list(TOPOLOGIES))
    given = parser.parse_args()
    seeds = range(given.first, given.first + (given.random or given.seeds))
    if given.random:
        waiting = deque((RANDOM + random_topology(Random(seed)), [seed]) for seed in seeds)
    else:
        waiting = deque((name, list(seeds)) for name in given.names)
    require_oracle()
    count, failed = len(waiting), 0
    with tempfile.TemporaryDirectory() as directory:
        while waiting:
            with running_oracle(Path(directory)) as oracle:
                while waiting and not oracle.has_ended:
                    failed += not _is_equal(oracle, *waiting.popleft())
    print(f"{count} topologies, {1 if given.random else given.seeds} seeds each: {failed} differ")
    return 1 if failed else 0


def _is_equal(oracle: Oracle, name: str, seeds: list[int]) -> bool:
    """Whether a topology gives the same with the records of each seed; prints the first difference."""
    for seed in seeds:
        try:
            compare(oracle, name, seed)
        except AssertionError as error:
            print(error, flush=True)
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
