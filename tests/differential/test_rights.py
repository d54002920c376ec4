"""The rights matrix on Felice and on Apache Kafka: every response has the same rows and the same error codes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.delegation_tokens import TOKEN_SETTINGS, prepared_with_token
from conformance.rights_case import Case, Names
from conformance.rights_matrix import CASES
from conformance.rights_outcomes import Outcome, ask
from conformance.secured import Rule, Secured, secured_felice, secured_kafka

Side = tuple[Secured, Names]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    directory = tmp_path_factory.mktemp("rights")
    with (
        secured_felice(directory / "felice", TOKEN_SETTINGS) as ours,
        secured_kafka(directory / "kafka", TOKEN_SETTINGS) as theirs,
    ):
        yield (ours, Names(prepared_with_token(ours))), (theirs, Names(prepared_with_token(theirs)))


def variants(case: Case) -> Iterator[tuple[str, list[Rule]]]:
    """No permission, all of them, all but one, one alone, and those that serve instead."""
    yield "none", []
    yield "all", [need.rule for need in case.needs]
    for place, missing in enumerate(case.needs):
        yield f"without {place}", [need.rule for need in case.needs if need is not missing]
        yield f"only {place}", [missing.rule]
    for place, instead in enumerate(case.in_place_of):
        yield f"instead {place}", [instead.rule]


def outcome(side: Side, case: Case, rules: list[Rule]) -> Outcome:
    broker, names = side
    broker.only(*rules)
    return ask(broker, case, names)


@pytest.mark.parametrize(
    ("case", "rules"),
    [
        pytest.param(case, rules, id=f"{case.name}, {variant}")
        for case in CASES
        for variant, rules in variants(case)
    ],
)
def test_both_brokers_answer_alike(case: Case, rules: list[Rule], sides: tuple[Side, Side]) -> None:
    ours, theirs = (outcome(side, case, rules) for side in sides)
    assert ours == theirs
