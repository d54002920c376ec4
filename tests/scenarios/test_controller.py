"""The controller's decisions, told in text: every file in `controller/` is one story."""

from contextlib import closing
from pathlib import Path

import pytest

from scenarios import golden
from scenarios.controller_world import ControllerWorld

STORIES = sorted((Path(__file__).parent / "controller").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    with closing(ControllerWorld()) as world:
        golden.run(path, world.execute, rewrite=request.config.getoption("--rewrite"))
