"""Each topology gives the same changes as Kafka Streams. `make streams-oracle` does this for hundreds of seeds."""

from collections.abc import Iterator

import pytest

from peers.streams_oracle import Oracle, require_oracle, running_oracle
from streams.comparison import compare
from streams.topologies import TOPOLOGIES

SEEDS = 3


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    require_oracle()
    with running_oracle(tmp_path_factory.mktemp("oracle")) as running:
        yield running


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_changes_equal_those_of_kafka_streams(oracle: Oracle, name: str) -> None:
    for seed in range(SEEDS):
        compare(oracle, name, seed)
