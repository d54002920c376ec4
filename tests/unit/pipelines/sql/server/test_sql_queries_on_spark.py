"""Which changes of wanted queries reach the host of Spark, which is not here: a stand-in keeps what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from felice.pipelines.sql.server import on_spark
from felice.pipelines.sql.server.on_spark import SparkQueries
from felice.pipelines.sql.server.persistent import ERROR, RUNNING, QueryState
from felice.pipelines.streams.app import App
from waiting import wait_until

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from felice.pipelines.streams.on_spark.host.host import HostedState, State


class StandIn:
    """Has the methods of a host that `SparkQueries` calls."""

    failure: str | None = None
    trouble: str | None = None

    def __init__(self) -> None:
        self.apps: dict[str, App] = {}
        self.paused: set[str] = set()
        self.failing: dict[str, str] = {}
        self.is_overdue = False
        self.has_old_batch = False
        self.turns = 0
        self.reads = 0
        self.refusal: str | None = None
        self.told: list[str] = []

    def put(self, app: App) -> None:
        if self.refusal is not None:
            raise ValueError(self.refusal)
        self.apps[app.name] = app
        self.paused.discard(app.name)
        self.told.append(f"put {app.name}")

    def drop(self, name: str) -> None:
        del self.apps[name]
        self.told.append(f"drop {name}")

    def pause(self, name: str) -> None:
        self.paused.add(name)
        self.told.append(f"pause {name}")

    def resume(self, name: str) -> None:
        if self.refusal is not None:
            raise ValueError(self.refusal)
        self.paused.discard(name)
        self.failing.pop(name, None)
        self.told.append(f"resume {name}")

    def states(self) -> dict[str, HostedState]:
        self.turns += 1
        found = {}
        for name in self.apps:
            if name in self.failing:
                found[name] = HostedState(State.ERROR, self.failing[name], is_overdue=self.is_overdue)
            else:
                found[name] = HostedState(State.PAUSED if name in self.paused else State.RUNNING)
        return found

    def runs_newest_plan(self) -> bool:
        self.reads += 1
        return not self.has_old_batch

    def stop(self) -> None:
        self.told.append("stop")


class Queries(SparkQueries):
    """With a stand-in for the host."""

    def __init__(self, directory: Path) -> None:
        super().__init__("test", "localhost:1", "local[1]", directory, {})
        self.host = StandIn()

    def _started_host(self) -> Any:
        self._host = self.host  # type: ignore[assignment]
        return self.host


@pytest.fixture
def queries(tmp_path: Path) -> Iterator[Queries]:
    made = Queries(tmp_path)
    made.start()
    yield made
    made.stop()
    assert made.host.told[-1:] == ["stop"]


def apps(*names: str) -> dict[str, App]:
    return {name: App(name) for name in names}


def settled(queries: Queries, *told: str) -> None:
    wait_until(lambda: queries.host.told == list(told), describe=lambda: str(queries.host.told))


def test_queries_are_put_paused_resumed_and_dropped(queries: Queries) -> None:
    both = apps("A", "B")
    queries.want(both, frozenset(both))
    settled(queries, "put A", "put B")
    queries.want({"A": both["A"]}, frozenset(both))
    settled(queries, "put A", "put B", "pause B")
    queries.want(both, frozenset(both))
    settled(queries, "put A", "put B", "pause B", "put B")
    queries.want({"B": both["B"]}, frozenset({"B"}))
    settled(queries, "put A", "put B", "pause B", "put B", "drop A")
    assert queries.states() == {"B": QueryState(RUNNING)}
    wait_until(queries.others_have_ended)
    assert queries.host.apps.keys() == {"B"}


def test_no_query_has_ended_before_the_host_has_what_is_wanted(tmp_path: Path) -> None:
    """After a start in the middle of a terminate the topics were deleted before the state of the queries."""
    queries = Queries(tmp_path)
    queries.host.apps = apps("A", "B")
    queries.want({}, frozenset())
    assert not queries.others_have_ended()
    queries._started_host = lambda: None  # type: ignore[method-assign]
    assert not queries._turn()
    del queries._started_host  # type: ignore[method-assign]
    queries.start()
    wait_until(queries.others_have_ended)
    assert queries.host.told == ["drop A", "drop B"]
    queries.stop()


def test_a_query_runs_until_the_batch_that_was_under_way_has_ended(queries: Queries) -> None:
    """It wrote to its topic once more, which had just been deleted: so the topic came back."""
    queries.want(apps("A"), frozenset("A"))
    wait_until(queries.others_have_ended)
    queries.host.has_old_batch = True
    queries.want({}, frozenset())
    settled(queries, "put A", "drop A")
    turns = queries.host.turns
    wait_until(lambda: queries.host.turns > turns + 1)
    assert not queries.others_have_ended()
    queries.host.has_old_batch = False
    wait_until(queries.others_have_ended)


def test_the_host_is_asked_for_its_batch_only_while_something_is_to_end(queries: Queries) -> None:
    """It read the files of the newest batches in each turn, three times a second."""
    queries.want(apps("A"), frozenset("A"))
    wait_until(queries.others_have_ended)
    reads, turns = queries.host.reads, queries.host.turns
    wait_until(lambda: queries.host.turns > turns + 1)
    assert queries.host.reads == reads


def test_a_new_query_ends_no_other_one(queries: Queries) -> None:
    """A stream without queries cannot be dropped with its topic while another query waits for Spark, otherwise."""
    two = apps("A", "B")
    queries.want({"A": two["A"]}, frozenset("A"))
    wait_until(queries.others_have_ended)
    queries.host.has_old_batch = True
    queries.want(two, frozenset("AB"))
    assert queries.others_have_ended()
    queries.want({**two, **apps("B")}, frozenset("AB"))  # another version
    assert not queries.others_have_ended()


def test_a_query_that_was_paused_since_it_may_be_known_has_ended(queries: Queries) -> None:
    queries.want(apps("A"), frozenset("A"))
    settled(queries, "put A")
    queries.want({}, None)
    wait_until(queries.others_have_ended)
    assert queries.host.told == ["put A", "stop"]


def test_another_application_of_the_same_name_replaces(queries: Queries) -> None:
    queries.want(apps("A"), frozenset("A"))
    settled(queries, "put A")
    queries.want(apps("A"), frozenset("A"))
    settled(queries, "put A", "put A")


def test_nothing_is_dropped_while_a_command_could_not_be_read(queries: Queries) -> None:
    """The query that it made may be among those that the host has."""
    both = apps("A", "B")
    queries.want(both, frozenset(both))
    settled(queries, "put A", "put B")
    queries.want({"B": both["B"]}, None)
    settled(queries, "put A", "put B", "pause A")
    queries.want({}, None)  # Another server leads.
    settled(queries, "put A", "put B", "pause A", "stop")


def test_a_query_that_fails_goes_on_after_a_pause(queries: Queries) -> None:
    queries.want(apps("A"), frozenset("A"))
    settled(queries, "put A")
    queries.host.failing["A"] = "a bad record"
    wait_until(lambda: queries.states() == {"A": QueryState(ERROR, "a bad record")})
    settled(queries, "put A", "resume A")
    assert queries.states() == {"A": QueryState(ERROR, "a bad record")}, "until it has run for a while"


def test_a_query_that_cannot_start_says_why(queries: Queries) -> None:
    queries.host.refusal = "there is no topic s"
    queries.want(apps("A"), frozenset("A"))
    wait_until(lambda: queries.states() == {"A": QueryState(ERROR, "there is no topic s")})
    queries.host.refusal = None
    settled(queries, "put A")
    wait_until(lambda: queries.states() == {"A": QueryState(RUNNING)})


def test_a_query_that_does_not_return_is_left_alone_for_long(
    queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All others wait while it runs."""
    monkeypatch.setattr(on_spark, "FIRST_PAUSE_S", 0.01)
    queries.want(apps("A", "B"), frozenset("AB"))
    settled(queries, "put A", "put B")
    queries.host.is_overdue = True
    queries.host.failing["A"] = "no result"
    wait_until(lambda: queries.states()["A"] == QueryState(ERROR, "no result"))
    turns = queries.host.turns
    wait_until(lambda: queries.host.turns > turns + 2)
    assert queries.host.told == ["put A", "put B"]
    queries.host.is_overdue = False
    queries.want(apps("A"), frozenset("AB"))  # Put again, it may run at once.
    wait_until(lambda: queries.host.told[2:] == ["pause B", "put A", "resume A"])


