"""Which changes `make mutate` tries, and what it leaves alone."""

from __future__ import annotations

import ast
import textwrap

import pytest

pytest.importorskip("mutmut", reason="mutmut makes the mutants")

from mutation.operators import install, mutants_of


@pytest.fixture(autouse=True)
def installed() -> None:
    install()


def bodies(source: str) -> set[str]:
    """The mutants of a function's body, a line each."""
    function = "def f(a, b, c):\n" + textwrap.indent(textwrap.dedent(source).strip(), "    ") + "\n"
    mutants = [ast.parse(mutant) for mutant in mutants_of(function)]
    return {"; ".join(ast.unparse(statement) for statement in mutant.body[0].body) for mutant in mutants}


def test_a_call_may_be_missing() -> None:
    assert bodies("a.clear()") == {"pass"}


def test_a_condition_may_lose_a_half_or_be_turned_round() -> None:
    assert bodies("return a and b") == {"return a or b", "return a", "return b"}
    assert "if not a:\n    return b" in bodies("if a:\n    return b")


def test_a_half_of_a_condition_over_several_lines_is_still_python() -> None:
    assert "return b" in bodies("return (\n    a\n    and b\n)")


def test_an_argument_may_be_missing() -> None:
    assert bodies("return a(b, c)") == {
        "return a(None, c)",
        "return a(c)",
        "return a(b, None)",
        "return a(b)",
    }


@pytest.mark.parametrize(
    "untouched",
    [
        "_logger.warning('%s is gone', a)",
        "assert a < b, 'not yet'",
        "return 'a text for people'",
        "return f'{a} is a text for people'",
    ],
)
def test_what_only_people_read_and_assertions_are_left_alone(untouched: str) -> None:
    assert not {
        body
        for body in bodies(untouched)
        if body != ast.unparse(ast.parse(untouched.removeprefix("return ")))
    }


def test_an_error_keeps_its_text_but_not_its_code() -> None:
    assert bodies("raise Error(a.CODE, 'the text for people')") == {
        "raise Error(None, 'the text for people')",
        "raise Error('the text for people')",
    }
