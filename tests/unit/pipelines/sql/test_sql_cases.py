"""The tests in `cases`, in the form of `felice sql test --cases`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.cases import parsed, result_of

CASES = Path(__file__).with_name("cases")


def _cases() -> Iterator[Any]:
    for file in sorted(CASES.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            case = parsed(line)
            yield pytest.param(case, id=f"{file.stem}-{case['name']}")


@pytest.mark.parametrize("case", list(_cases()))
def test_case(case: dict[str, Any]) -> None:
    """Its queries write what is expected, or its statement is refused."""
    found = result_of(case, built_in())
    assert found["passed"], json.dumps(found, indent=1, default=str)
    for response, expected in zip(found["responses"], case.get("responses") or [], strict=False):
        assert {name: response[name] for name in expected} == expected