def test_a_query_whose_topic_is_missing_does_not_go_on(
    queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_spark, "FIRST_PAUSE_S", 0.01)
    queries.want(apps("A"), frozenset("A"))
    settled(queries, "put A")
    queries.host.refusal = "topic t cannot be written"
    queries.host.failing["A"] = "a batch failed"
    wait_until(lambda: queries.states() == {"A": QueryState(ERROR, "topic t cannot be written")})
    assert queries.host.told == ["put A"]
    queries.host.refusal = None
    settled(queries, "put A", "resume A")


def test_all_queries_say_why_none_makes_results(queries: Queries) -> None:
    both = apps("A", "B")
    queries.want(both, frozenset(both))
    settled(queries, "put A", "put B")
    queries.host.trouble = "no broker answers"
    failed = QueryState(ERROR, "no broker answers")
    wait_until(lambda: queries.states() == {"A": failed, "B": failed})
    queries.host.trouble = None
    wait_until(lambda: queries.states() == {"A": QueryState(RUNNING), "B": QueryState(RUNNING)})
    assert queries.host.told == ["put A", "put B"]


def test_the_end_of_the_host_is_no_failure_of_its_queries(queries: Queries) -> None:
    queries.want(apps("A"), frozenset("A"))
    settled(queries, "put A")
    queries.host.failure = queries.host.trouble = queries.host.failing["A"] = "Java has ended"
    turns = queries.host.turns
    wait_until(lambda: queries.host.turns > turns + 1)
    assert queries.states() == {"A": QueryState(ERROR, "Java has ended")}
    queries.host.failure = queries.host.trouble = None
    queries.host.failing.clear()
    assert queries.states() == {"A": QueryState(RUNNING)}
    assert queries.host.told == ["put A"]
