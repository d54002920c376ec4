"""The controller's decisions as text: every file in `controller/` is one scenario."""

from contextlib import closing
from pathlib import Path

import pytest

from scenarios import golden
from scenarios.controller_world import ControllerWorld

SCENARIOS = sorted((Path(__file__).parent / "controller").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    with closing(ControllerWorld()) as world:
        golden.run(path, world.execute, rewrite=request.config.getoption("--rewrite"))
