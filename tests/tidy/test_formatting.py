"""No file exempts code from the formatter: tables are data, and everything else has the formatter's layout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidy.imports import ROOT

EXEMPTION = re.compile(r"#\s*(fmt|yapf)\s*:\s*(skip|off|on|disable)", re.IGNORECASE)
FILES = sorted(path for folder in ("src", "tests", "bench") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("text", ["x = 1  # fmt: skip", "# fmt: off", "#fmt:skip"])
def test_exemptions_are_recognised(text: str) -> None:
    assert EXEMPTION.search(text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_leaves_its_layout_to_the_formatter(path: Path) -> None:
    if path == Path(__file__):
        return
    found = [number for number, line in enumerate(path.read_text().splitlines(), 1) if EXEMPTION.search(line)]
    assert not found, f"{path}: lines {found} are exempt from the formatter"
