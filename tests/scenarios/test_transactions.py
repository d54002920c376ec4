"""The transaction coordinator as text: every file in `transactions/` is one scenario."""

from pathlib import Path

import pytest

from scenarios import golden
from scenarios.transaction_world import TransactionWorld

SCENARIOS = sorted((Path(__file__).parent / "transactions").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    golden.run(path, TransactionWorld().execute, rewrite=request.config.getoption("--rewrite"))
