"""The numbered rules of what clients depend on: each has a test that names it.

A test names its rule by opening its docstring with the number.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
RULES = range(1, 94)
NAMED = re.compile(r'def test_\w+\([^"]*?"""(?:Rules? )?(\d+(?:(?:, | and )\d+)*)[:.]')


def named_rules() -> set[int]:
    texts = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return {int(n) for text in texts for found in NAMED.findall(text) for n in re.findall(r"\d+", found)}


def test_each_rule_has_a_test() -> None:
    assert set(RULES) - named_rules() == set()
