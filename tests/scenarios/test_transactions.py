"""The transaction coordinator, told in text: every file in `transactions/` is one story."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.transaction_world import TransactionWorld

STORIES = sorted((Path(__file__).parent / "transactions").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    golden.run(path, TransactionWorld().execute, rewrite=request.config.getoption("--rewrite"))
