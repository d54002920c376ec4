"""Regular expressions of any user."""

from __future__ import annotations

import re

import pytest

from felice.pipelines.java import regex
from felice.pipelines.java.patterns import replaced
from felice.pipelines.java.regex import linear


def test_an_expression_that_explodes_elsewhere_ends_at_once() -> None:
    assert linear("(a*)*b").first("a" * 100_000) is None
    found = linear(r"(?<first>\p{L}+) (x)?").first("1 é2 äbc ")
    assert found is not None and found.groups() == ("äbc", None) and found.span() == (5, 9)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)", "invalid perl operator"),
        ("(a)\\1", "invalid escape sequence"),
        ("(", r"missing \)"),
        ("(a{1000}){1000}", "invalid repetition size"),
        ("\ud800", "no Unicode text"),
    ],
)
def test_expressions_that_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"expected a regular expression, and got .*{why}"):
        linear(pattern)


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="is too long for a regular expression of this size"):
        linear("(a?){900}").first("a" * 1_000_000)
    monkeypatch.setattr(regex, "_MOST_SECONDS", -1)
    with pytest.raises(ValueError, match="took more than -1 s"):
        list(linear("a").matches("aa"))


@pytest.mark.parametrize(
    ("replacement", "result"), [("$1", "a"), ("$11", "a1"), ("$10", "a0"), ("$0$2", "abb"), (r"\$1", "$1")]
)
def test_numbers_of_groups_are_as_long_as_there_are_groups(replacement: str, result: str) -> None:
    for engine in (re.compile("(a)(b)"), linear("(a)(b)")):
        found = engine.fullmatch("ab") if isinstance(engine, re.Pattern) else engine.first("ab")
        assert found is not None and replaced(found, replacement) == result
