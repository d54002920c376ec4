"""The classic group protocol as text: every file in `groups/` is one scenario."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.group_world import GroupWorld

SCENARIOS = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    golden.run(path, GroupWorld().execute, rewrite=request.config.getoption("--rewrite"))
