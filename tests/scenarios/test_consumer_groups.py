"""The consumer group protocol (KIP-848) as text: every file in `consumer_groups/` is one scenario."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.consumer_group_world import ConsumerGroupWorld

SCENARIOS = sorted((Path(__file__).parent / "consumer_groups").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    golden.run(path, ConsumerGroupWorld().execute, rewrite=request.config.getoption("--rewrite"))
