"""Rival writers of a compacted topic, and members of an election, on virtual time: whatever is stopped, killed or lost,
an older writer adds nothing, and there are never two leaders. Wrong rules are found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest

from felice.client.compacted import writer
from felice.client.compacted.topic import CompactedTopic
from felice.client.error import KafkaException
from felice.client.group import election
from felice.client.group.member import GroupSettings
from felice.client.produce.transaction import Step, Transaction
from simulation.compacted import rivals
from simulation.compacted.candidates import Candidates
from simulation.compacted.rivals import Outcome, Rivals, anomalies_of

SEEDS = 8
ELECTION_SEEDS = 20
_A_TEST = 4
_AN_ELECTION_TEST = 10
# From a seed that is known to find a wrong rule, so many more are tried: later changes alter the runs.
_SEARCH = 40


@cache
def rivals_of(seed: int) -> Rivals:
    run = Rivals(seed)
    run.run()
    return run


@pytest.mark.parametrize("first", range(0, SEEDS, _A_TEST))
def test_no_run_of_rival_writers_has_an_anomaly(first: int) -> None:
    failed = {}
    for seed in range(first, first + _A_TEST):
        run = rivals_of(seed)
        anomalies = [*anomalies_of(run.history), *run.world.errors]
        if anomalies:
            failed[seed] = anomalies
    assert not failed


def test_rivals_write_are_fenced_and_lose_responses() -> None:
    """A run in which nothing happens would have no anomaly either."""
    histories = [rivals_of(seed).history for seed in range(SEEDS)]
    writes = [write for history in histories for write in history.writes]
    assert sum(write.outcome is Outcome.WRITTEN for write in writes) > 200
    assert sum(write.outcome is Outcome.REFUSED for write in writes) > 20
    assert sum(history.fenced for history in histories) > 20
    there = {value for history in histories for _, value in history.final}
    unknown = [write.values[0] in there for write in writes if write.outcome is Outcome.UNKNOWN]
    assert True in unknown and False in unknown


@pytest.mark.parametrize("first", range(0, ELECTION_SEEDS, _AN_ELECTION_TEST))
def test_no_run_of_an_election_has_two_leaders(first: int) -> None:
    failed = {}
    for seed in range(first, first + _AN_ELECTION_TEST):
        run = Candidates(seed)
        anomalies = run.run()
        assert run.leaders
        if anomalies:
            failed[seed] = anomalies
    assert not failed


# Wrong rules


def _a_fence_for_each_writer() -> Any:
    numbers = count()

    class Unfenced(CompactedTopic[bytes, bytes]):
        def __init__(self, *arguments: Any, fence: str, **options: Any) -> None:
            super().__init__(*arguments, fence=f"{fence}-{next(numbers)}", **options)

    return patch.object(rivals, "CompactedTopic", Unfenced)


def _a_repeated_commit_counts_as_the_first() -> Any:
    note = Transaction._note

    def wrong(self: Transaction, step: Step | None) -> None:
        note(self, step)
        self.commit_attempts = min(1, self.commit_attempts)

    return patch.object(Transaction, "_note", wrong)


def _an_unknown_outcome_counts_as_a_failure() -> Any:
    def wrong(error: KafkaException, hint: str) -> KafkaException:
        return error

    return patch.object(writer, "_unknown", wrong)


@pytest.mark.parametrize(
    ("wrong_rule", "seed"),
    [
        (_a_fence_for_each_writer, 0),
        (_a_repeated_commit_counts_as_the_first, 4),
        (_an_unknown_outcome_counts_as_a_failure, 2),
    ],
)
def test_wrong_rules_of_writers_are_found(wrong_rule: Callable[[], Any], seed: int) -> None:
    with wrong_rule():
        assert any(anomalies_of(Rivals(number).run()) for number in range(seed, seed + _SEARCH))


def _the_role_is_kept_beyond_the_session() -> Any:
    return patch.object(election, "_USABLE", 1.1)


def _rebalances_end_before_the_session() -> Any:
    def wrong(*arguments: Any) -> GroupSettings:
        return GroupSettings(*arguments[:-1], arguments[-1] // 4)

    return patch.object(election, "GroupSettings", wrong)


@contextlib.contextmanager
def _the_role_is_kept_while_the_member_joins_again() -> Iterator[None]:
    async def wrong(self: object) -> None:
        pass

    with patch.object(election._Candidacy, "_give_up", wrong):
        yield


@pytest.mark.parametrize(
    ("wrong_rule", "seed"),
    [
        (_the_role_is_kept_beyond_the_session, 0),
        (_rebalances_end_before_the_session, 3),
        (_the_role_is_kept_while_the_member_joins_again, 0),
    ],
)
def test_wrong_rules_of_elections_are_found(wrong_rule: Callable[[], Any], seed: int) -> None:
    with wrong_rule():
        assert any(Candidates(number).run() for number in range(seed, seed + _SEARCH))
