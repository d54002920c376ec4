"""The window of a share partition as text: every file in `share/` is one scenario."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.share_world import ShareWorld

SCENARIOS = sorted((Path(__file__).parent / "share").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    golden.run(path, ShareWorld().execute, rewrite=request.config.getoption("--rewrite"))
