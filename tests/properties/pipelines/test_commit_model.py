"""A query's batches over model brokers, with drivers that die at every step: each row is visible once.

The model keeps what Kafka's coordinators keep: transactions with their end, one decision written by the newest driver.
Between two lives of the driver, brokers may time transactions out, the replay may deal its rows out to other tasks,
and a driver that was thought dead may go on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.pipelines.spark.commit import (
    CommitError,
    Decision,
    Outcome,
    Prepared,
    TornBatch,
    abort_batch,
    commit_batch,
)

BATCHES = 3
ROWS = 6


class Killed(Exception):
    """The driver's process is gone; what it asked the brokers before stays done."""


class Fenced(Exception):
    """A newer driver has taken over."""


class Unreachable(Exception):
    """A broker does not answer in time: the commit fails, and Spark calls abort."""


@dataclass
class Brokers:
    states: dict[str, str] = field(default_factory=dict)
    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    decision: Decision | None = None
    driver_epoch: int = 0

    def visible(self) -> Counter[int]:
        return Counter(
            row for name, state in self.states.items() if state == "committed" for row in self.rows[name]
        )

    def time_out(self, names: Iterable[str]) -> None:
        for name in names:
            if self.states[name] == "open":
                self.states[name] = "aborted"


Action = Callable[[], None]


def die() -> None:
    raise Killed


def lose_brokers() -> None:
    raise Unreachable


class Steps:
    """Counts a driver's steps, and at one of them does what was planned."""

    def __init__(self, at: int = 0, action: Action = die) -> None:
        self._left = at
        self._action = action

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._action()


class ModelLedger:
    """One driver's view. Before and after every effect something may befall it."""

    def __init__(self, brokers: Brokers, on_step: Steps) -> None:
        self._brokers = brokers
        self._step = on_step
        self._epoch = 0

    def take_over(self) -> Decision | None:
        self._step()
        self._brokers.driver_epoch += 1
        self._epoch = self._brokers.driver_epoch
        self._step()
        return self._brokers.decision

    def not_open(self, transactions: Iterable[Prepared]) -> list[Prepared]:
        self._step()
        return [row for row in transactions if self._brokers.states[row.transactional_id] != "open"]

    def decide(self, decision: Decision) -> None:
        self._step()
        if self._epoch != self._brokers.driver_epoch:
            raise Fenced
        self._brokers.decision = decision
        self._step()

    def commit(self, transactions: Iterable[Prepared]) -> Mapping[Prepared, Outcome]:
        return {row: self._commit_one(row.transactional_id, row) for row in transactions}

    def _commit_one(self, name: str, row: Prepared) -> Outcome:
        self._step()
        if self._brokers.states[name] == "open":
            self._brokers.states[name] = "committed"
        self._step()
        return Outcome.COMMITTED if self._brokers.states[name] == "committed" else Outcome.ABORTED

    def abort(self, transactions: Iterable[Prepared]) -> None:
        for row in transactions:
            self._step()
            self._brokers.time_out([row.transactional_id])

    def abort_strays(self, keep: Collection[Prepared]) -> None:
        self._step()
        kept = {row.transactional_id for row in keep}
        self._brokers.time_out([name for name in self._brokers.states if name not in kept])


@dataclass
class Query:
    """Spark, as far as the sink can see it: batches in order, replayed until one returns."""

    brokers: Brokers
    dice: Random
    same_deal: bool
    timeouts: bool
    lives: int = 0
    torn: bool = False

    def life(self, batch: int, steps: Steps) -> None:
        """The tasks write, then the driver commits; raises where the driver dies or the batch fails."""
        self.lives += 1
        prepared = self._written(batch)
        ledger = ModelLedger(self.brokers, steps)
        try:
            commit_batch(ledger, batch, prepared)
        except (CommitError, Unreachable):
            abort_batch(ledger, batch, prepared)
            raise

    def _written(self, batch: int) -> list[Prepared]:
        rows = range(batch * ROWS, (batch + 1) * ROWS)
        slots = 3 if self.same_deal else self.dice.randint(1, 4)
        found = []
        for slot in range(slots):
            name = f"{self.lives}-{slot}"
            self.brokers.states[name] = "open"
            self.brokers.rows[name] = tuple(rows[slot::slots])
            found.append(Prepared(slot, name, 1, 0, len(rows[slot::slots]), hash(self.brokers.rows[name])))
        return found

    def between_lives(self) -> None:
        if self.timeouts:
            names = list(self.brokers.states)
            self.brokers.time_out(self.dice.sample(names, self.dice.randint(0, len(names))))

    def run(self, plan: list[tuple[int, str]]) -> None:
        """`plan`: at which step of each life what happens; behind its end all lives go well."""
        for batch in range(BATCHES):
            while True:
                at, what = plan.pop() if plan else (0, "dies")
                actions = {"dies": die, "unreachable": lose_brokers, "overtaken": self._overtaking(batch)}
                try:
                    self.life(batch, Steps(at, actions[what]))
                    if not at or self.dice.random() < 0.5:
                        break  # else Spark died before it wrote that the batch is done
                except TornBatch:
                    self.torn = True
                    return
                except (Killed, Fenced, Unreachable, CommitError):
                    pass
                self.between_lives()

    def _overtaking(self, batch: int) -> Action:
        """The driver stops for a while; another one does the batch; then the first goes on."""

        def overtake() -> None:
            self.between_lives()
            try:
                self.life(batch, Steps())
            except TornBatch:
                self.torn = True
            except CommitError:
                pass

        return overtake


EVERY_ROW_ONCE = Counter(range(BATCHES * ROWS))
Plan = list[tuple[int, str]]
plans = st.lists(
    st.tuples(st.integers(1, 24), st.sampled_from(["dies", "unreachable", "overtaken"])), max_size=12
)


def run(seed: int, plan: Plan, *, same_deal: bool, timeouts: bool) -> Query:
    query = Query(Brokers(), Random(seed), same_deal, timeouts)
    query.run(list(plan))
    return query


@given(st.integers(0, 1 << 32), plans, st.booleans())
@settings(max_examples=400, deadline=None)
def test_every_row_is_visible_once_while_no_transaction_times_out(
    seed: int, plan: Plan, same_deal: bool
) -> None:
    """Also where a replay deals its rows out in another way."""
    query = run(seed, plan, same_deal=same_deal, timeouts=False)
    assert not query.torn
    assert query.brokers.visible() == EVERY_ROW_ONCE


@given(st.integers(0, 1 << 32), plans)
@settings(max_examples=400, deadline=None)
def test_every_row_is_visible_once_if_replays_write_the_same_parts(seed: int, plan: Plan) -> None:
    query = run(seed, plan, same_deal=True, timeouts=True)
    assert not query.torn
    assert query.brokers.visible() == EVERY_ROW_ONCE


@given(st.integers(0, 1 << 32), plans)
@settings(max_examples=400, deadline=None)
def test_no_row_is_visible_twice_whatever_happens(seed: int, plan: Plan) -> None:
    """Timeouts behind the decision, and a replay of other parts: the query stops and says so."""
    query = run(seed, plan, same_deal=False, timeouts=True)
    visible = query.brokers.visible()
    assert max(visible.values(), default=0) <= 1
    assert query.torn or visible == EVERY_ROW_ONCE


@pytest.mark.parametrize("at", range(1, 30))
def test_a_death_at_any_single_step(at: int) -> None:
    for timeouts in (False, True):
        query = run(at, [(at, "dies")] * 3, same_deal=True, timeouts=timeouts)
        assert query.brokers.visible() == EVERY_ROW_ONCE
