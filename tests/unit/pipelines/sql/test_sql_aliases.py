"""The names of columns that a query does not name."""

from __future__ import annotations

import pytest

from felice.pipelines.sql.analysis.aliases import Aliases


@pytest.mark.parametrize(
    ("taken", "fields", "expected"),
    [
        ([], ["F", "F", "G"], ["F", "F_1", "G"]),
        (["F"], ["F", "F"], ["F_1", "F_2"]),
        (["F_1"], ["F", "F"], ["F", "F_2"]),
        (["f"], ["F"], ["F"]),
        ([], ["F_7", "F"], ["F", "F_1"]),
    ],
)
def test_fields_avoid_names(taken: list[str], fields: list[str], expected: list[str]) -> None:
    """A field has its own name, or one with the next number that is free."""
    aliases = Aliases(taken)
    assert [aliases.of_field(name) for name in fields] == expected


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], ["KSQL_COL_0", "KSQL_COL_1", "KSQL_COL_2"]),
        (["KSQL_COL_1"], ["KSQL_COL_0", "KSQL_COL_2", "KSQL_COL_3"]),
        (["KSQL_COL"], ["KSQL_COL_1", "KSQL_COL_2", "KSQL_COL_3"]),
    ],
)
def test_expressions_are_numbered(taken: list[str], expected: list[str]) -> None:
    """Expressions count from 0, without the numbers that sources have."""
    aliases = Aliases(taken)
    assert [aliases.of_expression() for _ in expected] == expected
