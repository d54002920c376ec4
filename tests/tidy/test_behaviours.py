"""The numbered rules of what clients depend on: each has a test that names it, or a reason why one cannot be had yet.

A test names its rule by opening its docstring with the number. A reason goes as soon as a test is there.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
RULES = range(1, 94)
NAMED = re.compile(r'def test_\w+\([^"]*?"""(?:Rules? )?(\d+(?:(?:, | and )\d+)*)[:.]')

LEFT = {
    14: "throttling: there are no quotas yet",
    29: "topics that a client may not see: the test is missing",
}


def named_rules() -> set[int]:
    texts = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return {int(n) for text in texts for found in NAMED.findall(text) for n in re.findall(r"\d+", found)}


def test_each_rule_has_a_test_or_a_reason() -> None:
    assert set(RULES) - named_rules() == set(LEFT)
