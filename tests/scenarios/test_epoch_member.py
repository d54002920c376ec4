"""Our client's member of a KIP-848 group as text: every file in `epoch_member/` is one scenario."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.epoch_member_world import EpochMemberWorld

SCENARIOS = sorted((Path(__file__).parent / "epoch_member").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    golden.run(path, EpochMemberWorld().execute, rewrite=request.config.getoption("--rewrite"))
