"""Regular expressions from outside: linear time, bounded memory, every refusal a `PatternError`."""

import subprocess
import sys

import pytest

from felice.protocol.patterns import PATTERN_MAX_MEMORY_BYTES, PatternError, linear_pattern, own_pattern


def test_a_pattern_matches_whole_texts() -> None:
    pattern = linear_pattern(r"tx-[0-9]{2,}")
    assert pattern.fullmatch("tx-12") is not None
    assert pattern.fullmatch("tx-12x") is None
    assert pattern.match("tx-12x") is not None


@pytest.mark.parametrize(
    "text",
    [
        "((a{1,1000}){1,1000}){1,1000}",
        "a{1,99999999999}",
        "a{99999999999}",
        "a{99999999999,}",
        "(?:a{1000}){1000}",
        "(",
        "(?=a)",
        r"(a)\1",
        "\ud800",
        "x" * (PATTERN_MAX_MEMORY_BYTES // 8),
        "(x{100}){9}|" * 1000,
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_a_pattern_beyond_the_limits_is_refused(text: str) -> None:
    with pytest.raises(PatternError) as caught:
        linear_pattern(text)
    assert str(caught.value)


@pytest.mark.parametrize("text", ["(a+)+$", "(a|a)*b", "(a*)*(a*)*c", "(" * 5000 + "a*" + ")" * 5000])
def test_a_pattern_that_backtracks_for_ever_elsewhere_ends(text: str) -> None:
    """A backtracking engine doubles its work with every `a`; these have 20,000."""
    pattern = linear_pattern(text)
    assert pattern.fullmatch("a" * 20_000 + "!") is None


def test_compiled_patterns_are_not_kept_behind_the_callers_back() -> None:
    import re2

    linear_pattern("a{7}")
    assert re2._Regexp._make.cache_info().currsize == 0


def test_the_users_own_pattern_may_look_around() -> None:
    pattern = own_pattern("^(?!__).*")
    assert pattern.match("orders") is not None
    assert pattern.match("__internal") is None


def test_the_users_own_pattern_is_linear_where_it_can_be() -> None:
    assert own_pattern("^(a+)+$").fullmatch("a" * 5000 + "!") is None


@pytest.mark.parametrize("text", ["(", "a{99999999999}"])
def test_a_pattern_that_no_engine_supports_is_refused(text: str) -> None:
    with pytest.raises(PatternError):
        own_pattern(text)


def test_a_broker_does_not_load_the_engine() -> None:
    code = "import sys, felice.server.broker, felice.coordinator.transaction.listing; print('re2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
