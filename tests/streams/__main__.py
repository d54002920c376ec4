"""Compares every topology with Kafka Streams over many seeds: `python -m streams --seeds 100 [NAME ...]`."""

import argparse
import sys
import tempfile
from pathlib import Path

from peers.streams_oracle import require_oracle, running_oracle
from streams.comparison import compare
from streams.topologies import TOPOLOGIES


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("names", nargs="*", default=list(TOPOLOGIES))
    given = parser.parse_args()
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
