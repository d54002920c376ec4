"""The classic group protocol, told in text: every file in `groups/` is one story."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.group_world import GroupWorld

STORIES = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    golden.run(path, GroupWorld().execute, rewrite=request.config.getoption("--rewrite"))
