"""What `felice sql plan` and `felice sql apply` ask a server."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from felice.cli import sql_changes
from felice.cli.sql import sql

CREATE = "CREATE STREAM s (v INT) WITH (kafka_topic = 't', value_format = 'JSON', partitions = 1);"
OF_STEPS = ["SHOW STREAMS EXTENDED;", "SHOW TABLES EXTENDED;", "SHOW TYPES;", "SHOW QUERIES;"]
OF_CHECKS = ["SHOW ALL TOPICS;", "SHOW FUNCTIONS;", "SHOW PROPERTIES;"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that an empty server got."""
    statements: list[str] = []

    class Empty:
        def run(self, statement: str, settings: Mapping[str, str]) -> list[Any]:
            statements.append(statement)
            return []

    @contextmanager
    def connected(options: object) -> Iterator[Empty]:
        yield Empty()

    monkeypatch.setattr(sql_changes, "connected", connected)
    return statements


@pytest.mark.parametrize(
    ("command", "expected"), [("plan", OF_STEPS + OF_CHECKS), ("apply", [*OF_STEPS, CREATE])]
)
def test_only_a_plan_asks_for_what_its_checks_need(
    command: str, expected: list[str], asked: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "s.sql"
    file.write_text(CREATE)
    result = CliRunner().invoke(sql, [command, str(file)], catch_exceptions=False)
    assert (result.exit_code, asked) == (0, expected), result.output
