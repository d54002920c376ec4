"""Compares topologies with Kafka Streams: `python -m streams --seeds 100 [NAME ...]`, or `--random 1000` others."""

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

from peers.streams_oracle import require_oracle, running_oracle
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
    if given.random:
        seeds = range(given.first, given.first + given.random)
        given.names, given.seeds = [RANDOM + random_topology(Random(seed)) for seed in seeds], 1
    require_oracle()
    failed = 0
    with tempfile.TemporaryDirectory() as directory, running_oracle(Path(directory)) as oracle:
        for name in given.names:
            for seed in range(given.first, given.first + given.seeds):
                try:
                    compare(oracle, name, seed)
                except AssertionError as error:
                    failed += 1
                    print(error, flush=True)
                    break
    print(f"{len(given.names)} topologies, {given.seeds} seeds each: {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
