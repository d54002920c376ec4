"""Each topology gives the same changes as Kafka Streams.

`make streams-oracle` does this for hundreds of seeds, and with `ARGS="--random 1000"` for as many random topologies.
"""

from collections.abc import Iterator
from random import Random

import pytest

from peers.streams_oracle import Oracle, require_oracle, running_oracle
from streams.comparison import RANDOM, compare
from streams.random_topologies import random_topology
from streams.topologies import TOPOLOGIES

SEEDS = 3
RANDOMS = 60


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    require_oracle()
    with running_oracle(tmp_path_factory.mktemp("oracle")) as running:
        yield running


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_changes_equal_those_of_kafka_streams(oracle: Oracle, name: str) -> None:
    for seed in range(SEEDS):
        compare(oracle, name, seed)


@pytest.mark.parametrize("first", range(0, RANDOMS, 10))
def test_random_topologies_give_what_kafka_streams_gives(oracle: Oracle, first: int) -> None:
    for seed in range(first, first + 10):
        compare(oracle, RANDOM + random_topology(Random(seed)), seed)
