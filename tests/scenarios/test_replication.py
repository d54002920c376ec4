"""Replication, told in text: every file in `replication/` is one story, most of them a disaster that was avoided."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.replication_world import ReplicationWorld

STORIES = sorted((Path(__file__).parent / "replication").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    world = ReplicationWorld(tmp_path)
    try:
        golden.run(path, world.execute, rewrite=request.config.getoption("--rewrite"))
    finally:
        world.close()
