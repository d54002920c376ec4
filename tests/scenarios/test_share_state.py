"""A shard of share group states as text: every file in `share_state/` is one scenario."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.share_state_world import ShareStateWorld

SCENARIOS = sorted((Path(__file__).parent / "share_state").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    golden.run(path, ShareStateWorld().execute, rewrite=request.config.getoption("--rewrite"))
