"""Replication as text: every file in `replication/` is one scenario, most of them a data loss that is prevented."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.replication_world import ReplicationWorld

SCENARIOS = sorted((Path(__file__).parent / "replication").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    world = ReplicationWorld(tmp_path)
    try:
        golden.run(path, world.execute, rewrite=request.config.getoption("--rewrite"))
    finally:
        world.close()
