"""Statements with tokens changed: each is refused as a statement, or runs. Nothing else goes wrong."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.cases import parsed, result_of
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tokens import tokens_of

CASES = Path(__file__).parents[2] / "unit" / "pipelines" / "sql" / "cases"
OWN_FAULT = re.compile(r"\w*(?:Error|Exception|Interrupt): ")
"""How an error that nobody foresaw begins."""


def tokens(text: str) -> list[str]:
    try:
        return [token.text for token in tokens_of(text) if token.text]
    except SqlError:
        return []


@cache
def all_cases() -> list[dict[str, Any]]:
    lines = [line for file in sorted(CASES.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return [case for case in map(parsed, lines) if all(tokens(text) for text in case["statements"])]


@cache
def all_tokens() -> list[str]:
    return sorted({token for case in all_cases() for text in case["statements"] for token in tokens(text)})


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_statement_with_other_tokens_is_refused_or_runs(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(all_cases()))
    statements = list(case["statements"])
    number = data.draw(st.integers(0, len(statements) - 1))
    changed = tokens(statements[number])
    for _ in range(data.draw(st.integers(1, 2))):
        at, other = (data.draw(st.integers(0, len(changed) - 1)) for _ in range(2))
        kind = data.draw(st.sampled_from(("replace", "insert", "remove", "swap")))
        if kind == "replace":
            changed[at] = data.draw(st.sampled_from(all_tokens()))
        elif kind == "insert":
            changed.insert(at, data.draw(st.sampled_from(all_tokens())))
        elif kind == "remove" and len(changed) > 1:
            del changed[at]
        elif kind == "swap":
            changed[at], changed[other] = changed[other], changed[at]
    statements[number] = " ".join(changed)
    found = result_of({**case, "statements": statements, "expected_error": None}, built_in())
    errors = [found["error"], *(response["error"] for response in found["responses"])]
    assert not any(one and OWN_FAULT.match(one) for one in errors), (statements, errors)
