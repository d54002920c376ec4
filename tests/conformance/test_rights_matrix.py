"""Every API against every missing permission. The cases are in `rights_matrix`.

The same cases run against Apache Kafka with FELICE_CONFORMANCE_TARGET=apache. `tests/differential` compares the whole
outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.delegation_tokens import prepared_with_token, with_tokens
from conformance.rights_case import CLOSED, DENIED, LEFT_OUT, Case, Names, Need
from conformance.rights_matrix import CASES, WITHOUT_NEEDS
from conformance.rights_outcomes import Outcome, ask, tells_of
from conformance.secured import Secured
from felice.server.handlers.table import OFFERED

EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, Names]]:
    with with_tokens(tmp_path_factory.mktemp("secured") / "data") as broker:
        yield broker, Names(prepared_with_token(broker))


def is_denied(outcome: Outcome, need: Need) -> bool:
    if need.denied is LEFT_OUT:
        return not tells_of(outcome, need.name)
    return need.denied in outcome.values()


def is_denied_somewhere(outcome: Outcome) -> bool:
    return bool(({*DENIED, CLOSED}) & set(outcome.values()))


@EACH
def test_with_all_permissions_nothing_is_refused(case: Case, world: tuple[Secured, Names]) -> None:
    broker, names = world
    broker.only(*(need.rule for need in case.needs))
    outcome = ask(broker, case, names)
    assert not is_denied_somewhere(outcome), outcome
    for need in case.needs:
        assert need.denied is not LEFT_OUT or tells_of(outcome, need.name), outcome


@pytest.mark.parametrize(
    ("case", "missing"),
    [(case, need) for case in CASES for need in case.needs],
    ids=lambda item: item.name if isinstance(item, Case) else f"{item.operation.name} of {item.name}",
)
def test_each_missing_permission_is_refused(case: Case, missing: Need, world: tuple[Secured, Names]) -> None:
    broker, names = world
    broker.only(*(need.rule for need in case.needs if need is not missing))
    outcome = ask(broker, case, names)
    assert is_denied(outcome, missing), outcome


@pytest.mark.parametrize(
    ("case", "instead"),
    [(case, need) for case in CASES for need in case.in_place_of],
    ids=lambda item: item.name if isinstance(item, Case) else f"{item.operation.name} of {item.name}",
)
def test_another_permission_serves_instead(case: Case, instead: Need, world: tuple[Secured, Names]) -> None:
    broker, names = world
    broker.only(instead.rule)
    outcome = ask(broker, case, names)
    assert not is_denied_somewhere(outcome), outcome
    for need in case.needs:
        assert need.denied is not LEFT_OUT or tells_of(outcome, need.name), outcome


def test_every_api_has_a_case() -> None:
    """A new API needs a case in `rights_matrix`."""
    assert {case.api for case in CASES} | WITHOUT_NEEDS == set(OFFERED.values())
